//! Events in the form of Flux's controllers (`event.toolkit.fluxcd.io`, v1beta1 and v1).

use std::collections::BTreeMap;

use serde::Serialize;

/// The controller that reports the events.
pub(super) const REPORTER: &str = "sluice";
/// notification-controller passes on those keys that begin with the group of the object, without it.
pub(super) const PREFIX: &str = "pipelines.weave.works/";
pub(super) const API_VERSION: &str = "pipelines.weave.works/v1alpha1";

/// An event as Flux's controllers send it (`event.toolkit.fluxcd.io`, v1beta1 and v1).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FluxEvent<'a> {
    pub involved_object: Involved<'a>,
    pub severity: &'static str,
    pub timestamp: String,
    pub message: String,
    pub reason: &'a str,
    pub metadata: BTreeMap<String, String>,
    pub reporting_controller: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reporting_instance: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Involved<'a> {
    pub kind: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub api_version: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: &'a str,
}

/// Returns the name of the Pod that reports.
pub fn instance() -> Option<String> {
    std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty())
}
