//! What was observed: for each target its members, what they made, and how they do. A target that
//! could not be read is a fact too, and never a healthy one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{Pipeline, Repository, Track};
use crate::revision::{Facet, FacetKey, Revision};

/// Flux's own words for how a workload does, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Runs what it should, healthily.
    Ready,
    /// On its way.
    Progressing,
    /// Flux leaves it alone.
    Suspended,
    /// Not looked at by Flux yet.
    Pending,
    /// Went wrong.
    Failed,
    /// Could not be read.
    Unknown,
}

impl fmt::Display for Health {
    /// Writes Flux's word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// All targets of a pipeline, by environment and target name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    targets: BTreeMap<(String, String), Target>,
}

/// What one target showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Why it could not be read, and what to do. What else is known of it then proves nothing.
    pub error: Option<String>,
    /// Its members.
    pub members: Vec<Member>,
}

/// A Kustomization or HelmRelease that belongs to a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Kustomization or HelmRelease.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// How it does, what it made included where its own word does not cover that.
    pub health: Health,
    /// What it says when it is not Ready.
    pub message: String,
    /// When its health last changed, as Flux wrote it.
    pub since: Option<String>,
    /// The version to show for it.
    pub version: String,
    /// The facets of the state that Flux will not try again, since Helm has given up on it; only those that are
    /// certain. Empty if Helm has not given up.
    pub gave_up: BTreeMap<Facet, String>,
    /// Every facet that can be read of it now.
    pub facets: BTreeMap<Facet, String>,
    /// Which facet stands for it where the pipeline does not say.
    pub natural: Natural,
    /// The git branch its manifests come from.
    pub source: Option<Repository>,
    /// What it made: Deployments and their kin.
    pub made: Vec<Made>,
}

/// What makes a member's revision by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Natural {
    /// A HelmRelease: its chart's version.
    Chart,
    /// A Kustomization from an OCI artifact: the tag, else the digest.
    Artifact,
    /// A Kustomization from git: the images, else the source's revision.
    Images,
}

/// A workload that a member made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Deployment, StatefulSet, DaemonSet or CronJob.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// How it does.
    pub health: Health,
    /// What it says when it is not Ready.
    pub message: String,
    /// The images it runs.
    pub images: Vec<String>,
}

impl World {
    /// Adds what a target showed.
    pub fn insert(&mut self, environment: &str, target: &str, shown: Target) {
        self.targets.insert((environment.into(), target.into()), shown);
    }

    /// What a target showed; nothing for one that was not looked at.
    pub fn target(&self, environment: &str, target: &str) -> Option<&Target> {
        self.targets.get(&(environment.into(), target.into()))
    }
}

impl Member {
    /// The facets that make its revision: those that the pipeline tracks, or its natural one.
    fn tracked(&self, tracks: &[Track]) -> BTreeMap<Facet, String> {
        let pick = |wanted: &dyn Fn(&Facet) -> bool| -> BTreeMap<Facet, String> {
            self.facets.iter().filter(|(f, _)| wanted(f)).map(|(f, v)| (f.clone(), v.clone())).collect()
        };
        if !tracks.is_empty() {
            return pick(&|f| tracks.iter().any(|t| t.admits(f)));
        }
        let order: [&dyn Fn(&Facet) -> bool; 2] = match self.natural {
            Natural::Chart => [&|f| *f == Facet::Chart, &|_| false],
            Natural::Artifact => [&|f| *f == Facet::Tag, &|f| *f == Facet::Digest],
            Natural::Images => [&|f| matches!(f, Facet::Image(_)), &|f| *f == Facet::Source],
        };
        order.iter().map(|wanted| pick(wanted)).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

impl Target {
    /// A target that could not be read.
    pub fn unreadable(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), members: Vec::new() }
    }

    /// The worst health of its members; Unknown where it could not be read or has none.
    pub fn health(&self) -> Health {
        if self.error.is_some() {
            return Health::Unknown;
        }
        self.members.iter().map(|m| m.health).max().unwrap_or(Health::Unknown)
    }

    /// What it runs, healthily or not. `None` where that is not known whole: it could not be read,
    /// has no members, or a facet that the pipeline tracks is nowhere to be seen.
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

    /// The revision that it proves now: it could be read, and every member is Ready.
    pub fn proves(&self, tracks: &[Track]) -> Option<Revision> {
        (self.health() == Health::Ready).then(|| self.revision(tracks)).flatten()
    }

    /// Why it is not Ready, in one sentence; empty when it is.
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

    /// Whether nobody knows what one of its members runs, where that is for it to say.
    pub fn has_said_nothing(&self) -> bool {
        self.error.is_none()
            && self.members.iter().any(|m| m.health == Health::Unknown && m.facets.is_empty())
    }

    /// The kinds and names of its members.
    pub fn workloads(&self) -> BTreeSet<(&str, &str)> {
        self.members.iter().map(|m| (m.kind.as_str(), m.name.as_str())).collect()
    }
}

/// Whether a revision is of the kind that a pipeline tracks now; one that was proven before the
/// owner changed `tracks` is not.
pub fn is_tracked(pipeline: &Pipeline, revision: &Revision) -> bool {
    revision.facets().all(|(key, _)| {
        if pipeline.tracks.is_empty() {
            (key.kind == "HelmRelease") == (key.facet == Facet::Chart)
        } else {
            pipeline.tracks.iter().any(|t| t.admits(&key.facet))
        }
    })
}
