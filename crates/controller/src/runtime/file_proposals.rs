//! Proposes the files of a Pipeline in git, for a person who may write this Pipeline to the cluster: the Pipeline, and
//! manifests of its application in new files. The change request goes to the repository and branch that the Pipeline itself
//! names, with the Secret that it names.

use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluice_api::Pipeline;
use sluice_api::pipeline::{PullRequestStrategy, Strategy};
use sluice_core::access::Caller;
use sluice_core::hex::hex;
use sluice_core::proposed_file::{PlannedFile, PlannedFiles, ProposedFile};
use sluice_core::slots::CallerSlots;
use sluice_delivery::{
    Delivered, Delivery, DeliveryError, DeliveryStrategy, FileChange, ForgeKind, ManifestFileError,
    ManifestObject, Order, RequestedChange, Settings, Values, check_manifest_paths, manifest_file,
    new_manifest_file,
};

use super::credentials;
use super::work_slots::WorkSlots;
use crate::act::ActError;

/// The most proposals in progress or waiting: of all people together, and of all service accounts together.
const MAX_PENDING: usize = 8;
/// The most proposals in progress or waiting of one caller.
const MAX_PENDING_OF_CALLER: usize = 2;
/// The most manifests of one proposal.
const MAX_MANIFESTS: usize = 64;
/// The kinds of applications whose manifests may be proposed: API group and kind.
const APPLICATIONS: [(&str, &str); 2] =
    [("helm.toolkit.fluxcd.io", "HelmRelease"), ("kustomize.toolkit.fluxcd.io", "Kustomization")];
/// How long a proposal may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The message if too many proposals are in progress.
const BUSY: &str = "too many proposals are being made; try again in a moment";
/// The message if the Pipeline opens no change requests.
const NO_REPOSITORY: &str = "this pipeline opens no change requests, so it names no repository for its file: \
     download the YAML and commit it yourself";
/// The message if a proposal takes longer than [`TIMEOUT`].
const SLOW: &str = "the repository or its forge is slow; try again in a moment: if the change request was opened, Sluice finds it";

/// What a person proposes.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// The Pipeline.
    pub pipeline: Pipeline,
    /// Its manifest: one YAML document.
    pub manifest: String,
    /// The Pipeline that the person has edited; `None` for a new one.
    pub edited: Option<Pipeline>,
    /// The path of the file.
    pub path: String,
    /// The manifests of its application, each with the path of its new file.
    pub manifests: Vec<(String, String)>,
    /// The confirmation of the change that the person has seen; `None` to only show the change.
    pub confirmation: Option<String>,
}

/// Why nothing is proposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposalError {
    /// Something that the person entered cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The repository, its forge or Sluice itself has failed.
    #[error("{0}")]
    Failed(String),
}

impl From<ManifestFileError> for ProposalError {
    fn from(error: ManifestFileError) -> Self {
        ProposalError::Unusable(error.to_string())
    }
}

impl From<DeliveryError> for ProposalError {
    fn from(error: DeliveryError) -> Self {
        match error {
            DeliveryError::Edit(error) => ProposalError::Unusable(error.to_string()),
            error => ProposalError::Failed(error.to_string()),
        }
    }
}

/// Proposes files. Copies share the limits.
#[derive(Clone)]
pub struct FileProposals {
    client: Client,
    delivery: Delivery,
    slots: WorkSlots,
    people: CallerSlots,
}

impl FileProposals {
    /// Returns a proposer of files, which reads the Secrets with this client.
    pub fn new(client: Client, delivery: Delivery) -> FileProposals {
        let people = CallerSlots::new(MAX_PENDING, MAX_PENDING_OF_CALLER);
        FileProposals { client, delivery, slots: WorkSlots::new(), people }
    }

    /// Returns what would change or, if the person has confirmed the change, opens the change request. The caller of
    /// this function must have checked that the person may write the Pipeline.
    ///
    /// # Errors
    /// When nothing is proposed. The error is a sentence for people.
    pub async fn propose(
        &self,
        caller: &Caller,
        request: FileRequest,
    ) -> Result<ProposedFile, ProposalError> {
        let slot = self.people.take(caller).ok_or_else(|| ProposalError::Failed(BUSY.into()))?;
        let (proposals, caller) = (self.clone(), caller.clone());
        // A task of its own: it ends although the person has closed the page.
        let task = tokio::spawn(async move {
            let _slot = slot;
            let name = format!(
                "{}/{}",
                request.pipeline.namespace().unwrap_or_default(),
                request.pipeline.name_any()
            );
            let work = proposals.slots.run(&caller, &name, proposals.carry_out(&caller, &request));
            match tokio::time::timeout(TIMEOUT, work).await {
                Ok(Some(done)) => done,
                Ok(None) | Err(_) => Err(ProposalError::Failed(SLOW.into())),
            }
        });
        let internal = |error: tokio::task::JoinError| ActError::Internal(error.to_string()).to_string();
        task.await.unwrap_or_else(|error| Err(ProposalError::Failed(internal(error))))
    }

    async fn carry_out(&self, caller: &Caller, request: &FileRequest) -> Result<ProposedFile, ProposalError> {
        let paths = request.paths();
        check_manifest_paths(&paths)?;
        let (order, repository, branch) = self.order(caller, request).await?;
        let before = self.delivery.files(&order).await?;
        let after = new_texts(request, &before)?;
        let change = |(path, (before, after)): (&&str, (Option<String>, String))| FileChange {
            path: (*path).into(),
            before,
            after,
        };
        let files: Vec<FileChange> = paths.iter().zip(before.into_iter().zip(after)).map(change).collect();
        let changed = files.iter().filter(|file| file.before.as_ref() != Some(&file.after));
        let planned = PlannedFiles {
            confirmation: confirmation(&repository, &branch, &files),
            files: changed.map(|f| PlannedFile::new(&f.path, f.before.as_deref(), &f.after)).collect(),
            repository,
            branch,
        };
        if planned.files.is_empty() {
            return Ok(ProposedFile::AlreadyThere);
        }
        if request.confirmation.as_ref() != Some(&planned.confirmation) {
            return Ok(ProposedFile::Planned(planned));
        }
        let change = RequestedChange { files, person: caller.name.clone() };
        match self.delivery.deliver(&Order { values: Values::Files(change), ..order }).await? {
            Delivered::Proposed { request: opened, .. } => {
                let name = request.pipeline.name_any();
                let namespace = request.pipeline.namespace().unwrap_or_default();
                tracing::info!(
                    person = caller.name,
                    pipeline = format!("{namespace}/{name}"),
                    path = request.path,
                    manifests = request.manifests.len(),
                    repository = planned.repository,
                    change_request = opened.url,
                    "a person has proposed the files of a pipeline"
                );
                Ok(ProposedFile::Opened { number: opened.number, url: opened.url, notes: opened.notes })
            }
            _ => Ok(ProposedFile::AlreadyThere),
        }
    }

    /// Returns the order of the delivery that reads and writes the files, with the repository and the branch.
    async fn order(
        &self,
        caller: &Caller,
        request: &FileRequest,
    ) -> Result<(Order, String, String), ProposalError> {
        let promotion = request.pipeline.spec.promotion.as_ref();
        let named = promotion.and_then(|promotion| promotion.strategy.as_ref());
        let strategy = named.and_then(|named| strategy(named, !request.manifests.is_empty()));
        let Some((strategy, named)) = strategy else {
            return Err(ProposalError::Unusable(NO_REPOSITORY.into()));
        };
        let (namespace, name) =
            (request.pipeline.namespace().unwrap_or_default(), request.pipeline.name_any());
        let unread = |path: &str| FileChange { path: path.into(), before: None, after: String::new() };
        let files = request.paths().into_iter().map(unread).collect();
        let change = RequestedChange { files, person: caller.name.clone() };
        let order = Order::of_files((&namespace, &name), strategy, change, Timestamp::now());
        let secret = Some(named.secret_ref.name.clone());
        let read = credentials::read(&self.client, &namespace, &order.strategy, secret).await;
        let credentials = read.result.map_err(|error| ProposalError::Failed(error.to_string()))?;
        Ok((Order { credentials, ..order }, named.url.clone(), named.base_branch.clone()))
    }
}

/// Returns the strategy for proposals of a Pipeline; `None` if the Pipeline opens no change requests. The Pipeline's
/// settings for titles, labels and merging are for promotions, so proposals do not use them: people merge every
/// proposal. A proposal with manifests is a draft, because a repository may have rules that merge Sluice's promotions.
fn strategy(strategy: &Strategy, has_manifests: bool) -> Option<(DeliveryStrategy, &PullRequestStrategy)> {
    let named = strategy.pull_request.as_ref()?;
    let settings = Settings {
        draft: has_manifests,
        reviewers: named.reviewers.clone(),
        assignees: named.assignees.clone(),
        api_url: named.api_url.clone(),
        ..Settings::default()
    };
    let forge = ForgeKind::from_name(&named.forge)?;
    let (url, base, settings) = (named.url.clone(), named.base_branch.clone(), Box::new(settings));
    Some((DeliveryStrategy::PullRequest { forge, url, base, settings }, named))
}

impl FileRequest {
    /// Returns the paths of all files. The first path is the one of the Pipeline.
    fn paths(&self) -> Vec<&str> {
        let manifests = self.manifests.iter().map(|(path, _)| path.as_str());
        std::iter::once(self.path.as_str()).chain(manifests).collect()
    }
}

/// Returns the new texts of all files. `before` are their present texts.
fn new_texts(request: &FileRequest, before: &[Option<String>]) -> Result<Vec<String>, ProposalError> {
    if request.manifests.len() > MAX_MANIFESTS {
        return Err(ProposalError::Unusable(format!("propose at most {MAX_MANIFESTS} manifests at once")));
    }
    let now = |at: usize| before.get(at).and_then(Option::as_deref);
    let mut texts = vec![new_text(request, now(0))?];
    let objects = applications(&request.pipeline);
    for (at, (path, manifest)) in request.manifests.iter().enumerate() {
        texts.push(new_manifest_file(path, now(at + 1), &objects, manifest)?);
    }
    Ok(texts)
}

/// Returns the objects whose manifests may be proposed: the application of a Pipeline in the namespace of each target.
fn applications(pipeline: &Pipeline) -> Vec<ManifestObject<'_>> {
    let Some(app) = &pipeline.spec.app_ref else { return Vec::new() };
    let group = app.api_version.split('/').next().unwrap_or_default();
    if !APPLICATIONS.contains(&(group, app.kind.as_str())) {
        return Vec::new();
    }
    let targets = pipeline.spec.environments.iter().flat_map(|environment| &environment.targets);
    let object = |namespace| ManifestObject { group, kind: &app.kind, namespace, name: &app.name };
    targets.map(|target| object(&target.namespace)).collect()
}

/// Returns the new text of the file of the Pipeline.
fn new_text(request: &FileRequest, before: Option<&str>) -> Result<String, ManifestFileError> {
    let metadata = &request.pipeline.metadata;
    let object = ManifestObject {
        group: sluice_api::GROUP,
        kind: "Pipeline",
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        name: metadata.name.as_deref().unwrap_or_default(),
    };
    let is_edited = request.edited.as_ref().map(|edited| move |document: &Value| is_same(document, edited));
    let is_edited = is_edited.as_ref().map(|is_edited| is_edited as &dyn Fn(&Value) -> bool);
    manifest_file(&request.path, before, object, &request.manifest, is_edited)
}

/// Whether a document has the spec of a Pipeline. The API server has added the defaults to one of them.
fn is_same(document: &Value, pipeline: &Pipeline) -> bool {
    serde_json::from_value::<Pipeline>(document.clone()).is_ok_and(|written| written.spec == pipeline.spec)
}

/// Returns what confirms the change of all texts, in one place.
fn confirmation(repository: &str, branch: &str, files: &[FileChange]) -> String {
    let mut hash = Sha256::new();
    let texts =
        files.iter().flat_map(|f| [Some(f.path.as_str()), f.before.as_deref(), Some(f.after.as_str())]);
    for part in [Some(repository), Some(branch)].into_iter().chain(texts) {
        let length = part.map_or("none".into(), |part| part.len().to_string());
        hash.update(format!("{length}:"));
        hash.update(part.unwrap_or_default());
    }
    hex(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_is_for_one_change_of_one_file() {
        let file = |path: &str, before: Option<&str>, after: &str| FileChange {
            path: path.into(),
            before: before.map(String::from),
            after: after.into(),
        };
        let one = || file("a.yaml", None, "b");
        let of = confirmation("r", "main", &[one()]);
        for other in [
            confirmation("s", "main", &[one()]),
            confirmation("r", "live", &[one()]),
            confirmation("r", "main", &[file("b.yaml", None, "b")]),
            confirmation("r", "main", &[file("a.yaml", Some(""), "b")]),
            confirmation("r", "main", &[file("a.yaml", None, "c")]),
            confirmation("r", "main", &[one(), file("b.yaml", None, "b")]),
            confirmation("r", "main", &[]),
        ] {
            assert_ne!(of, other);
        }
    }

    /// A request for a manifest of the HelmRelease podinfo in the namespace dev, with some of its words replaced.
    fn with_manifest(pipeline: [&str; 2], from: &str, to: &str) -> FileRequest {
        let [kind, group] = pipeline;
        let manifest = "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {name: podinfo, namespace: apps}\n";
        let pipeline = serde_json::json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps"},
            "spec": {"appRef": {"apiVersion": format!("{group}/v2"), "kind": kind, "name": "podinfo"},
                "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}]}});
        let release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: podinfo, namespace: dev}\nspec: {}\n";
        assert!(release.contains(from), "{from}");
        FileRequest {
            pipeline: serde_json::from_value(pipeline).unwrap(),
            manifest: manifest.into(),
            edited: None,
            path: "pipeline.yaml".into(),
            manifests: vec![("dev/podinfo.yaml".into(), release.replacen(from, to, 1))],
            confirmation: None,
        }
    }

    #[test]
    fn a_manifest_is_the_application_in_the_namespace_of_a_target_and_nothing_else() {
        let release = ["HelmRelease", "helm.toolkit.fluxcd.io"];
        let good = with_manifest(release, "spec", "spec");
        let texts = new_texts(&good, &[None, None]).unwrap();
        assert_eq!(texts, [good.manifest.clone(), good.manifests[0].1.clone()]);
        for (from, to) in [
            ("namespace: dev", "namespace: kube-system"),
            ("namespace: dev", "namespace: [dev]"),
            (", namespace: dev", ""),
            ("name: podinfo", "name: other"),
            ("kind: HelmRelease", "kind: Secret"),
            ("kind: HelmRelease", "kind: Kustomization"),
            ("helm.toolkit.fluxcd.io", "evil.example.com"),
            ("spec: {}\n", "spec: {}\n---\nkind: Secret\n"),
            ("spec: {}\n", "spec: ["),
        ] {
            let refused = new_texts(&with_manifest(release, from, to), &[None, None]);
            assert!(matches!(refused, Err(ProposalError::Unusable(_))), "{from} {to}: {refused:?}");
        }
        // The Pipeline names another application than one of Flux.
        for (kind, group) in [
            ("Secret", ""),
            ("ClusterRole", "rbac.authorization.k8s.io"),
            ("HelmRelease", "evil.example.com"),
        ] {
            let to = format!("{group}/v2\nkind: {kind}");
            let request = with_manifest([kind, group], "helm.toolkit.fluxcd.io/v2\nkind: HelmRelease", &to);
            assert!(new_texts(&request, &[None, None]).is_err(), "{kind}");
        }
        let taken = new_texts(&good, &[None, Some("a: 1\n".into())]).unwrap_err();
        assert!(taken.to_string().contains("dev/podinfo.yaml is in the repository already"), "{taken}");
        let mut many = good.clone();
        many.manifests = vec![good.manifests[0].clone(); MAX_MANIFESTS + 1];
        assert!(new_texts(&many, &[]).is_err());
    }

    #[test]
    fn an_edit_counts_for_the_spec_that_the_person_began_with_and_defaults_are_no_change() {
        let document = |version: &str| {
            serde_json::json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps"},
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": version},
                "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}],
                "promotion": {"strategy": {"pull-request": {"type": "gitea", "url": "https://git.example.com/a/b",
                    "secretRef": {"name": "git"}}}}}})
        };
        let mut live = document("podinfo");
        live["spec"]["promotion"]["strategy"]["pull-request"]["baseBranch"] = "main".into();
        let live: Pipeline = serde_json::from_value(live).unwrap();
        assert!(is_same(&document("podinfo"), &live));
        assert!(!is_same(&document("other"), &live));
    }
}
