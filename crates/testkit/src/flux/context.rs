//! The state that all controllers of one stand-in share.

use super::checkout::Checkouts;
use super::options::FluxOptions;
use super::remote::{GitCredentials, Remotes};
use super::requested_failures::RequestedFailures;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct StandInContext {
    pub client: Client,
    pub options: FluxOptions,
    pub failures: Arc<RequestedFailures>,
    pub remotes: Remotes,
    pub checkouts: Arc<Checkouts>,
    /// The last attempt at each object, by its UID.
    attempts: Mutex<HashMap<String, String>>,
    /// The objects that each Kustomization applied last, by its UID.
    applied: Mutex<HashMap<String, Vec<Applied>>>,
}

/// A manifest, and the applied object.
type Applied = (Value, DynamicObject);

impl StandInContext {
    pub fn new(
        client: Client,
        options: FluxOptions,
        failures: Arc<RequestedFailures>,
        checkouts: Arc<Checkouts>,
    ) -> Result<StandInContext> {
        let remotes = Remotes::new(options.git_poll)?;
        let (attempts, applied) = Default::default();
        Ok(StandInContext { client, options, failures, remotes, checkouts, attempts, applied })
    }

    pub fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// The objects of a kind to reconcile.
    pub fn watched(&self, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.options.namespace {
            Some(namespace) => self.api(resource, namespace),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Returns true if this was the last attempt at an object. The watch also delivers the stand-in's own writes, and old
    /// events after new ones: without this check, every failure would be repeated for ever.
    pub fn is_attempted(&self, object: &DynamicObject, attempt: &str) -> bool {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(&object.uid().unwrap_or_default()).is_some_and(|last| last == attempt)
    }

    pub fn record_attempt(&self, object: &DynamicObject, attempt: &str) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.insert(object.uid().unwrap_or_default(), attempt.to_owned());
    }

    /// Takes the objects that a Kustomization applied last. The caller stores the new ones.
    pub fn take_applied(&self, kustomization: &DynamicObject) -> Vec<Applied> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.remove(&kustomization.uid().unwrap_or_default()).unwrap_or_default()
    }

    pub fn store_applied(&self, kustomization: &DynamicObject, objects: Vec<Applied>) {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.insert(kustomization.uid().unwrap_or_default(), objects);
    }

    /// Returns the source of a `sourceRef` or `chartRef`, if it exists.
    pub async fn source(&self, reference: &Value, namespace: &str) -> Result<Option<DynamicObject>> {
        let kind = reference["kind"].as_str().unwrap_or("GitRepository");
        let namespace = reference["namespace"].as_str().unwrap_or(namespace);
        let name = reference["name"].as_str().context("the reference to the source has no name")?;
        Ok(self.api(&super::kind::source(kind), namespace).get_opt(name).await?)
    }

    /// Returns user and password of a source with a Secret.
    pub async fn credentials(&self, source: &DynamicObject) -> Result<Option<GitCredentials>> {
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
        Ok(Some(GitCredentials { user: field("username"), password: field("password") }))
    }
}
