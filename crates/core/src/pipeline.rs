//! A pipeline as its owner wrote it, as plain values with every default filled in.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dns_name::is_label;
use crate::promotion::Promotion;
use crate::repository::Repository;
use crate::tracks::Track;

/// A pipeline as its owner wrote it, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The namespace of the Pipeline object.
    pub namespace: String,
    /// The name of the Pipeline object.
    pub name: String,
    /// The UID of the Pipeline object. A re-created Pipeline has another one.
    pub uid: String,
    /// True if nothing may be started, pushed or opened.
    pub suspended: bool,
    /// The facets that make a revision; empty for the default of each workload.
    pub tracks: Vec<Track>,
    /// The environments in their order. An environment may only have earlier ones as predecessors.
    pub environments: Vec<Environment>,
}

impl Pipeline {
    /// Returns the first environment whose name cannot be used, and what to write instead. The API server refuses such a name
    /// today, but the predecessor's definition accepted it.
    pub fn name_problem(&self) -> Option<(&Environment, String)> {
        let mut names = BTreeSet::new();
        self.environments.iter().find_map(|environment| {
            let name = &environment.name;
            let problem = if !is_label(name) {
                format!(
                    "an environment is named {name:?}: its name is made of lower-case letters, digits and '-', and starts \
                     and ends with a letter or digit"
                )
            } else if !names.insert(name) {
                format!("two environments are named {name}: give each a name of its own")
            } else {
                return None;
            };
            Some((environment, problem))
        })
    }
}

/// One environment of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// The environment's name, unique in the pipeline.
    pub name: String,
    /// The names of the environment's targets.
    pub targets: Vec<String>,
    /// The names of the predecessors, whose proven revisions are promoted here; empty for the first environments.
    pub depends_on: Vec<String>,
    /// How to promote into the environment; `None` if the environment is only shown.
    pub policy: Option<Policy>,
    /// The one target that this value stands for, if each target is promoted into separately; `None` if all targets
    /// are promoted into together.
    pub only_target: Option<String>,
}

impl Environment {
    /// Returns the parts of the environment that have their own promotions: the whole environment, or each target.
    pub fn lanes(&self) -> Vec<Environment> {
        if !self.policy.as_ref().is_some_and(|policy| policy.per_target) {
            return vec![self.clone()];
        }
        let only = |target: &String| Environment {
            name: self.name.clone(),
            targets: vec![target.clone()],
            depends_on: self.depends_on.clone(),
            policy: self.policy.clone(),
            only_target: Some(target.clone()),
        };
        self.targets.iter().map(only).collect()
    }

    /// Returns true if a promotion goes into exactly this environment, or this one target of it.
    pub fn is_of(&self, promotion: &Promotion) -> bool {
        promotion.environment == self.name && promotion.target == self.only_target
    }
}

/// How revisions get into an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// True if a person must approve each revision.
    pub manual: bool,
    /// How many targets of each predecessor must have proven the revision.
    pub min_ready: MinReady,
    /// True if older revisions are promoted without an approval.
    pub allow_downgrade: bool,
    /// True if each target is promoted into separately.
    pub per_target: bool,
    /// How long a delivered revision may take to run healthily.
    pub timeout: SignedDuration,
    /// The repository and branch that the strategy writes to, if it writes to one.
    pub writes_to: Option<Repository>,
    /// True if promotions are committed to the branch without a change request.
    pub commits: bool,
    /// Why this policy cannot be carried out at all, and what to change.
    pub refused: Option<String>,
}

/// How many targets of an environment must have proven a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinReady {
    /// This number of targets.
    Count(u32),
    /// This percentage of the targets, rounded up.
    Percent(u32),
}

impl MinReady {
    /// Returns the number of targets that are needed of `targets`, at least 1. If it is more than there are, no
    /// revision is proven.
    pub fn of(self, targets: usize) -> usize {
        match self {
            MinReady::Count(n) => (n as usize).max(1),
            MinReady::Percent(p) => (targets * p as usize).div_ceil(100).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_ready_rounds_up_and_is_at_least_one() {
        assert_eq!(MinReady::Percent(50).of(3), 2);
        assert_eq!(MinReady::Percent(100).of(3), 3);
        assert_eq!(MinReady::Percent(1).of(3), 1);
        assert_eq!(MinReady::Count(0).of(3), 1);
        assert_eq!(MinReady::Count(5).of(3), 5);
    }
}

/// When Sluice merges a change request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MergeMode {
    /// Never: people merge it.
    #[default]
    Never,
    /// When its checks and approvals allow it.
    WhenGreen,
    /// When its checks and approvals allow it, by the merge queue of the forge.
    Queue,
}
