//! The pipelines as the hook server sees them. The controller's loop keeps them up to date, so that answering a
//! call needs no request to the API server for its pipeline.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, RwLock};

use sluice_api::Pipeline;
use sluice_core::lock::{lock, read, write};

use super::secret_names::{any_hook_secret, trigger_secret};
use crate::pipeline_key::PipelineKey;

/// All pipelines, and the requests to reconcile them.
#[derive(Debug, Default)]
pub struct Directory {
    /// Whether all pipelines were loaded, and the pipelines.
    pipelines: RwLock<(bool, HashMap<PipelineKey, Arc<Pipeline>>)>,
    /// The pipelines with a request to reconcile in the queue of the loop.
    requested: Mutex<HashSet<PipelineKey>>,
}

/// The result of looking up a pipeline.
#[derive(Debug)]
pub enum PipelineLookup {
    Found(Arc<Pipeline>),
    /// There is no such pipeline.
    Missing,
    /// The controller has not loaded all pipelines yet, so the pipeline may exist.
    NotLoaded,
}

impl Directory {
    /// Looks up a pipeline.
    pub fn find(&self, key: &PipelineKey) -> PipelineLookup {
        let known = read(&self.pipelines);
        match known.1.get(key) {
            Some(pipeline) => PipelineLookup::Found(pipeline.clone()),
            None if known.0 => PipelineLookup::Missing,
            None => PipelineLookup::NotLoaded,
        }
    }

    /// Adds a pipeline, or replaces it by its current version.
    pub fn put(&self, key: PipelineKey, pipeline: Arc<Pipeline>) {
        write(&self.pipelines).1.insert(key, pipeline);
    }

    /// Removes a deleted pipeline.
    pub fn remove(&self, key: &PipelineKey) {
        write(&self.pipelines).1.remove(key);
    }

    /// Returns the pipelines that name a Secret with hook keys.
    pub fn with_secrets(&self) -> HashMap<PipelineKey, Arc<Pipeline>> {
        // The loop waits for this lock, so it is held for the copy alone.
        let mut all = read(&self.pipelines).1.clone();
        all.retain(|_, pipeline| any_hook_secret(pipeline).is_some());
        all
    }

    /// Returns the namespace and name of a Secret with hook keys; `None` if no pipeline names one.
    pub fn any_secret(&self) -> Option<(String, String)> {
        let known = read(&self.pipelines);
        let secret = |(key, pipeline): (&PipelineKey, &Arc<Pipeline>)| {
            Some((key.namespace.clone(), any_hook_secret(pipeline)?.to_string()))
        };
        known.1.iter().find_map(secret)
    }

    /// Returns how many other pipelines of the namespace accept triggers with a key of this Secret.
    pub fn other_trigger_pipelines(&self, key: &PipelineKey, secret: &str) -> usize {
        let known = read(&self.pipelines);
        let others = known.1.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
        others.filter(|(_, pipeline)| trigger_secret(pipeline) == Some(secret)).count()
    }

    /// Notes a request to reconcile a pipeline. Returns true if the caller must send the request to the loop, and
    /// false if one is in the loop's queue: any number of calls put at most one request for each pipeline there.
    pub fn request_reconcile(&self, key: &PipelineKey) -> bool {
        lock(&self.requested).insert(key.clone())
    }

    /// Notes that the loop has received the request to reconcile a pipeline.
    pub fn reconcile_begun(&self, key: &PipelineKey) {
        lock(&self.requested).remove(key);
    }

    /// Notes that all pipelines were added.
    pub fn complete(&self) {
        write(&self.pipelines).0 = true;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_pipelines_of_the_namespace_with_the_same_trigger_secret_are_counted() {
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
        assert_eq!(directory.other_trigger_pipelines(&key("a"), "ci"), 1);
        assert_eq!(directory.other_trigger_pipelines(&key("c"), "own"), 0);
        directory.remove(&key("b"));
        assert_eq!(directory.other_trigger_pipelines(&key("a"), "ci"), 0);
    }
}
