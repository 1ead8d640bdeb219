//! Objects that cannot be read. The replica that acts for the pipeline of that name writes an event about it, also
//! when it begins to act later.

use kube::Resource;
use sluice_api::Pipeline;

use super::State;
use super::effect::Effect;
use crate::pipeline_key::PipelineKey;
use crate::record::pending_event::PendingEvent;
use crate::watch::parsed_object::UnreadableObject;

impl State {
    /// Notes an object that cannot be read.
    pub(super) fn note_unreadable<K: Resource<DynamicType = ()>>(&mut self, object: UnreadableObject) {
        let (key, kind) = (PipelineKey::named(&object.metadata), kind::<K>());
        if self.acts(&key) {
            self.emit(Effect::SendEvent(PendingEvent::Unreadable(kind, Box::new(object.clone()))));
        }
        self.unreadable.insert((kind, key), object);
    }

    /// Notes that an object can be read, or is gone.
    pub(super) fn note_readable<K: Resource<DynamicType = ()>>(&mut self, key: &PipelineKey) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&(kind::<K>(), key.clone()));
        }
    }

    /// Writes events about the unreadable objects of a shard.
    pub(super) fn send_unreadable_events(&mut self, shard: u32) {
        let of_shard = self.unreadable.iter().filter(|((_, key), _)| self.shards.shard_of(key) == shard);
        let announced =
            of_shard.map(|((kind, _), object)| PendingEvent::Unreadable(kind, Box::new(object.clone())));
        self.effects.extend(announced.map(Effect::SendEvent));
    }
}

fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    if K::kind(&()) == Pipeline::kind(&()) { "Pipeline" } else { "Promotion" }
}
