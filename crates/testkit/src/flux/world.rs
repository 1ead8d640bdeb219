//! What all parts of one stand-in share.

use super::checkout::Checkouts;
use super::fault::Faults;
use super::options::Options;
use super::remote::{Credentials, Remotes};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct World {
    pub client: Client,
    pub options: Options,
    pub faults: Arc<Faults>,
    pub remotes: Remotes,
    pub checkouts: Arc<Checkouts>,
    attempts: Mutex<HashMap<String, String>>,
    applied: Mutex<HashMap<String, Vec<Applied>>>,
}

/// What an object was applied as, and what came of it.
type Applied = (Value, DynamicObject);

impl World {
    pub fn new(
        client: Client,
        options: Options,
        faults: Arc<Faults>,
        checkouts: Arc<Checkouts>,
    ) -> Result<World> {
        let remotes = Remotes::new(options.git_poll)?;
        let (attempts, applied) = Default::default();
        Ok(World { client, options, faults, remotes, checkouts, attempts, applied })
    }

    pub fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// The objects of a kind that this stand-in looks after.
    pub fn watched(&self, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.options.namespace {
            Some(namespace) => self.api(resource, namespace),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Whether this very thing was tried for an object already. A watch tells of our own writes,
    /// and of old ones after new ones: without this every failure would be tried for ever.
    pub fn tried(&self, object: &DynamicObject, what: &str) -> bool {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(&object.uid().unwrap_or_default()).is_some_and(|last| last == what)
    }

    pub fn note(&self, object: &DynamicObject, what: &str) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.insert(object.uid().unwrap_or_default(), what.to_owned());
    }

    /// What a Kustomization has applied last; whoever takes it brings something in its place.
    pub fn take_applied(&self, by: &DynamicObject) -> Vec<Applied> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.remove(&by.uid().unwrap_or_default()).unwrap_or_default()
    }

    pub fn keep_applied(&self, by: &DynamicObject, objects: Vec<Applied>) {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.insert(by.uid().unwrap_or_default(), objects);
    }

    /// The source that a `sourceRef` or `chartRef` names, if it is there.
    pub async fn source(&self, reference: &Value, namespace: &str) -> Result<Option<DynamicObject>> {
        let kind = reference["kind"].as_str().unwrap_or("GitRepository");
        let namespace = reference["namespace"].as_str().unwrap_or(namespace);
        let name = reference["name"].as_str().context("a reference to a source without a name")?;
        Ok(self.api(&super::kind::source(kind), namespace).get_opt(name).await?)
    }

    /// User and password for a source, where it names a Secret.
    pub async fn credentials(&self, source: &DynamicObject) -> Result<Option<Credentials>> {
        let Some(name) = source.data["spec"]["secretRef"]["name"].as_str() else { return Ok(None) };
        let namespace = source.namespace().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = secrets.get_opt(name).await?.with_context(|| {
            format!("failed to get secret '{namespace}/{name}': secrets \"{name}\" not found")
        })?;
        let field = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.map(|b| String::from_utf8_lossy(&b.0).into_owned()).unwrap_or_default()
        };
        Ok(Some(Credentials { user: field("username"), password: field("password") }))
    }
}
