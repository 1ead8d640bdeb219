//! Objects whose status cannot be written until a person does something. The status cannot say that, so an event does.

use kube::{Error, Resource};

use super::State;
use super::effect::Effect;
use super::status_queue::StatusOwner;
use crate::record::pending_event::PendingEvent;
use crate::record::unwritten_status::UnwrittenStatus;

impl State {
    /// Reports that the status of an object cannot be written, if only a person can end that.
    pub(super) fn report_unwritten(&mut self, owner: &StatusOwner, error: &Error) {
        let Some(why) = UnwrittenStatus::of(error) else { return };
        if !self.statuses.begins_report(owner, self.now.instant) {
            return;
        }
        let object = match owner {
            StatusOwner::Pipeline(key) => self.pipelines.get(key).map(|entry| entry.object().object_ref(&())),
            StatusOwner::Promotion(key, name) => {
                self.record(key, name).map(|record| record.object().object_ref(&()))
            }
        };
        if let Some(object) = object {
            self.emit(Effect::SendEvent(PendingEvent::StatusNotWritten(Box::new(object), why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::super::fixtures::{key, proposed};
    use super::super::status_queue::{StoredVersion, WriteOutcome};
    use super::*;
    use crate::record::promotion::RecordChange;

    /// The number of the pending write.
    fn number(state: &mut State) -> u64 {
        let write = state.effects.drain(..).find_map(|effect| match effect {
            Effect::WriteStatus(write) => Some(write.number),
            _ => None,
        });
        write.unwrap()
    }

    #[test]
    fn a_status_that_only_a_person_lets_be_written_is_reported_once_until_it_is_stored() {
        let owner = StatusOwner::Promotion(key(), "p".into());
        let failed = |code, message: &str| {
            WriteOutcome::Failed(Error::Api(Status::failure(message, "").with_code(code).boxed()))
        };
        let stored = || WriteOutcome::Stored(StoredVersion { version: 9, is_over_edit: false });
        for (code, message, reason) in [
            (500, "etcdserver: request is too large", "StatusTooLarge"),
            (422, "strict decoding error: unknown field \"status.commit\"", "CrdsOutdated"),
        ] {
            let mut state = proposed();
            state.change(&key(), "p", &RecordChange::WithdrawalBegins);
            let lasting = || failed(code, message);
            for (outcome, is_reported) in [
                (failed(500, "no leader"), false),
                (lasting(), true),
                (lasting(), false),
                (stored(), false),
                (lasting(), true),
            ] {
                if !state.statuses.is_writing(&owner) {
                    state.change(&key(), "p", &RecordChange::Withdrawn);
                }
                let number = number(&mut state);
                state.status_written(&owner, number, outcome);
                let reported = state.effects.iter().filter_map(|effect| match effect {
                    Effect::SendEvent(PendingEvent::StatusNotWritten(about, why)) => {
                        Some((about.name.clone(), why.reason))
                    }
                    _ => None,
                });
                let expected = is_reported.then(|| (Some("p".into()), reason));
                assert_eq!(reported.collect::<Vec<_>>(), Vec::from_iter(expected));
            }
        }
    }
}
