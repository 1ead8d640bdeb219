//! The objects of Flux that start pipelines, however they were read.

use std::collections::BTreeMap;

use sluice_core::Time;
use sluice_core::fleet::ObjectKey;
use sluice_core::fleet::trigger_fact::TriggerFact;

/// The objects of Flux on one cluster.
pub type TriggerObjects = BTreeMap<ObjectKey, TriggerObject>;

/// An object of Flux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerObject {
    /// A Kustomization or HelmRelease.
    Applied(AppliedObject),
    /// A source of manifests or charts.
    Source(SourceObject),
    /// An ImagePolicy, ImageUpdateAutomation, Receiver, Alert or Provider.
    Trigger(TriggerFact),
}

/// What a Kustomization or HelmRelease applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedObject {
    /// The source of its manifests or its chart; `None` if it names none that Sluice reads.
    pub source: Option<ObjectKey>,
    /// The HelmChart that Flux made for it.
    pub chart: Option<ObjectKey>,
    /// The path of the manifests, or the name of the chart; empty if the source is the chart.
    pub content: String,
    /// The version of the chart, or a range of versions; `None` if it is not known.
    pub version: Option<String>,
    /// Of a HelmRelease, the Kustomization that made it.
    pub owner: Option<ObjectKey>,
    /// Why it does not work; empty if it does.
    pub problem: String,
}

/// What a source follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceObject {
    /// What Flux follows at the address, in words; empty if that is everything.
    pub follows: String,
    /// The address; empty for a source that is made from another one.
    pub address: String,
    /// The source that it is made from.
    pub made_from: Option<ObjectKey>,
    /// When Flux last fetched something new.
    pub fetched: Option<Time>,
    /// Why it does not work; empty if it does.
    pub problem: String,
}
