//! What a person enters about a Pipeline.

use sluice_core::fleet::ClusterKey;

/// What a person entered about a Pipeline. Each text is as it was entered, and may be empty or wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The namespace of the Pipeline.
    pub namespace: String,
    /// The name of the Pipeline.
    pub name: String,
    /// The kind of the application; empty if labels choose the objects.
    pub app_kind: String,
    /// The name of the application.
    pub app_name: String,
    /// The environments, in order.
    pub environments: Vec<DraftEnvironment>,
    /// How revisions are delivered.
    pub delivery: DraftDelivery,
    /// The manifest of the application that a first set-up starts from; empty for no first set-up.
    pub manifest: String,
    /// The path of the files of a first set-up, with placeholders.
    pub files: String,
}

/// What a person entered about an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftEnvironment {
    /// The index of the environment in the Pipeline that is edited. Its fields that no form shows are kept.
    pub was: Option<usize>,
    /// The name.
    pub name: String,
    /// The names of the environments before it, separated by commas or blanks.
    pub after: String,
    /// Whether a person approves each revision.
    pub approval: bool,
    /// The targets.
    pub targets: Vec<DraftTarget>,
}

/// What a person entered about a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftTarget {
    /// The index of the target in the environment that is edited.
    pub was: Option<usize>,
    /// The name; empty for the default.
    pub name: String,
    /// The cluster, as `name` or `namespace/name`; empty for the cluster with the Pipeline.
    pub cluster: String,
    /// The namespace on the cluster.
    pub namespace: String,
    /// Whether the manifest of the application for this target is in git already.
    pub in_git: bool,
}

impl DraftTarget {
    /// Returns the cluster that is meant, in a Pipeline in the namespace `home`.
    pub fn cluster_key(&self, home: &str) -> ClusterKey {
        match self.cluster.split_once('/') {
            None if self.cluster.is_empty() => ClusterKey::Local,
            None => ClusterKey::Remote { namespace: home.into(), name: self.cluster.clone() },
            Some((namespace, name)) => ClusterKey::Remote { namespace: namespace.into(), name: name.into() },
        }
    }
}

/// What a person entered about the delivery of revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftDelivery {
    /// The name of the strategy; empty if environments are only shown.
    pub strategy: String,
    /// The kind of forge of the strategy `pull-request`.
    pub forge: String,
    /// The address of the repository or receiver.
    pub url: String,
    /// The branch; empty for the default.
    pub branch: String,
    /// The name of the Secret.
    pub secret: String,
    /// How many targets must be ready; empty for the default.
    pub min_ready_targets: String,
}

impl Draft {
    /// Returns the draft of a new Pipeline in a namespace, with one environment.
    pub fn new(namespace: &str) -> Draft {
        let mut draft = Draft { namespace: namespace.into(), ..Draft::default() };
        draft.app_kind = "HelmRelease".into();
        draft.delivery.strategy = "pull-request".into();
        draft.add_environment();
        draft
    }

    /// Adds an environment with one target, and the first usual name that is free.
    pub fn add_environment(&mut self) {
        let is_free = |usual: &&str| self.environments.iter().all(|known| known.name != *usual);
        let name = ["dev", "staging", "prod"].into_iter().find(is_free);
        let environment = DraftEnvironment {
            name: name.unwrap_or_default().into(),
            targets: vec![DraftTarget::default()],
            ..DraftEnvironment::default()
        };
        self.environments.push(environment);
    }

    /// Fills the last environment if its target is empty, or adds one, for a place in which the application runs.
    pub fn add_place(&mut self, cluster: &str, namespace: &str) {
        let is_empty = |environment: &DraftEnvironment| matches!(&environment.targets[..], [target] if *target == DraftTarget::default());
        if !self.environments.last().is_some_and(is_empty) {
            self.add_environment();
        }
        if let Some(target) = self.environments.last_mut().and_then(|last| last.targets.last_mut()) {
            let (cluster, namespace) = (cluster.into(), namespace.into());
            *target = DraftTarget { cluster, namespace, in_git: true, ..DraftTarget::default() };
        }
    }
}
