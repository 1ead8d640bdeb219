//! Connects the API and the pages to the hub's API server and to the controller's loop.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::core::{GroupVersionKind, ObjectMeta};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice_api::snapshot::Snapshot;
use sluice_api::{Pipeline, Promotion};
use sluice_cli::{CONTROLLER_NAMESPACE, FluxRequests, InstallationQuestion, read_installation};
use sluice_controller::access::AccessReviews;
use sluice_controller::{
    Delivery, FileProposals, FileRequest, PlannedChanges, ProposalError, SnapshotReader,
};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::fleet::Kind;
use sluice_core::planned_change::PlannedChange;
use sluice_core::proposed_file::ProposedFile;
use sluice_web::{
    Change, ChangeError, ChangedKind, ClockOf, EventFilter, EventLine, FileProposal, Hub, Installation,
    ObjectName, ProposedManifest, ReconcilePlan, RequestedObject, SeenObject, WantedEvents, events,
};

/// The field manager of changes that people make on the pages.
const FIELD_MANAGER: &str = "sluice-web";
/// The group and version in which applications are read and written.
const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io", "v2");
const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io", "v1");
/// How often a change is tried if the controller writes the object's status at the same time.
const MAX_TRIES: usize = 5;

/// The hub's API server and the controller's loop.
#[derive(Clone)]
pub struct HubPort {
    reviews: AccessReviews,
    snapshots: SnapshotReader,
    git: GitAccess,
    people: People,
    /// The namespace of the controller.
    controller_namespace: String,
}

/// What the hub does with the repositories of pipelines, for people.
#[derive(Clone)]
pub struct GitAccess {
    planned: PlannedChanges,
    proposals: FileProposals,
}

impl GitAccess {
    /// Returns the access of a delivery, with Secrets that this client reads.
    pub fn new(client: &Client, delivery: &Delivery) -> GitAccess {
        let planned = PlannedChanges::new(client.clone(), delivery.clone());
        GitAccess { planned, proposals: FileProposals::new(client.clone(), delivery.clone()) }
    }
}

/// How people are identified, and act.
#[derive(Clone)]
enum People {
    /// By their tokens of the hub. The configuration is that of the hub, without anybody's credentials.
    ByToken(Box<Config>),
    /// There is one, whose own client this is, and who shows this secret.
    Own { client: Client, user: Caller, secret: Arc<str> },
}

impl HubPort {
    /// Returns a port to the hub that a client and its configuration reach.
    pub fn new(
        hub: Client,
        config: &Config,
        snapshots: SnapshotReader,
        git: GitAccess,
        controller_namespace: String,
    ) -> Self {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        HubPort {
            reviews: AccessReviews::new(hub),
            snapshots,
            git,
            people: People::ByToken(Box::new(anonymous)),
            controller_namespace,
        }
    }

    /// Returns a port for the user of a client only, who shows a secret instead of a token.
    pub fn of_own_user(
        client: Client,
        user: String,
        secret: &str,
        snapshots: SnapshotReader,
        git: GitAccess,
    ) -> Self {
        let user = Caller { name: user, ..Caller::default() };
        let reviews = AccessReviews::of_own_user(client.clone());
        let people = People::Own { client, user, secret: secret.into() };
        HubPort { reviews, snapshots, git, people, controller_namespace: CONTROLLER_NAMESPACE.into() }
    }

    /// Returns a client that acts with a person's token, and with nothing else.
    fn client_of(&self, token: &str) -> Result<Client, ChangeError> {
        match &self.people {
            People::ByToken(anonymous) => {
                let mut config = Config::clone(anonymous);
                config.auth_info.token = Some(token.to_string().into());
                Client::try_from(config).map_err(|error| ChangeError::Unavailable(error.to_string()))
            }
            // Only sessions of this process hold the secret.
            People::Own { client, .. } => Ok(client.clone()),
        }
    }
}

impl Hub for HubPort {
    async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        match &self.people {
            People::ByToken(_) => self.reviews.identify(token).await,
            // The time of a comparison of digests says nothing about the secret.
            People::Own { user, secret, .. } => match Sha256::digest(token) == Sha256::digest(&**secret) {
                true => Ok(user.clone()),
                false => Err(AccessError::NotAccepted),
            },
        }
    }

    async fn allows(&self, caller: &Caller, right: &Right) -> Result<bool, AccessError> {
        self.reviews.allows(caller, right).await
    }

    async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.read().await
    }

    fn version(&self) -> u64 {
        self.snapshots.version()
    }

    async fn changed_since(&self, version: u64) {
        self.snapshots.changed_since(version).await;
    }

    async fn planned_change(
        &self,
        caller: &Caller,
        pipeline: &Pipeline,
        promotion: &Promotion,
    ) -> Result<Option<Arc<PlannedChange>>, String> {
        self.git.planned.get(caller, pipeline, promotion).await
    }

    async fn change(&self, token: &str, change: Change) -> Result<(), ChangeError> {
        let client = self.client_of(token)?;
        match change.kind {
            ChangedKind::Pipeline => patch::<Pipeline>(client, change).await,
            ChangedKind::Promotion => patch::<Promotion>(client, change).await,
        }
    }

    async fn application(&self, token: &str, kind: Kind, name: &ObjectName) -> Result<Value, ChangeError> {
        let (group, version) = if kind == Kind::HelmRelease { HELM_RELEASE } else { KUSTOMIZATION };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.name()));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client_of(token)?, &name.namespace, &resource);
        let object = api.get(&name.name).await.map_err(change_error)?;
        serde_json::to_value(object).map_err(|error| ChangeError::Refused(error.to_string()))
    }

    async fn events(&self, token: &str, wanted: WantedEvents) -> Result<Vec<EventLine>, ChangeError> {
        let client = self.client_of(token)?;
        let api: Api<Event> = match &wanted.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        // Of a whole cluster, the events of other objects are many.
        let ours = format!("involvedObject.apiVersion={}", Pipeline::api_version(&()));
        let listed = api.list(&ListParams::default().fields(&ours)).await.map_err(change_error)?;
        let WantedEvents { pipeline, promotions, types, .. } = &wanted;
        Ok(events(listed.items, &EventFilter { pipeline: pipeline.as_deref(), promotions, types }))
    }

    async fn installation<'a>(
        &self,
        caller: &Caller,
        token: &str,
        namespace: Option<&'a str>,
        pipelines: &'a [Pipeline],
    ) -> Result<Installation<'a>, ChangeError> {
        let question = InstallationQuestion {
            namespace,
            pipelines,
            are_all_pipelines: false,
            controller_namespace: self.controller_namespace.clone(),
            version: env!("CARGO_PKG_VERSION"),
            is_controller: matches!(self.people, People::ByToken(_)),
            clock_of: ClockOf::Api,
            user: Some(caller.name.clone()),
            is_through_hub: false,
            unidentified: None,
            is_bounded: true,
        };
        read_installation(&self.client_of(token)?, question).await.map_err(change_error)
    }

    async fn reconcile(
        &self,
        token: &str,
        namespace: &str,
        plan: ReconcilePlan,
    ) -> Result<Vec<RequestedObject>, ChangeError> {
        Ok(FluxRequests::new(self.client_of(token)?).reconcile(namespace, &plan).await)
    }

    async fn propose(
        &self,
        caller: &Caller,
        token: &str,
        proposal: FileProposal,
    ) -> Result<ProposedFile, ChangeError> {
        let client = self.client_of(token)?;
        would_write(client.clone(), &proposal).await?;
        for manifest in proposal.manifests.iter().filter(|manifest| manifest.is_on_hub) {
            would_create(client.clone(), manifest).await?;
        }
        let FileProposal { pipeline, yaml, edited, path, manifests, confirmation, .. } = proposal;
        let manifests = manifests.into_iter().map(|manifest| (manifest.path, manifest.yaml)).collect();
        let request = FileRequest { pipeline, manifest: yaml, edited, path, manifests, confirmation };
        self.git.proposals.propose(caller, request).await.map_err(|error| match error {
            ProposalError::Unusable(sentence) => ChangeError::Unusable(sentence),
            ProposalError::Failed(sentence) => ChangeError::Failed(sentence),
        })
    }
}

/// Makes sure that a person may create an object of Flux on the hub: the API server says so in a dry run.
async fn would_create(client: Client, manifest: &ProposedManifest) -> Result<(), ChangeError> {
    let unreadable = |error: serde_json::Error| ChangeError::Refused(error.to_string());
    let object: DynamicObject = serde_json::from_value(manifest.object.clone()).map_err(unreadable)?;
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or_default();
    // The version becomes a part of the address.
    let is_plain = version.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_plain || ![HELM_RELEASE.0, KUSTOMIZATION.0].contains(&group) {
        return Err(ChangeError::Unusable("the manifest is no HelmRelease or Kustomization of Flux".into()));
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.into()) };
    match api.create(&params, &object).await.map_err(change_error) {
        Ok(_) => Ok(()),
        Err(ChangeError::Refused(why)) => Err(ChangeError::Refused(format!(
            "the hub does not accept {} {namespace}/{} from you: {why}. If its file is in git already, mark the target so",
            types.kind,
            object.name_any()
        ))),
        Err(error) => Err(error),
    }
}

/// Makes sure that a person may write a Pipeline: the API server says so in a dry run, with all of RBAC, the rules of the CRD
/// and admission.
async fn would_write(client: Client, proposal: &FileProposal) -> Result<(), ChangeError> {
    let namespace = proposal.pipeline.namespace().unwrap_or_default();
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, &namespace, &ApiResource::erase::<Pipeline>(&()));
    let no_pipeline = |error: serde_json::Error| ChangeError::Refused(error.to_string());
    let mut object: DynamicObject = serde_json::from_value(proposal.object.clone()).map_err(no_pipeline)?;
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.into()) };
    let Some(edited) = &proposal.edited else {
        return api.create(&params, &object).await.map(drop).map_err(change_error);
    };
    let name = edited.name_any();
    for _ in 0..MAX_TRIES {
        let now = api.get(&name).await.map_err(change_error)?;
        let seen = |meta: &ObjectMeta| SeenObject::new(meta.uid.as_ref(), meta.generation);
        if seen(&now.metadata) != seen(&edited.metadata) {
            return Err(ChangeError::Conflict);
        }
        object.metadata.resource_version = now.resource_version();
        match api.replace(&name, &params, &object).await.map_err(change_error) {
            // The controller may have written the status in between.
            Err(ChangeError::Conflict) => {}
            other => return other.map(drop),
        }
    }
    Err(ChangeError::Conflict)
}

async fn patch<K>(client: Client, change: Change) -> Result<(), ChangeError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let Change { namespace, name, seen, spec, .. } = change;
    let api: Api<K> = Api::namespaced(client, &namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    for _ in 0..MAX_TRIES {
        let object = api.get(&name).await.map_err(change_error)?;
        if SeenObject::new(object.meta().uid.as_ref(), object.meta().generation) != seen {
            return Err(ChangeError::Conflict);
        }
        let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "spec": spec});
        match api.patch(&name, &params, &Patch::Merge(patch)).await.map_err(change_error) {
            // The controller may have written the status in between.
            Err(ChangeError::Conflict) => {}
            other => return other.map(drop),
        }
    }
    Err(ChangeError::Conflict)
}

fn change_error(error: kube::Error) -> ChangeError {
    match error {
        kube::Error::Api(status) if status.is_conflict() => ChangeError::Conflict,
        kube::Error::Api(status) if status.code < 500 => ChangeError::Refused(status.message.clone()),
        error => ChangeError::Unavailable(error.to_string()),
    }
}
