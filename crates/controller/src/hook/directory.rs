//! What the hook server knows of pipelines: what the loop has told it. Reading it waits for nobody.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sluice_api::Pipeline;

use super::secret_names::{hook_secrets, trigger_secret};
use crate::key::PipelineKey;

/// All pipelines, once they are known.
#[derive(Debug, Default)]
pub struct Directory {
    pipelines: RwLock<(bool, HashMap<PipelineKey, Arc<Pipeline>>)>,
    /// Pipelines that the loop was told to look at, and has not heard of yet.
    called: Mutex<HashSet<PipelineKey>>,
}

/// What is known of a pipeline.
#[derive(Debug)]
pub enum Found {
    /// This.
    Pipeline(Arc<Pipeline>),
    /// There is none.
    None,
    /// They have not been read yet.
    NotYet,
}

impl Directory {
    /// A pipeline as it stands.
    pub fn find(&self, key: &PipelineKey) -> Found {
        let known = self.pipelines.read().unwrap_or_else(PoisonError::into_inner);
        match known.1.get(key) {
            Some(pipeline) => Found::Pipeline(pipeline.clone()),
            None if known.0 => Found::None,
            None => Found::NotYet,
        }
    }

    /// A pipeline is there, or has changed.
    pub fn put(&self, key: PipelineKey, pipeline: Arc<Pipeline>) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).1.insert(key, pipeline);
    }

    /// A pipeline is gone.
    pub fn remove(&self, key: &PipelineKey) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).1.remove(key);
    }

    /// The pipelines that name a Secret with hook keys.
    pub fn with_secrets(&self) -> HashMap<PipelineKey, Arc<Pipeline>> {
        // The loop waits for this lock: what takes longer than a copy comes after it.
        let mut all = self.pipelines.read().unwrap_or_else(PoisonError::into_inner).1.clone();
        all.retain(|_, pipeline| !hook_secrets(pipeline).is_empty());
        all
    }

    /// How many other pipelines take triggers with a key of this Secret, which is in the pipeline's namespace.
    pub fn sharing(&self, key: &PipelineKey, secret: &str) -> usize {
        let known = self.pipelines.read().unwrap_or_else(PoisonError::into_inner);
        let others = known.1.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
        others.filter(|(_, pipeline)| trigger_secret(pipeline) == Some(secret)).count()
    }

    /// Notes that the loop is to look at a pipeline; whether that is news. However many calls come, one message for
    /// each pipeline waits in the loop's queue.
    pub fn call(&self, key: &PipelineKey) -> bool {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone())
    }

    /// The loop has heard that it is to look at a pipeline.
    pub fn reconcile_begun(&self, key: &PipelineKey) {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// All that there are have been put in.
    pub fn complete(&self) {
        self.pipelines.write().unwrap_or_else(PoisonError::into_inner).0 = true;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pipelines_of_a_namespace_that_take_triggers_with_one_secret_are_counted() {
        let directory = Directory::default();
        for (namespace, name, first, second) in [
            ("apps", "a", "ci", "ci"),
            ("apps", "b", "ci", "own"),
            ("apps", "c", "own", "ci"),
            ("other", "d", "ci", "ci"),
        ] {
            let key = PipelineKey { namespace: namespace.into(), name: name.into() };
            let environment = |name: &str, secret: &str| {
                json!({"name": name, "targets": [], "promotion":
                    {"strategy": {"notification": {}, "secretRef": {"name": secret}}}})
            };
            let object = json!({"metadata": {"name": name, "namespace": namespace},
                "spec": {"environments": [environment("dev", first), environment("prod", second)]}});
            directory.put(key, Arc::new(serde_json::from_value(object).unwrap()));
        }
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        assert_eq!(directory.sharing(&key("a"), "ci"), 1);
        assert_eq!(directory.sharing(&key("c"), "own"), 0);
        directory.remove(&key("b"));
        assert_eq!(directory.sharing(&key("a"), "ci"), 0);
    }
}
