//! The search in lists of pipelines: a word is looked for in all facts, and a word such as `cluster:eu` in the facts of one
//! kind.

use std::fmt::Display;

use sluice_api::Pipeline;
use sluice_view::pipeline_screen::PipelineScreen;

/// What a word may begin with.
const KINDS: [&str; 5] = ["namespace:", "application:", "cluster:", "health:", "revision:"];

/// The cluster of a target that names none.
const HUB: &str = "hub";

/// Examples of words that are looked for in the facts of one kind, and what they find.
pub(crate) const EXAMPLES: [(&str, &str); 5] = [
    ("namespace:apps", "Pipelines in a namespace"),
    ("application:podinfo", "Pipelines of an application"),
    ("cluster:eu", "Pipelines with a target on a cluster; hub is the cluster of the Pipelines"),
    ("health:failed", "Pipelines with an environment of this health"),
    ("revision:6.2", "Pipelines in which a revision runs, or moves"),
];

/// What a search looks at in one pipeline, in small letters.
#[derive(Debug)]
pub(crate) struct SearchedFacts {
    /// Names, clusters and revisions.
    words: String,
    /// All facts, each as ` kind:fact`.
    of_kinds: String,
}

impl SearchedFacts {
    /// Returns what a search looks at.
    pub(crate) fn of(pipeline: &Pipeline, screen: &PipelineScreen) -> Self {
        let targets = pipeline.spec.environments.iter().flat_map(|environment| &environment.targets);
        let has_local = targets.clone().any(|target| target.cluster_ref.is_none());
        let clusters = targets.filter_map(|target| target.cluster_ref.as_ref().map(|cluster| &cluster.name));
        let lines = &screen.environments;
        let revisions = lines
            .iter()
            .flat_map(|line| line.runs.iter().chain(line.incoming.as_ref().map(|(revision, _)| revision)));
        let mut facts = SearchedFacts { words: screen.name.to_lowercase(), of_kinds: String::new() };
        let [namespace, application, cluster, health, revision] = KINDS;
        facts.add(namespace, [&screen.namespace]);
        facts.add(application, screen.application.iter().map(|application| &application.name));
        facts.add(revision, revisions);
        facts.add(cluster, clusters);
        // A search for "ready" or "hub" means a pipeline of that name.
        let healths = lines.iter().map(|line| format!(" {health}{}", line.health).to_lowercase());
        facts.of_kinds.extend(healths);
        facts.of_kinds.extend(has_local.then(|| format!(" {cluster}{HUB}")));
        facts
    }

    fn add(&mut self, kind: &str, found: impl IntoIterator<Item = impl Display>) {
        for fact in found {
            let fact = fact.to_string().to_lowercase();
            self.of_kinds.extend([" ", kind, &fact]);
            self.words.extend([" ", &fact]);
        }
    }

    /// Whether the pipeline has all of these words. A fact begins with the word that follows its kind.
    pub(crate) fn have(&self, words: &[String]) -> bool {
        words.iter().all(|word| match KINDS.iter().any(|kind| word.starts_with(kind)) {
            true => self.of_kinds.contains(&format!(" {word}")),
            false => self.words.contains(word),
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use sluice_api::Promotion;
    use sluice_view::pipeline_screen::status;

    use super::*;

    #[test]
    fn a_word_with_a_kind_is_looked_for_in_the_facts_of_that_kind() {
        let target = |cluster: &str| json!({"namespace": "a", "clusterRef": {"kind": "GitopsCluster", "name": cluster}});
        let pipeline: Pipeline = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "a"}]},
                    {"name": "prod", "targets": [target("eu-1"), target("us-1")]}]},
            "status": {"environments": {"dev": {"health": "Ready", "revision": "6.2.0",
                "targets": [{"name": "a", "namespace": "a", "health": "Ready", "revision": "6.2.0"}]}}}}))
        .unwrap();
        let promotions: [Promotion; 0] = [];
        let facts = SearchedFacts::of(&pipeline, &status(&pipeline, &promotions, Timestamp::UNIX_EPOCH));
        let has = |words: &[&str]| facts.have(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        assert!(has(&["cluster:eu", "cluster:us-1", "eu", "web"]));
        for found in [
            "cluster:hub",
            "namespace:shop",
            "application:pod",
            "health:ready",
            "health:unknown",
            "revision:6.2",
            "6.2.0",
        ] {
            assert!(has(&[found]), "{found}");
        }
        for other in [
            "cluster:1",
            "cluster:eu-2",
            "namespace:eu",
            "cluster:web",
            "cluster:eu-1 us",
            "cluster",
            "application:web",
            "health:failed",
            "ready",
            "hub",
            "revision:2",
        ] {
            assert!(!has(&[other]), "{other}");
        }
    }

    #[test]
    fn each_kind_has_an_example() {
        assert!(KINDS.iter().zip(EXAMPLES).all(|(kind, (example, _))| example.starts_with(kind)));
    }
}
