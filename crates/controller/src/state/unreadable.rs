//! Objects that cannot be read. Who acts for the pipeline of that name tells of it, and so does who
//! comes to act for it later.

use kube::Resource;
use sluice_api::{Pipeline, Promotion};

use super::{PipelineKey, named};
use crate::engine::Engine;
use crate::watch::guard::Unreadable;

impl Engine {
    /// Takes note of an object that cannot be read, and tells of it.
    pub(crate) fn unreadable<K: Resource<DynamicType = ()>>(&mut self, bad: Unreadable) {
        let key = named(&bad.metadata);
        if self.shards.acts(&key) {
            self.events.unreadable::<K>(bad.clone());
        }
        self.unreadable.insert((kind::<K>(), key), bad);
    }

    /// Takes note that an object can be read, or is gone.
    pub(crate) fn readable<K: Resource<DynamicType = ()>>(&mut self, key: &PipelineKey) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&(kind::<K>(), key.clone()));
        }
    }

    /// Tells of those that cannot be read, of one shard.
    pub(crate) fn tell_unreadable(&self, shard: u32) {
        for ((kind, _), bad) in self.unreadable.iter().filter(|((_, key), _)| self.shards.of(key) == shard) {
            match *kind {
                "Pipeline" => self.events.unreadable::<Pipeline>(bad.clone()),
                _ => self.events.unreadable::<Promotion>(bad.clone()),
            }
        }
    }
}

fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    if K::kind(&()) == Pipeline::kind(&()) { "Pipeline" } else { "Promotion" }
}
