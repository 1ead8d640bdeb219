//! Requests to Flux to reconcile an object now. Commands and the API make them, both with the rights of the caller.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::ApiGroup;
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_api::flux::{Source, SourceSpec};
use sluice_core::fleet::Kind;
use sluice_core::repository::Repository;
use sluice_view::object_name::FluxName;
use sluice_view::reconcile::{ReconcilePlan, RequestedObject, group, source_of};

use crate::served_kind::most_stable;

/// The annotation that requests a reconciliation. Any change of its value does
/// ([annotations.go](https://github.com/fluxcd/pkg/blob/main/apis/meta/annotations.go)).
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
/// The field manager with which Flux's documentation sets the annotation.
const FIELD_MANAGER: &str = "flux-client-side-apply";

/// Why an object was not requested.
#[derive(Debug)]
pub enum FluxRequestError {
    /// The cluster does not serve the kind.
    NotInstalled(String),
    /// There is no such object.
    Missing,
    /// Flux ignores the request while the object is suspended.
    Suspended,
    /// The API server has refused it, or did not answer.
    Api(kube::Error),
}

impl fmt::Display for FluxRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FluxRequestError::NotInstalled(kind) => {
                write!(f, "this cluster has no kind {kind}: is Flux installed?")
            }
            FluxRequestError::Missing => f.write_str("it does not exist"),
            FluxRequestError::Suspended => f.write_str("it is suspended"),
            FluxRequestError::Api(kube::Error::Api(status)) => f.write_str(&status.message),
            FluxRequestError::Api(error) => write!(f, "the API server did not answer: {error}"),
        }
    }
}

impl std::error::Error for FluxRequestError {}

impl From<kube::Error> for FluxRequestError {
    fn from(error: kube::Error) -> Self {
        FluxRequestError::Api(error)
    }
}

/// An object of Flux as it was read.
pub struct ReadObject {
    /// Its name.
    pub named: FluxName,
    /// The objects of its kind and namespace, in the version that the API server serves.
    pub api: Api<DynamicObject>,
    /// The object.
    pub object: DynamicObject,
}

/// Requests with one client.
pub struct FluxRequests {
    client: Client,
    groups: HashMap<&'static str, ApiGroup>,
}

impl FluxRequests {
    /// Returns requests in the name of a client's user.
    pub fn new(client: Client) -> Self {
        FluxRequests { client, groups: HashMap::new() }
    }

    /// Requests everything that a plan names, sources first, and says what became of each. `namespace` is that of the
    /// pipeline.
    pub async fn reconcile(&mut self, namespace: &str, plan: &ReconcilePlan) -> Vec<RequestedObject> {
        let mut items = Vec::new();
        let mut sources = self.followers(&plan.repositories, namespace).await.unwrap_or_default();
        let mut objects = Vec::new();
        for named in &plan.here {
            match self.read(named).await {
                Ok(read) => {
                    sources.extend(source_of(named, &read.object.data["spec"]));
                    objects.push(read);
                }
                Err(error) => items.push(requested(named, &error.to_string())),
            }
        }
        let token = Timestamp::now().to_string();
        for named in sources {
            let asked = match self.read(&named).await {
                Ok(read) => read.request(&token).await,
                Err(error) => Err(error),
            };
            items.push(requested(&named, &asked.err().map(|error| error.to_string()).unwrap_or_default()));
        }
        for read in objects {
            let asked = read.request(&token).await;
            items.push(requested(
                &read.named,
                &asked.err().map(|error| error.to_string()).unwrap_or_default(),
            ));
        }
        items
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When there is no such object or kind, or the API server refuses it.
    pub async fn read(&mut self, named: &FluxName) -> Result<ReadObject, FluxRequestError> {
        let resource = self.served(&named.kind).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &named.namespace, &resource);
        let object = api.get_opt(&named.name).await?.ok_or(FluxRequestError::Missing)?;
        Ok(ReadObject { named: named.clone(), api, object })
    }

    /// Returns the GitRepositories that follow these branches, in all namespaces, or in one if the user may not list
    /// those of all.
    ///
    /// # Errors
    /// When the user may not list GitRepositories, or the API server does not answer.
    pub async fn followers(
        &mut self,
        repositories: &[Repository],
        namespace: &str,
    ) -> Result<BTreeSet<FluxName>, FluxRequestError> {
        let kind = Kind::GitRepository;
        if repositories.is_empty() {
            return Ok(BTreeSet::new());
        }
        let resource = match self.served(kind.name()).await {
            Err(FluxRequestError::NotInstalled(_)) => return Ok(BTreeSet::new()),
            served => served?,
        };
        let all: Api<Source> = Api::all_with(self.client.clone(), &resource);
        let listed = match all.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let here: Api<Source> = Api::namespaced_with(self.client.clone(), namespace, &resource);
                here.list(&ListParams::default()).await?
            }
            listed => listed?,
        };
        let follows = |spec: &SourceSpec| {
            let followed = Repository { url: spec.address(kind), branch: spec.branch(kind) };
            repositories.iter().any(|repository| repository.is_same(&followed))
        };
        let found = listed.items.into_iter().filter(|source| follows(&source.spec) && !source.spec.suspend);
        Ok(found
            .map(|source| FluxName {
                kind: kind.name().into(),
                namespace: source.namespace().unwrap_or_default(),
                name: source.name_any(),
            })
            .collect())
    }

    /// Returns the version of a kind that the API server serves.
    async fn served(&mut self, kind: &str) -> Result<ApiResource, FluxRequestError> {
        let not_installed = || FluxRequestError::NotInstalled(kind.into());
        let name = group(kind).ok_or_else(not_installed)?;
        if !self.groups.contains_key(name) {
            match kube::discovery::group(&self.client, name).await {
                Err(kube::Error::Discovery(_)) => return Err(not_installed()),
                served => drop(self.groups.insert(name, served?)),
            }
        }
        let served = self.groups.get(name).and_then(|group| most_stable(group, kind));
        served.ok_or_else(not_installed)
    }
}

fn requested(FluxName { kind, namespace, name }: &FluxName, problem: &str) -> RequestedObject {
    RequestedObject {
        kind: kind.clone(),
        namespace: namespace.clone(),
        name: name.clone(),
        problem: problem.into(),
    }
}

impl ReadObject {
    /// Requests a reconciliation, unless Flux would ignore it.
    ///
    /// # Errors
    /// When the object is suspended, or the API server refuses it.
    pub async fn request(&self, token: &str) -> Result<(), FluxRequestError> {
        if self.object.data["spec"]["suspend"] == true {
            return Err(FluxRequestError::Suspended);
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = json!({"metadata": {"annotations": {REQUESTED_AT: token}}});
        self.api.patch(&self.object.name_any(), &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
}
