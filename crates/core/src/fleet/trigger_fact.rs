//! The facts of objects on the hub that start pipelines. No decision follows from them. No fact has a secret: a Receiver's
//! path is the password of its callers, and the addresses of Providers may have tokens in them.

use super::object_key::ObjectKey;
use super::watched_kind::Kind;
use crate::time::Time;

/// The facts of an object that starts pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerFact {
    /// An ImagePolicy.
    ImagePolicy {
        /// How it chooses an image, in words.
        choice: String,
        /// The image that it chooses now; empty if there is none.
        latest: String,
        /// Why it does not work; empty if it does.
        problem: String,
    },
    /// An ImageUpdateAutomation.
    ImageUpdateAutomation {
        /// The GitRepository whose repository it writes to.
        repository: Option<ObjectKey>,
        /// The folder of the files that it writes; empty for all.
        path: String,
        /// The ImagePolicies in its namespace whose images it wrote.
        policies: Vec<String>,
        /// When it last pushed a commit.
        last_push: Option<Time>,
        /// Why it does not work; empty if it does.
        problem: String,
    },
    /// A Receiver.
    Receiver {
        /// The sort of the sender: `github`, `generic` and so on.
        sender: String,
        /// The objects that Flux reconciles after a webhook.
        objects: Vec<NamedObjects>,
        /// Why it does not work; empty if it does.
        problem: String,
    },
    /// An Alert.
    Alert {
        /// The Provider in the Alert's namespace.
        provider: String,
        /// Whether it is suspended.
        suspended: bool,
    },
    /// A Provider.
    Provider {
        /// The hook of Sluice at its address; `None` if it has another address.
        hook: Option<HookName>,
        /// Whether it is suspended.
        suspended: bool,
    },
}

/// An object, or all objects of a kind in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObjects {
    /// The kind.
    pub kind: Kind,
    /// The namespace.
    pub namespace: String,
    /// The name; `None` for those with certain labels.
    pub name: Option<String>,
}

impl NamedObjects {
    /// Whether an object may be one of them.
    pub fn may_contain(&self, key: &ObjectKey) -> bool {
        self.kind == key.kind
            && self.namespace == key.namespace
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

/// The environment in the path `/promotion/<namespace>/<pipeline>/<environment>` of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookName {
    /// The namespace of the Pipeline.
    pub namespace: String,
    /// The name of the Pipeline.
    pub pipeline: String,
    /// The environment.
    pub environment: String,
}

impl TriggerFact {
    /// Returns the approximate memory of the texts, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            TriggerFact::ImagePolicy { choice, latest, problem } => {
                choice.len() + latest.len() + problem.len()
            }
            TriggerFact::ImageUpdateAutomation { repository, path, policies, problem, .. } => {
                let policies: usize = policies.iter().map(|name| 30 + name.len()).sum();
                let repository = repository.as_ref().map_or(0, |key| key.namespace.len() + key.name.len());
                path.len() + policies + repository + problem.len()
            }
            TriggerFact::Receiver { sender, objects, problem } => {
                let name = |object: &NamedObjects| object.name.as_ref().map_or(0, String::len);
                let objects: usize = objects.iter().map(|o| 60 + o.namespace.len() + name(o)).sum();
                sender.len() + objects + problem.len()
            }
            TriggerFact::Alert { provider, .. } => provider.len(),
            TriggerFact::Provider { hook, .. } => {
                hook.as_ref().map_or(0, |h| h.namespace.len() + h.pipeline.len() + h.environment.len())
            }
        }
    }
}
