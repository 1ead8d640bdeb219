//! The branches that failed deliveries write to: a new commit in one of them may be the fix. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::repository::BranchId;

use crate::pipeline_key::PipelineKey;

/// The pipelines with failed deliveries, by the branches that these write to.
#[derive(Debug, Default)]
pub(super) struct WaitingBranches {
    pipelines: BTreeMap<BranchId, BTreeSet<PipelineKey>>,
    branches: BTreeMap<PipelineKey, BTreeSet<BranchId>>,
}

impl WaitingBranches {
    /// Replaces the branches of a pipeline.
    pub(super) fn set(&mut self, key: &PipelineKey, branches: BTreeSet<BranchId>) {
        for branch in self.branches.remove(key).unwrap_or_default() {
            let Some(pipelines) = self.pipelines.get_mut(&branch) else { continue };
            pipelines.remove(key);
            if pipelines.is_empty() {
                self.pipelines.remove(&branch);
            }
        }
        if branches.is_empty() {
            return;
        }
        for branch in &branches {
            self.pipelines.entry(branch.clone()).or_default().insert(key.clone());
        }
        self.branches.insert(key.clone(), branches);
    }

    /// The pipelines whose failed deliveries write to a branch.
    pub(super) fn pipelines(&self, branch: &BranchId) -> impl Iterator<Item = &PipelineKey> {
        self.pipelines.get(branch).into_iter().flatten()
    }

    /// Whether no delivery has failed.
    pub(super) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::repository::Repository;

    use super::*;

    #[test]
    fn a_branch_names_the_pipelines_that_wait_for_it_until_they_are_replaced() {
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        let branch = |branch: &str| {
            Repository { url: "https://git.example.com/acme/fleet".into(), branch: branch.into() }.id()
        };
        let mut waiting = WaitingBranches::default();
        waiting.set(&key("a"), [branch("main"), branch("next")].into());
        waiting.set(&key("b"), [branch("main")].into());
        let named = |waiting: &WaitingBranches, of: &str| -> Vec<String> {
            waiting.pipelines(&branch(of)).map(|key| key.name.clone()).collect()
        };
        assert_eq!(
            (named(&waiting, "main"), named(&waiting, "next")),
            (vec!["a".into(), "b".into()], vec!["a".into()])
        );
        waiting.set(&key("a"), [branch("next")].into());
        assert_eq!((named(&waiting, "main"), named(&waiting, "next")), (vec!["b".into()], vec!["a".into()]));
        waiting.set(&key("a"), BTreeSet::new());
        waiting.set(&key("b"), BTreeSet::new());
        assert!(waiting.is_empty() && waiting.pipelines.is_empty());
    }
}
