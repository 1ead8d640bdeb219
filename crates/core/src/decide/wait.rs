//! What is recorded in an open promotion that waits for something other than its gates. Its gates are recorded, too: a person may
//! approve it meanwhile.

use super::{Action, Decision, Lane, gates};
use crate::pipeline::Policy;
use crate::promotion::{Gate, Phase, Promotion};

/// Records in a promotion that was not tried yet why it waits, and its gates. A person who has approved it sees that the
/// approval was noted.
pub(super) fn record_wait(
    lane: Lane<'_>,
    policy: &Policy,
    open: &Promotion,
    message: String,
    decision: &mut Decision,
) {
    let gates = noted_gates(lane, policy, open);
    if open.phase == Phase::Pending && (&open.gates, &open.message) != (&gates, &message) {
        decision.actions.push(Action::Wait { promotion: open.name.clone(), gates, message });
    }
}

/// Records the note of the environment as the cause, if the record has no message yet, or other gates: the cause may come and go,
/// like the connection to a cluster.
pub(super) fn record_note(lane: Lane<'_>, policy: &Policy, open: &Promotion, decision: &mut Decision) {
    let Some(note) = decision.notes.get(&lane.environment.name) else { return };
    if open.message.is_empty() || open.gates != noted_gates(lane, policy, open) {
        let message = note.message.clone();
        record_wait(lane, policy, open, message, decision);
    }
}

/// Returns the gates of a promotion as they are recorded while it waits for something else.
fn noted_gates(lane: Lane<'_>, policy: &Policy, open: &Promotion) -> Vec<Gate> {
    let gates = gates::verdicts(lane, policy, open);
    if !open.approved {
        return gates;
    }
    // An approval opens the gates that were recorded before it. One that has closed since needs another approval: it is not
    // recorded, or stays as the approver saw it.
    let seen = |kind| open.gates.iter().find(|gate| gate.kind == kind).cloned();
    let recorded = |gate: Gate| if gate.open { Some(gate) } else { seen(gate.kind) };
    gates.into_iter().filter_map(recorded).collect()
}
