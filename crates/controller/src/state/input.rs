//! INTAKE. Everything that can set the loop in motion, as one kind of value, so that the loop has
//! one door; and what it takes from each of the hub's watches.

mod approvals;
mod clusters;
mod pipelines;
mod promotions;
mod unreadable;

use std::fmt;

use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use sluice_api::{GitopsCluster, Pipeline, Promotion};

use crate::act::Done;
use crate::hook::condition::Problem;
use crate::observe::facts::{ClusterEvent, ClusterKey, ObjectKey};
use crate::record::writer::{StatusOf, Written};
use crate::shard::{Standing, Turnover};
use crate::watch::limit::Ticket;
use crate::watch::stream::Seen;

/// Names a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PipelineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What sets the loop in motion.
#[allow(clippy::large_enum_variant, reason = "most of them are Promotions, and they are moved, not kept")]
#[derive(Debug)]
pub enum Input {
    /// Pipelines on the hub.
    Pipelines(Seen<Pipeline>),
    /// Promotions on the hub.
    Promotions(Seen<Promotion>),
    /// GitopsClusters on the hub; `None` while it has no such kind.
    Clusters(Option<Seen<GitopsCluster>>),
    /// Something happened on a cluster; the number tells which session with it says so. The ticket bounds
    /// how many events of one cluster wait here.
    Cluster(ClusterKey, u64, ClusterEvent, Ticket),
    /// A word about an object of a cluster has waited long enough.
    Stood(ClusterKey, ObjectKey, u64),
    /// A status was written, or was not; the number tells which write says so.
    Written(StatusOf, u64, Written),
    /// Flux has called about a pipeline: its targets may have changed.
    Called(PipelineKey),
    /// The Secrets with hook keys of a pipeline were read: what is wrong with them.
    HookSecret(PipelineKey, Option<Problem>),
    /// The record of a new promotion was written, or was not; or it was read, where another try has left it.
    Created(PipelineKey, String, Result<Option<Box<Promotion>>, kube::Error>),
    /// A side effect has ended.
    Done(Box<Done>),
    /// A shard comes or goes.
    Shards(Turnover),
    /// Why the API server does not check who approves; `None` while it does.
    ApprovalPolicy(Option<String>),
    /// What the last holders of shards have left.
    Standing(Box<Standing>),
}

/// The key of a pipeline.
fn key_of(object: &Pipeline) -> PipelineKey {
    named(object.meta())
}

/// The namespace and name that an object has.
pub(crate) fn named(metadata: &ObjectMeta) -> PipelineKey {
    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
    PipelineKey { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
}

/// The key of a promotion's pipeline.
pub(crate) fn pipeline_of(object: &Promotion) -> PipelineKey {
    PipelineKey { namespace: object.namespace().unwrap_or_default(), name: object.spec.pipeline.clone() }
}

/// Whether a list is of an earlier time than the one before it, whose version it replaces. So it is when a
/// server was restored from a backup.
fn went_back(listed_at: &mut u64, version: u64) -> bool {
    std::mem::replace(listed_at, version) > version
}

/// The version of an object as a number: later ones are greater (KEP-5504 says so of every API
/// server). 0 where there is none.
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}
