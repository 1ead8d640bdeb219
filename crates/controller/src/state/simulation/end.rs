//! The end of a history: all faults stop, and the controller comes to rest.

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, EffectFault, SECOND_DEV};

/// The seconds of quiet after which the controller has come to rest: longer than any pause and deadline.
const SETTLING_TIME: u64 = 2 * 3600;

/// The most seconds that pass in one step.
const MAX_STEP: u64 = 600;

impl ControllerSimulation {
    /// Carries out all effects and delivers all answers in order, with healthy targets, until nothing happens for
    /// hours.
    pub(super) fn settle(&mut self) {
        for environment in ENVIRONMENTS {
            let is_reachable = !self.is_eu_lost || environment != "prod";
            if is_reachable && !self.fleet[environment].is_healthy {
                self.set_healthy(environment, true);
            }
        }
        if self.has_requests {
            self.move_by_hand(SECOND_DEV, self.fleet["dev"].version);
        }
        let end = self.elapsed + SETTLING_TIME;
        // The longer nothing is written, the more time passes before the next step, as if the controller were late. Every
        // deadline comes. Polls of change requests are not skipped.
        let max_step = if self.has_requests { 1 } else { MAX_STEP };
        let (mut written, mut step) = (self.writes(), 1);
        for _ in 0..2000 {
            self.carry_out_all();
            let due = self.next_due().filter(|_| self.elapsed < end);
            let Some(due) = due else { return };
            if self.writes() == written {
                step = (step * 2).min(max_step);
            } else {
                (written, step) = (self.writes(), 1);
            }
            self.pass(due.max(step).min(end - self.elapsed));
        }
        panic!("the controller does not come to rest: {}", self.summary());
    }

    /// Carries out all effects and delivers all answers in order, until there are none.
    fn carry_out_all(&mut self) {
        for _ in 0..2000 {
            self.collect_garbage();
            while self.server.has_news() || !self.cluster_events.is_empty() {
                self.deliver_event();
                self.deliver_cluster_event();
            }
            if !self.pending.is_empty() {
                self.carry_out(0, EffectFault::None);
            }
            self.answer(0);
            ENVIRONMENTS.iter().for_each(|environment| self.apply_files(environment, true));
            let is_quiet =
                self.pending.is_empty() && self.answers.is_empty() && self.cluster_events.is_empty();
            if is_quiet && !self.server.has_news() {
                return;
            }
        }
        panic!("effects follow from effects without end: {:?}", self.pending.last());
    }

    /// In how many seconds the state has something to do if nothing else happens; `None` if never.
    fn next_due(&self) -> Option<u64> {
        let tick = self.state.next_tick();
        let tick = tick.map(|at| at.saturating_duration_since(self.now().instant).as_secs() + 1);
        let later = self.later.iter().map(|(at, _)| at.saturating_sub(self.elapsed));
        tick.into_iter().chain(later).min()
    }

    /// Hours pass at rest. Nothing is carried out.
    pub(super) fn pass_hours(&mut self) {
        for _ in 0..20 {
            if self.next_due().is_none() {
                return;
            }
            self.pass(600);
        }
    }

    /// How many effects were requested that write to the API server.
    fn writes(&self) -> usize {
        self.creations + self.pipeline_writes + self.promotion_writes
    }
}
