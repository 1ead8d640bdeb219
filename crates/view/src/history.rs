//! What was promoted into the environments of a pipeline, the newest first.

use std::borrow::Borrow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::promotion::{Phase, Promotion};
use sluice_core::Time;

/// One promotion of the past or present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The Promotion's name.
    pub name: String,
    /// The environment, or `environment/target`.
    pub environment: String,
    /// The promoted revision.
    pub revision: String,
    /// The revision that the environment ran before; empty if that was not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// How the promotion ended, or its phase now.
    pub phase: Phase,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When it got into its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Who approved or rejected it; empty if nobody did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The change request, or the commit; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub delivered_as: String,
    /// What it waited for or why it ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Returns the promotions of a pipeline, the newest first; only those that change `environment` (or `environment/target`)
/// if one is named.
pub fn history<P: Borrow<Promotion>>(
    pipeline: &str,
    environment: Option<&str>,
    promotions: &[P],
) -> Vec<Entry> {
    let is_wanted = |p: &&Promotion| {
        p.spec.pipeline == pipeline && environment.is_none_or(|environment| p.spec.changes(environment))
    };
    let mut wanted: Vec<&Promotion> = promotions.iter().map(Borrow::borrow).filter(is_wanted).collect();
    wanted.sort_by_cached_key(|p| {
        let created = p.metadata.creation_timestamp.as_ref().map(|time| time.0);
        std::cmp::Reverse((created, p.spec.sequence, p.metadata.name.clone()))
    });
    wanted.into_iter().map(entry).collect()
}

/// Returns one promotion.
pub(crate) fn entry(promotion: &Promotion) -> Entry {
    let (spec, status) = (&promotion.spec, promotion.status.clone().unwrap_or_default());
    let by = match (status.phase, &spec.rejection, &status.approval) {
        (Phase::Rejected, Some(rejection), _) => rejection.by.clone(),
        (_, _, Some(approval)) => approval.by.clone(),
        _ => status.key_approval.as_ref().map(|approval| approval.by()).unwrap_or_default(),
    };
    let request = status.change_request.as_ref().map(|request| request.url.clone());
    let commit = status.commit.as_ref().map(|commit| commit.chars().take(8).collect());
    Entry {
        name: promotion.metadata.name.clone().unwrap_or_default(),
        environment: spec.place(),
        revision: spec.revision.clone(),
        replaces: spec.replaces.clone(),
        phase: status.phase,
        started: promotion.metadata.creation_timestamp.as_ref().map(|time| Time::exact(time.0)),
        since: status.entered(status.phase),
        by,
        delivered_as: request.or(commit).unwrap_or_default(),
        message: status.message,
    }
}
