//! Objects whose status cannot be written, because labels or annotations of people have made them too large. The status
//! cannot say that, so an event does.

use kube::{Error, Resource};
use sluice_api::too_large::is_too_large;

use super::State;
use super::effect::Effect;
use super::status_queue::StatusOwner;
use crate::record::pending_event::PendingEvent;

impl State {
    /// Reports that the status of an object cannot be written, if that is the cause of the error.
    pub(super) fn report_too_large(&mut self, owner: &StatusOwner, error: &Error) {
        let Error::Api(status) = error else { return };
        if !is_too_large(status) || !self.statuses.begins_report(owner, self.now.instant) {
            return;
        }
        let object = match owner {
            StatusOwner::Pipeline(key) => self.pipelines.get(key).map(|entry| entry.object().object_ref(&())),
            StatusOwner::Promotion(key, name) => {
                self.record(key, name).map(|record| record.object().object_ref(&()))
            }
        };
        if let Some(object) = object {
            self.emit(Effect::SendEvent(PendingEvent::TooLarge(Box::new(object))));
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
    fn a_status_that_does_not_fit_is_reported_once_until_it_is_stored() {
        let owner = StatusOwner::Promotion(key(), "p".into());
        let mut state = proposed();
        state.change(&key(), "p", &RecordChange::WithdrawalBegins);
        let failed = |code, message: &str| {
            WriteOutcome::Failed(Error::Api(Status::failure(message, "").with_code(code).boxed()))
        };
        let stored = || WriteOutcome::Stored(StoredVersion { version: 9, is_over_edit: false });
        let too_large = || failed(500, "etcdserver: request is too large");
        for (outcome, is_reported) in [
            (failed(500, "no leader"), false),
            (too_large(), true),
            (too_large(), false),
            (stored(), false),
            (too_large(), true),
        ] {
            if !state.statuses.is_writing(&owner) {
                state.change(&key(), "p", &RecordChange::Withdrawn);
            }
            let number = number(&mut state);
            state.status_written(&owner, number, outcome);
            let reported = state.effects.iter().filter_map(|effect| match effect {
                Effect::SendEvent(PendingEvent::TooLarge(about)) => about.name.clone(),
                _ => None,
            });
            assert_eq!(reported.collect::<Vec<_>>(), Vec::from_iter(is_reported.then_some("p".to_string())));
        }
    }
}
