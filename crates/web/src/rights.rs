//! What a person may see and do with Pipelines and Promotions.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt};
use sluice_api::Promotion;
use sluice_core::access::{AccessError, Caller, Right};

use crate::hub::Hub;

/// The API group of Pipelines and Promotions.
const GROUP: &str = "pipelines.weave.works";
/// How many questions about rights are asked at a time for one request, a quarter of what is asked for all callers.
const CONCURRENT: usize = 4;

/// The right to get all objects of a kind.
pub(crate) fn kind(resource: &str) -> Right {
    Right::all(GROUP, resource)
}

/// Returns whether a person may see a pipeline: who may get the Pipeline and its Promotions.
pub(crate) async fn may_see<H: Hub>(
    hub: &H,
    caller: &Caller,
    namespace: &str,
    name: &str,
) -> Result<bool, AccessError> {
    let pipeline = kind("pipelines").within(namespace);
    Ok(hub.allows(caller, &kind("promotions").within(namespace)).await?
        && (hub.allows(caller, &pipeline).await? || hub.allows(caller, &pipeline.named(name)).await?))
}

/// Returns the right that a person lacks to do something with the Pipelines of a namespace, or with one of them.
pub(crate) async fn missing_pipeline_right<H: Hub>(
    hub: &H,
    caller: &Caller,
    verb: &str,
    (namespace, name): (&str, Option<&str>),
) -> Result<Option<String>, AccessError> {
    let right = kind("pipelines").to(verb).within(namespace);
    let (right, of) = match name {
        Some(name) => (right.named(name), format!("/{name}")),
        None => (right, String::new()),
    };
    let allowed = hub.allows(caller, &right).await?;
    Ok((!allowed).then(|| format!("the right to {verb} pipelines{of} in namespace {namespace}")))
}

/// The namespaces in which a person has certain rights.
pub(crate) enum Namespaces {
    All,
    Some(BTreeSet<String>),
}

impl Namespaces {
    /// Returns in which of these namespaces a person may see pipelines.
    pub(crate) async fn to_see<H: Hub>(
        hub: &H,
        caller: &Caller,
        all: BTreeSet<String>,
    ) -> Result<Namespaces, AccessError> {
        Namespaces::with(hub, caller, all, &[kind("pipelines"), kind("promotions")]).await
    }

    /// Returns in which of these namespaces a person may create pipelines.
    pub(crate) async fn to_create_in<H: Hub>(
        hub: &H,
        caller: &Caller,
        all: BTreeSet<String>,
    ) -> Result<Namespaces, AccessError> {
        Namespaces::with(hub, caller, all, &[kind("pipelines").to("create")]).await
    }

    async fn with<H: Hub>(
        hub: &H,
        caller: &Caller,
        all: BTreeSet<String>,
        rights: &[Right],
    ) -> Result<Namespaces, AccessError> {
        if has_all(hub, caller, rights.iter().cloned()).await? {
            return Ok(Namespaces::All);
        }
        let asked = all.into_iter().map(async |namespace| {
            let within = rights.iter().map(|right| right.clone().within(&namespace));
            Ok(has_all(hub, caller, within).await?.then_some(namespace))
        });
        let allowed: Vec<Option<String>> =
            futures::stream::iter(asked).buffer_unordered(CONCURRENT).try_collect().await?;
        Ok(Namespaces::Some(allowed.into_iter().flatten().collect()))
    }

    /// Whether the person has the rights in a namespace.
    pub(crate) fn contains(&self, namespace: &str) -> bool {
        match self {
            Namespaces::All => true,
            Namespaces::Some(namespaces) => namespaces.contains(namespace),
        }
    }

    /// Whether the person has the rights nowhere.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Namespaces::Some(namespaces) if namespaces.is_empty())
    }
}

/// Returns whether a caller has all of these rights.
async fn has_all<H: Hub>(
    hub: &H,
    caller: &Caller,
    rights: impl Iterator<Item = Right>,
) -> Result<bool, AccessError> {
    for right in rights {
        if !hub.allows(caller, &right).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For each action that a person may not take on an object, the right that is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct MissingRights(BTreeMap<(String, &'static str), String>);

impl MissingRights {
    /// Asks about an object.
    pub(crate) async fn ask<H: Hub>(
        &mut self,
        hub: &H,
        caller: &Caller,
        (resource, namespace, name): (&str, &str, &str),
        verbs: &[&'static str],
    ) -> Result<(), AccessError> {
        for verb in verbs {
            let right = kind(resource).to(verb).within(namespace).named(name);
            if !hub.allows(caller, &right).await? {
                let missing = format!("the right to {verb} {resource}/{name} in namespace {namespace}");
                self.0.insert((name.into(), *verb), missing);
            }
        }
        Ok(())
    }

    /// Asks what a person may do with a promotion.
    pub(crate) async fn ask_promotion<H: Hub>(
        &mut self,
        hub: &H,
        caller: &Caller,
        promotion: &Promotion,
    ) -> Result<(), AccessError> {
        let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
        let name = promotion.metadata.name.as_deref().unwrap_or_default();
        self.ask(hub, caller, ("promotions", namespace, name), &["patch", "approve", "retry"]).await
    }

    /// Returns which of these rights on an object is missing.
    pub(crate) fn of(&self, name: &str, verbs: &[&'static str]) -> Option<&str> {
        verbs.iter().find_map(|verb| self.0.get(&(name.to_string(), *verb))).map(String::as_str)
    }
}
