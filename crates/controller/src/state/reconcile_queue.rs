//! A queue of pipelines to reconcile, fair by namespace: the namespaces are served one after the other, and
//! the pipelines of each in the order in which they were added. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::pipeline_key::PipelineKey;

/// A queue of pipelines, each in it once.
#[derive(Debug, Default)]
pub(crate) struct ReconcileQueue {
    /// The namespaces with pipelines that wait, in the order in which they are served.
    namespaces: VecDeque<String>,
    /// The pipelines of each. Some of them may have been removed since.
    queues: HashMap<String, VecDeque<PipelineKey>>,
    waiting: HashSet<PipelineKey>,
}

impl ReconcileQueue {
    /// Adds a pipeline at the end of its namespace's queue, unless it waits already.
    pub(crate) fn insert(&mut self, key: PipelineKey) {
        if !self.waiting.insert(key.clone()) {
            return;
        }
        let queue = self.queues.entry(key.namespace.clone()).or_default();
        if queue.is_empty() {
            self.namespaces.push_back(key.namespace.clone());
        }
        queue.push_back(key);
    }

    /// Takes a pipeline out, wherever it waits.
    pub(crate) fn remove(&mut self, key: &PipelineKey) {
        self.waiting.remove(key);
    }

    /// Takes the next pipeline out.
    pub(crate) fn next(&mut self) -> Option<PipelineKey> {
        loop {
            let namespace = self.namespaces.pop_front()?;
            let queue = self.queues.get_mut(&namespace)?;
            let key = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&namespace);
            } else {
                self.namespaces.push_back(namespace);
            }
            if let Some(key) = key.filter(|key| self.waiting.remove(key)) {
                return Some(key);
            }
        }
    }

    /// How many pipelines wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> PipelineKey {
        let (namespace, name) = text.split_once('/').unwrap();
        PipelineKey { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn a_namespace_with_a_thousand_pipelines_delays_another_by_one() {
        let mut queue = ReconcileQueue::default();
        for n in 0..1000 {
            queue.insert(key(&format!("busy/app-{n}")));
        }
        queue.insert(key("quiet/app"));
        assert_eq!(queue.next(), Some(key("busy/app-0")));
        // It is added again immediately, like a pipeline that changes all the time.
        queue.insert(key("busy/app-0"));
        assert_eq!(queue.next(), Some(key("quiet/app")));
        let rest: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!((rest.len(), queue.len()), (1000, 0));
        assert_eq!((&rest[0], &rest[999]), (&key("busy/app-1"), &key("busy/app-0")));
    }

    #[test]
    fn each_pipeline_waits_once_and_a_removed_one_does_not() {
        let mut queue = ReconcileQueue::default();
        for text in ["a/x", "a/y", "b/x", "a/x", "a/y"] {
            queue.insert(key(text));
        }
        queue.remove(&key("a/x"));
        assert_eq!(queue.len(), 2);
        queue.insert(key("a/x"));
        let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!((queue.next(), queue.len()), (None, 0));
        queue.insert(key("a/x"));
        assert_eq!(queue.next(), Some(key("a/x")));
    }
}
