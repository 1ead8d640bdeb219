//! The observed state of targets: the members of each, the workloads that they made, and their health. A target that
//! could not be read is recorded with the error, and is never healthy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fleet::Kind;
use crate::pipeline::Pipeline;
use crate::repository::Repository;
use crate::revision::{Facet, FacetKey, Revision, text_len};
use crate::time::Time;
use crate::tracks::{DefaultFacet, Track};

/// The health of a workload, in the words of Flux, from best to worst.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Health {
    /// The workload runs the wanted state and is healthy.
    Ready,
    /// The workload is being updated.
    Progressing,
    /// Flux does not reconcile the workload, because a person suspended it.
    Suspended,
    /// Flux has not reconciled the workload yet.
    Pending,
    /// The last reconciliation failed.
    Failed,
    /// The workload could not be read. It never counts as healthy.
    #[default]
    Unknown,
}

impl fmt::Display for Health {
    /// Writes the word as in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The longest revision, in bytes of its text. Each promotion stores its revision, and a pipeline has hundreds of promotions.
pub const MAX_REVISION_LEN: usize = 32 << 10;

/// The observed targets of a pipeline, by environment and target name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedTargets {
    targets: BTreeMap<String, BTreeMap<String, ObservedTarget>>,
}

/// The observed state of one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedTarget {
    /// Why the target could not be read, and what to do. The members of such a target prove nothing.
    pub error: Option<String>,
    /// True if there is nothing of the pipeline at the target: it was read, and no member was found.
    pub is_empty: bool,
    /// The Kustomizations and HelmReleases that belong to the target. Targets of one place share them.
    pub members: Vec<Arc<Member>>,
}

/// A Kustomization or HelmRelease that belongs to a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Kustomization or HelmRelease.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The health of the member. It includes the workloads that the member made, if its own condition does not.
    pub health: Health,
    /// The message of its condition if it is not Ready.
    pub message: String,
    /// Why Flux applies no new state to a member that is Ready, because a Kustomization that applies it, or a source, is not.
    pub not_applied: Option<String>,
    /// When its health last changed, as Flux wrote the time.
    pub since: Option<Time>,
    /// The version to show for the member.
    pub version: String,
    /// The facets of the state that Flux will not retry, because Helm has given up on it; only those that are certain.
    /// Empty if Helm has not given up.
    pub gave_up: BTreeMap<Facet, String>,
    /// The facets that the member runs now.
    pub facets: BTreeMap<Facet, String>,
    /// The facet that makes its revision if the pipeline has no `tracks`.
    pub default_facet: DefaultFacet,
    /// The repository and branch that its manifests come from.
    pub source: Option<Repository>,
    /// The workloads that the member made.
    pub workloads: Vec<MadeWorkload>,
}

/// A workload that a member made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeWorkload {
    /// Deployment, StatefulSet, DaemonSet or CronJob.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The health of the workload.
    pub health: Health,
    /// The message of its condition if it is not Ready.
    pub message: String,
    /// The images of its containers.
    pub images: Vec<String>,
}

impl ObservedTargets {
    /// Adds the observed state of a target, in place of an earlier one.
    pub fn insert(&mut self, environment: &str, target: &str, shown: ObservedTarget) {
        self.targets.entry(environment.into()).or_default().insert(target.into(), shown);
    }

    /// Returns the observed state of a target, if it was observed.
    pub fn target(&self, environment: &str, target: &str) -> Option<&ObservedTarget> {
        self.targets.get(environment)?.get(target)
    }
}

impl MadeWorkload {
    /// Returns about how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let images = self.images.iter().map(|image| size_of::<String>() + image.len()).sum::<usize>();
        size_of::<Self>() + self.kind.len() + self.name.len() + self.message.len() + images
    }
}

impl Member {
    /// Returns about how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let facets = |facets: &BTreeMap<Facet, String>| -> usize {
            let of = |(facet, value): (&Facet, &String)| {
                size_of_val(facet) + 2 * size_of::<String>() + value.len()
            };
            facets.iter().map(of).sum()
        };
        let texts: usize =
            [&self.kind, &self.name, &self.message, &self.version].map(String::len).iter().sum();
        let texts = texts + self.not_applied.as_ref().map_or(0, String::len);
        let workloads: usize = self.workloads.iter().map(MadeWorkload::bytes).sum();
        size_of::<Self>() + texts + facets(&self.facets) + facets(&self.gave_up) + workloads
    }

    /// Returns the facets that make the member's revision: those that the pipeline tracks, or the default one.
    fn tracked(&self, tracks: &[Track]) -> BTreeMap<Facet, String> {
        let pick = |wanted: &dyn Fn(&Facet) -> bool| -> BTreeMap<Facet, String> {
            self.facets.iter().filter(|(f, _)| wanted(f)).map(|(f, v)| (f.clone(), v.clone())).collect()
        };
        if !tracks.is_empty() {
            return pick(&|f| tracks.iter().any(|t| t.admits(f)));
        }
        let order: [&dyn Fn(&Facet) -> bool; 2] = match self.default_facet {
            DefaultFacet::Chart => [&|f| *f == Facet::Chart, &|_| false],
            DefaultFacet::Artifact => [&|f| *f == Facet::Tag, &|f| *f == Facet::Digest],
            DefaultFacet::Images => [&|f| matches!(f, Facet::Image(_)), &|f| *f == Facet::Source],
        };
        order.iter().map(|wanted| pick(wanted)).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

impl ObservedTarget {
    /// Returns a target with these members.
    pub fn of(members: Vec<Arc<Member>>) -> Self {
        Self { members, ..Self::default() }
    }

    /// Returns a target that could not be read, with the error.
    pub fn unreadable(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// Returns a target that has no members, with what to do.
    pub fn empty(error: impl Into<String>) -> Self {
        Self { is_empty: true, ..Self::unreadable(error) }
    }

    /// Returns the target; a target whose revision is too long to be promoted could not be read.
    pub fn with_limited_revision(self, tracks: &[Track]) -> Self {
        let len_of = |member: &Member| -> usize {
            let of = |(facet, value): (&Facet, &String)| text_len(&member.kind, &member.name, facet, value);
            member.facets.iter().map(of).sum()
        };
        // Only few targets have so many facets that their revision must be made.
        let may_be_long = self.members.iter().map(|member| len_of(member)).sum::<usize>() > MAX_REVISION_LEN;
        let revision = if may_be_long { self.revision(tracks) } else { None };
        match revision.filter(|revision| revision.text_len() > MAX_REVISION_LEN) {
            Some(revision) => Self::unreadable(format!(
                "its revision is too long: {} values with {} KiB, and at most {} KiB are promoted; name what decides in \
                 spec.tracks, such as source, or give the pipeline fewer objects",
                revision.facets().count(),
                revision.text_len() >> 10,
                MAX_REVISION_LEN >> 10,
            )),
            None => self,
        }
    }

    /// Returns about how many bytes of memory it takes if it shares no members with others.
    pub fn bytes(&self) -> usize {
        let error = self.error.as_ref().map_or(0, String::len);
        size_of::<Self>() + error + self.members.iter().map(|member| member.bytes()).sum::<usize>()
    }

    /// Returns the worst health of its members, or Unknown if the target could not be read or has no members.
    pub fn health(&self) -> Health {
        if self.error.is_some() {
            return Health::Unknown;
        }
        self.members.iter().map(|m| m.health).max().unwrap_or(Health::Unknown)
    }

    /// Returns the revision that the target runs, healthily or not. `None` if it is not completely known: the target
    /// could not be read, has no members, or no member has a facet that the pipeline tracks.
    pub fn revision(&self, tracks: &[Track]) -> Option<Revision> {
        if self.error.is_some() {
            return None;
        }
        let mut facets = BTreeMap::new();
        for member in &self.members {
            let own = member.tracked(tracks);
            if own.is_empty() && tracks.is_empty() {
                return None;
            }
            for (facet, value) in own {
                let (kind, name) = (member.kind.clone(), member.name.clone());
                facets.insert(FacetKey { kind, name, facet }, value);
            }
        }
        let complete = tracks.iter().all(|t| facets.keys().any(|k: &FacetKey| t.admits(&k.facet)));
        complete.then(|| Revision::new(facets)).flatten()
    }

    /// Returns the revision that the target runs now, if the target could be read and every member is Ready.
    pub fn proves(&self, tracks: &[Track]) -> Option<Revision> {
        (self.health() == Health::Ready).then(|| self.revision(tracks)).flatten()
    }

    /// Returns why the target is not Ready, as a sentence; empty if it is Ready.
    pub fn complaint(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        match self.members.iter().filter(|m| m.health != Health::Ready).max_by_key(|m| m.health) {
            Some(worst) => format!("{}/{} is {}: {}", worst.kind, worst.name, worst.health, worst.message),
            None if self.members.is_empty() => "it has no members".into(),
            None => String::new(),
        }
    }

    /// Returns why Flux applies no new state to a member that is Ready; `None` if nothing is known to be wrong.
    pub fn not_applied(&self) -> Option<&str> {
        self.members.iter().find_map(|member| member.not_applied.as_deref())
    }

    /// Returns true if it is unknown what the target runs, because it could not be read.
    pub fn is_unknown(&self) -> bool {
        self.error.is_some() && !self.is_empty
    }

    /// Returns true if the state of a member is unknown, because no report about it has arrived.
    pub fn has_said_nothing(&self) -> bool {
        self.error.is_none()
            && self.members.iter().any(|m| m.health == Health::Unknown && m.facets.is_empty())
    }

    /// Returns the kinds and names of its members.
    pub fn workloads(&self) -> BTreeSet<(&str, &str)> {
        self.members.iter().map(|m| (m.kind.as_str(), m.name.as_str())).collect()
    }
}

/// Returns true if a revision has the facets that the pipeline tracks now. A revision that was proven before the owner
/// changed `tracks` may not.
pub fn is_tracked(pipeline: &Pipeline, revision: &Revision) -> bool {
    revision.facets().all(|(key, _)| {
        if pipeline.tracks.is_empty() {
            (key.kind == Kind::HelmRelease.name()) == (key.facet == Facet::Chart)
        } else {
            pipeline.tracks.iter().any(|t| t.admits(&key.facet))
        }
    })
}
