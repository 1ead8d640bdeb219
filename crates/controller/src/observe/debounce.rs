//! Delays events that may have arrived before earlier ones. A Kustomization and its workloads are watched
//! separately. The event that a Kustomization is Ready at a new revision may arrive shortly before the change of
//! its Deployment. Then the old Deployment, which is still healthy, would prove the new revision. So such an event
//! waits for [`HOLD`].

use std::collections::HashMap;
use std::time::Duration;

use sluice_core::observed::Health;

use sluice_core::fleet::fact::Owned;
use sluice_core::fleet::index::Index;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, FluxFact, ObjectKey};

/// How long an early event waits. The watches of one server differ by milliseconds.
pub const HOLD: Duration = Duration::from_millis(500);

/// The waiting events, at most one of each object.
#[derive(Debug, Default)]
pub struct Debounce {
    waiting: HashMap<(ClusterKey, ObjectKey), (u64, ClusterEvent)>,
    last_number: u64,
}

/// When to apply an event.
#[derive(Debug)]
pub enum Debounced {
    /// Apply the event now.
    Now(ClusterEvent),
    /// Call [`Debounce::due`] with this object and number after [`HOLD`].
    Later(ObjectKey, u64),
}

impl Debounce {
    /// Takes an event. An event of the same object that waits is outdated, and is dropped.
    pub fn observe(&mut self, index: &Index, cluster: &ClusterKey, event: ClusterEvent) -> Debounced {
        let object = match &event {
            ClusterEvent::Applied(object, _) | ClusterEvent::Deleted(object) => object.clone(),
            // The list is newer than each waiting event.
            ClusterEvent::Listed(kind, ..) | ClusterEvent::TooLarge(kind, ..) => {
                self.waiting.retain(|(key, object), _| key != cluster || object.kind != *kind);
                return Debounced::Now(event);
            }
            ClusterEvent::Connected | ClusterEvent::Lost(_) => {
                self.waiting.retain(|(key, _), _| key != cluster);
                return Debounced::Now(event);
            }
            _ => return Debounced::Now(event),
        };
        let key = (cluster.clone(), object.clone());
        self.waiting.remove(&key);
        let ClusterEvent::Applied(_, Fact::Flux(new)) = &event else { return Debounced::Now(event) };
        let observed = index.cluster(cluster);
        let former = observed.as_ref().and_then(|cluster| cluster.object(&object));
        if !matches!(former, Some(Fact::Flux(former)) if may_be_early(former, new)) {
            return Debounced::Now(event);
        }
        drop(observed);
        self.last_number += 1;
        self.waiting.insert(key, (self.last_number, event));
        Debounced::Later(object, self.last_number)
    }

    /// Takes the event of an object that has waited. `None` if a newer event has replaced it.
    pub fn due(&mut self, cluster: &ClusterKey, object: &ObjectKey, number: u64) -> Option<ClusterEvent> {
        let key = (cluster.clone(), object.clone());
        let (waiting, _) = self.waiting.get(&key)?;
        if *waiting != number {
            return None;
        }
        self.waiting.remove(&key).map(|(_, event)| event)
    }
}

/// Whether a new fact is Ready at a new revision, and its health does not include its workloads.
fn may_be_early(former: &FluxFact, new: &FluxFact) -> bool {
    let owns_nothing = matches!(&new.owned, Owned::Inventory(entries) if entries.is_empty());
    let includes_workloads = new.covers_owned || new.on_another_cluster || owns_nothing;
    !includes_workloads && new.status.health == Health::Ready && former.facets != new.facets
}
