//! Proposes the file of a Pipeline in git, for a person who may write this Pipeline to the cluster. The change request goes
//! to the repository and branch that the Pipeline itself names, with the Secret that it names.

use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluice_api::Pipeline;
use sluice_api::pipeline::{PullRequestStrategy, Strategy};
use sluice_core::access::Caller;
use sluice_core::hex::hex;
use sluice_core::proposed_file::{PlannedFile, ProposedFile};
use sluice_core::slots::CallerSlots;
use sluice_delivery::{
    Delivered, Delivery, DeliveryStrategy, FileChange, ForgeKind, ManifestObject, Order, Settings, Values,
    manifest_file,
};

use super::credentials;
use super::work_slots::WorkSlots;
use crate::act::ActError;

/// How many proposals are worked on or wait, of all people, of all service accounts, and of one caller.
const MAX_PENDING: usize = 8;
const MAX_PENDING_OF_CALLER: usize = 2;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Why a proposal is not worked on.
const BUSY: &str = "too many proposals are being made; try again in a moment";
/// Why a proposal is worked on no longer.
const SLOW: &str =
    "the repository or its forge is slow; try again in a moment: a change request that was opened is found";

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
    /// The confirmation of what the person has seen; `None` to see it first.
    pub confirmation: Option<String>,
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
    /// Returns what proposes files, with Secrets that this client reads.
    pub fn new(client: Client, delivery: Delivery) -> FileProposals {
        let people = CallerSlots::new(MAX_PENDING, MAX_PENDING_OF_CALLER);
        FileProposals { client, delivery, slots: WorkSlots::new(), people }
    }

    /// Says what would change or, if the person has confirmed that, opens the change request. The caller of this function
    /// has made sure that the person may write the Pipeline.
    ///
    /// # Errors
    /// When nothing is proposed. The error is a sentence for people.
    pub async fn propose(&self, caller: &Caller, request: FileRequest) -> Result<ProposedFile, String> {
        let slot = self.people.take(caller).ok_or(BUSY)?;
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
                Ok(None) | Err(_) => Err(SLOW.into()),
            }
        });
        task.await.unwrap_or_else(|error| Err(ActError::Internal(error.to_string()).to_string()))
    }

    async fn carry_out(&self, caller: &Caller, request: &FileRequest) -> Result<ProposedFile, String> {
        let (order, repository, branch) = self.order(caller, request).await?;
        let before = self.delivery.file(&order).await.map_err(|error| error.to_string())?;
        let after = new_text(request, before.as_deref())?;
        if before.as_ref() == Some(&after) {
            return Ok(ProposedFile::AlreadyThere);
        }
        let planned = PlannedFile {
            confirmation: confirmation(&repository, &branch, &request.path, before.as_deref(), &after),
            repository,
            branch,
            path: request.path.clone(),
            ..PlannedFile::default()
        };
        if request.confirmation.as_ref() != Some(&planned.confirmation) {
            return Ok(ProposedFile::Planned(planned.with_lines(before.as_deref(), &after)));
        }
        let change = file_change(caller, &request.path, before, after);
        let done = self.delivery.deliver(&Order { values: Values::File(change), ..order }).await;
        match done.map_err(|error| error.to_string())? {
            Delivered::Proposed { request: opened, .. } => {
                let name = request.pipeline.name_any();
                let namespace = request.pipeline.namespace().unwrap_or_default();
                tracing::info!(
                    person = caller.name,
                    pipeline = format!("{namespace}/{name}"),
                    path = request.path,
                    repository = planned.repository,
                    change_request = opened.url,
                    "a person has proposed the file of a pipeline"
                );
                Ok(ProposedFile::Opened { number: opened.number, url: opened.url, notes: opened.notes })
            }
            _ => Ok(ProposedFile::AlreadyThere),
        }
    }

    /// Returns the order to read and write the file, with its repository and branch.
    async fn order(&self, caller: &Caller, request: &FileRequest) -> Result<(Order, String, String), String> {
        let promotion = request.pipeline.spec.promotion.as_ref();
        let strategy = promotion.and_then(|promotion| promotion.strategy.as_ref()).and_then(strategy);
        let Some((strategy, named)) = strategy else {
            return Err("this pipeline opens no change requests, so it names no repository for its file: \
                        download the YAML and commit it yourself"
                .into());
        };
        let (namespace, name) =
            (request.pipeline.namespace().unwrap_or_default(), request.pipeline.name_any());
        let change = file_change(caller, &request.path, None, String::new());
        let order = Order::of_file((&namespace, &name), strategy, change, Timestamp::now());
        let secret = Some(named.secret_ref.name.clone());
        let read = credentials::read(&self.client, &namespace, &order.strategy, secret).await;
        let credentials = read.result.map_err(|error| error.to_string())?;
        Ok((Order { credentials, ..order }, named.url.clone(), named.base_branch.clone()))
    }
}

/// Returns how the change requests of a Pipeline are opened. Titles, labels and the merge are for promotions: a file of a
/// person is always merged by people.
fn strategy(strategy: &Strategy) -> Option<(DeliveryStrategy, &PullRequestStrategy)> {
    let named = strategy.pull_request.as_ref()?;
    let settings = Settings {
        reviewers: named.reviewers.clone(),
        assignees: named.assignees.clone(),
        api_url: named.api_url.clone(),
        ..Settings::default()
    };
    let forge = ForgeKind::from_name(&named.forge)?;
    let (url, base, settings) = (named.url.clone(), named.base_branch.clone(), Box::new(settings));
    Some((DeliveryStrategy::PullRequest { forge, url, base, settings }, named))
}

fn file_change(caller: &Caller, path: &str, before: Option<String>, after: String) -> FileChange {
    FileChange { path: path.into(), before, after, person: caller.name.clone() }
}

/// Returns the new text of the file.
fn new_text(request: &FileRequest, before: Option<&str>) -> Result<String, String> {
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
        .map_err(|error| error.to_string())
}

/// Whether a document has the spec of a Pipeline. The API server has added the defaults to one of them.
fn is_same(document: &Value, pipeline: &Pipeline) -> bool {
    serde_json::from_value::<Pipeline>(document.clone()).is_ok_and(|written| written.spec == pipeline.spec)
}

/// Returns what confirms the change of one text into another one, in one place.
fn confirmation(repository: &str, branch: &str, path: &str, before: Option<&str>, after: &str) -> String {
    let mut hash = Sha256::new();
    for part in [Some(repository), Some(branch), Some(path), before, Some(after)] {
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
        let of = confirmation("r", "main", "a.yaml", None, "b");
        for other in [
            confirmation("s", "main", "a.yaml", None, "b"),
            confirmation("r", "live", "a.yaml", None, "b"),
            confirmation("r", "main", "b.yaml", None, "b"),
            confirmation("r", "main", "a.yaml", Some(""), "b"),
            confirmation("r", "main", "a.yaml", None, "c"),
        ] {
            assert_ne!(of, other);
        }
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
