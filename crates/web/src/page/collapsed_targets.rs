//! Which targets of an environment a page shows only after a click: if there are many, those that are ready.

use sluice_core::observed::Health;
use sluice_view::tree::TargetNode;

/// The most targets of an environment that are all shown at first.
const MAX_EXPANDED_TARGETS: usize = 12;

/// Returns whether a target is shown at first. `targets` is the number of targets of its environment.
pub(super) fn is_shown_at_first(target: &TargetNode, targets: usize) -> bool {
    targets <= MAX_EXPANDED_TARGETS || target.health != Health::Ready
}
