//! Words that may come too early. A Kustomization and what it made are watched apart: that it is
//! Ready at a new revision may be heard a moment before its Deployment's change is, and the old
//! Deployment, healthy still, would then prove the new revision. Such a word waits until what was
//! written before it must have been heard.

use std::collections::HashMap;
use std::time::Duration;

use sluice_core::world::Health;

use super::facts::{ClusterEvent, ClusterKey, Fact, FluxFact, ObjectKey, Owned};
use super::index::Index;

/// How long such a word waits. Watches of one server are apart by milliseconds.
pub const STANDING: Duration = Duration::from_millis(500);

/// The words that wait, the latest of each object.
#[derive(Debug, Default)]
pub struct Early {
    waiting: HashMap<(ClusterKey, ObjectKey), (u64, ClusterEvent)>,
    taken: u64,
}

/// What is to become of an event.
#[derive(Debug)]
pub enum Heard {
    /// It counts now.
    Now(ClusterEvent),
    /// It counts after [`STANDING`]: ask for it with [`Early::due`] and this number then.
    Later(ObjectKey, u64),
}

impl Early {
    /// Takes in an event. Whatever waits of the same object is older, and is forgotten.
    pub fn hear(&mut self, index: &Index, cluster: &ClusterKey, event: ClusterEvent) -> Heard {
        let object = match &event {
            ClusterEvent::Applied(object, _) | ClusterEvent::Deleted(object) => object.clone(),
            // What is listed was read anew, later than anything of it that waits.
            ClusterEvent::Listed(kind, ..) | ClusterEvent::TooLarge(kind, ..) => {
                self.waiting.retain(|(of, object), _| of != cluster || object.kind != *kind);
                return Heard::Now(event);
            }
            ClusterEvent::Connected | ClusterEvent::Lost(_) => {
                self.waiting.retain(|(of, _), _| of != cluster);
                return Heard::Now(event);
            }
            _ => return Heard::Now(event),
        };
        let key = (cluster.clone(), object.clone());
        self.waiting.remove(&key);
        let ClusterEvent::Applied(_, Fact::Flux(now)) = &event else { return Heard::Now(event) };
        let before = index.cluster(cluster).and_then(|c| c.object(&object));
        if !matches!(before, Some(Fact::Flux(before)) if is_early(before, now)) {
            return Heard::Now(event);
        }
        self.taken += 1;
        self.waiting.insert(key, (self.taken, event));
        Heard::Later(object, self.taken)
    }

    /// The word that has waited, unless a newer one has come.
    pub fn due(&mut self, cluster: &ClusterKey, object: &ObjectKey, number: u64) -> Option<ClusterEvent> {
        let key = (cluster.clone(), object.clone());
        let (waiting, _) = self.waiting.get(&key)?;
        if *waiting != number {
            return None;
        }
        self.waiting.remove(&key).map(|(_, event)| event)
    }
}

/// Ready at something new, by a word that does not cover the workloads it made.
fn is_early(before: &FluxFact, now: &FluxFact) -> bool {
    let owns_nothing = matches!(&now.owned, Owned::Inventory(entries) if entries.is_empty());
    let vouches = now.covers || now.elsewhere || owns_nothing;
    !vouches && now.verdict.health == Health::Ready && before.facets != now.facets
}
