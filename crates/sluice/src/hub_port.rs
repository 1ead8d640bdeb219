//! Connects the API and the pages to the hub's API server and to the controller's loop.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::config::AuthInfo;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest, Sha256};
use sluice_api::snapshot::Snapshot;
use sluice_api::{Pipeline, Promotion};
use sluice_controller::access::AccessReviews;
use sluice_controller::{PlannedChanges, SnapshotReader};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::planned_change::PlannedChange;
use sluice_web::{Change, ChangeError, ChangedKind, Hub, SeenObject};

/// The field manager of changes that people make on the pages.
const FIELD_MANAGER: &str = "sluice-web";
/// How often a change is tried if the controller writes the object's status at the same time.
const MAX_TRIES: usize = 5;

/// The hub's API server and the controller's loop.
#[derive(Clone)]
pub struct HubPort {
    reviews: AccessReviews,
    snapshots: SnapshotReader,
    planned: PlannedChanges,
    people: People,
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
    pub fn new(hub: Client, config: &Config, snapshots: SnapshotReader, planned: PlannedChanges) -> Self {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        HubPort {
            reviews: AccessReviews::new(hub),
            snapshots,
            planned,
            people: People::ByToken(Box::new(anonymous)),
        }
    }

    /// Returns a port for the user of a client only, who shows a secret instead of a token.
    pub fn of_own_user(
        client: Client,
        user: String,
        secret: &str,
        snapshots: SnapshotReader,
        planned: PlannedChanges,
    ) -> Self {
        let user = Caller { name: user, ..Caller::default() };
        let reviews = AccessReviews::of_own_user(client.clone());
        HubPort { reviews, snapshots, planned, people: People::Own { client, user, secret: secret.into() } }
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
        self.planned.get(caller, pipeline, promotion).await
    }

    async fn change(&self, token: &str, change: Change) -> Result<(), ChangeError> {
        let client = self.client_of(token)?;
        match change.kind {
            ChangedKind::Pipeline => patch::<Pipeline>(client, change).await,
            ChangedKind::Promotion => patch::<Promotion>(client, change).await,
        }
    }
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
