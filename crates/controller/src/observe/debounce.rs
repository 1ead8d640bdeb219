//! Holds back events that may have overtaken others. A Kustomization and its workloads are watched separately: the event
//! that it is Ready at a new revision may arrive a moment before the change of its Deployment, and the old Deployment,
//! still healthy, would then prove the new revision. Such an event waits until the earlier writes must have arrived.

use std::collections::HashMap;
use std::time::Duration;

use sluice_core::observed::Health;

use super::facts::{ClusterEvent, ClusterKey, Fact, FluxFact, ObjectKey, Owned};
use super::index::Index;

/// How long such an event waits. The watches of one server differ by milliseconds.
pub const HOLD: Duration = Duration::from_millis(500);

/// The events that wait, the latest of each object.
#[derive(Debug, Default)]
pub struct Debounce {
    waiting: HashMap<(ClusterKey, ObjectKey), (u64, ClusterEvent)>,
    held: u64,
}

/// What is to become of an event.
#[derive(Debug)]
pub enum Debounced {
    /// It counts now.
    Now(ClusterEvent),
    /// It counts after [`HOLD`]: ask for it with [`Debounce::due`] and this number then.
    Later(ObjectKey, u64),
}

impl Debounce {
    /// Takes in an event. A waiting event of the same object is older, and is forgotten.
    pub fn observe(&mut self, index: &Index, cluster: &ClusterKey, event: ClusterEvent) -> Debounced {
        let object = match &event {
            ClusterEvent::Applied(object, _) | ClusterEvent::Deleted(object) => object.clone(),
            // A list was read later than any event that waits.
            ClusterEvent::Listed(kind, ..) | ClusterEvent::TooLarge(kind, ..) => {
                self.waiting.retain(|(of, object), _| of != cluster || object.kind != *kind);
                return Debounced::Now(event);
            }
            ClusterEvent::Connected | ClusterEvent::Lost(_) => {
                self.waiting.retain(|(of, _), _| of != cluster);
                return Debounced::Now(event);
            }
            _ => return Debounced::Now(event),
        };
        let key = (cluster.clone(), object.clone());
        self.waiting.remove(&key);
        let ClusterEvent::Applied(_, Fact::Flux(now)) = &event else { return Debounced::Now(event) };
        let before = index.cluster(cluster).and_then(|c| c.object(&object));
        if !matches!(before, Some(Fact::Flux(before)) if may_be_early(before, now)) {
            return Debounced::Now(event);
        }
        self.held += 1;
        self.waiting.insert(key, (self.held, event));
        Debounced::Later(object, self.held)
    }

    /// The event that has waited, unless a newer one has replaced it.
    pub fn due(&mut self, cluster: &ClusterKey, object: &ObjectKey, number: u64) -> Option<ClusterEvent> {
        let key = (cluster.clone(), object.clone());
        let (waiting, _) = self.waiting.get(&key)?;
        if *waiting != number {
            return None;
        }
        self.waiting.remove(&key).map(|(_, event)| event)
    }
}

/// Whether an event says Ready at a new revision without covering the workloads.
fn may_be_early(before: &FluxFact, now: &FluxFact) -> bool {
    let owns_nothing = matches!(&now.owned, Owned::Inventory(entries) if entries.is_empty());
    let covers_workloads = now.covers_owned || now.on_another_cluster || owns_nothing;
    !covers_workloads && now.status.health == Health::Ready && before.facets != now.facets
}
