//! When the change request of a promotion may be merged.

use sluice_core::decide::Action;
use sluice_core::observed::{Health, ObservedTarget};

use crate::simulation::Simulation;

#[test]
fn a_change_request_may_be_merged_only_while_all_gates_are_open() {
    let may = |change: &dyn Fn(&mut Simulation)| {
        let mut sim = Simulation::three();
        sim.runs("dev", "d", "1.1.0", Health::Ready);
        sim.settle();
        change(&mut sim);
        sim.settle();
        let follows = sim.last.actions.iter().filter_map(|action| match action {
            Action::Follow { may_merge, .. } => Some(*may_merge),
            _ => None,
        });
        follows.collect::<Vec<_>>()
    };
    assert_eq!(may(&|_| {}), [true]);
    assert_eq!(may(&|sim| sim.pipeline.suspended = true), [false]);
    assert_eq!(may(&|sim| sim.policy_of("staging").manual = true), [false]);
    let approved = |sim: &mut Simulation| {
        sim.policy_of("staging").manual = true;
        sim.promotions[0].approved = true;
    };
    assert_eq!(may(&approved), [true]);
    assert_eq!(may(&|sim| sim.policy_of("staging").refused = Some("not that way".into())), [false]);
    // If staging runs a newer revision by now, the older one waits for a person. The newer one is proposed for
    // prod.
    assert_eq!(may(&|sim| sim.runs("staging", "s", "1.2.0", Health::Ready)), [false, true]);
    let unseen =
        |sim: &mut Simulation| sim.observed.insert("staging", "s", ObservedTarget::unreadable("gone"));
    assert_eq!(may(&unseen), [false]);
}

#[test]
fn a_gate_that_closes_after_the_proposal_says_why_nothing_is_merged() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", "1.1.0", Health::Ready);
    sim.settle();
    sim.runs("staging", "s", "1.2.0", Health::Ready);
    sim.settle();
    let expected = "1.1.0 is held: it is older than 1.2.0, which staging runs; merge its change request by hand, or close it";
    assert_eq!(sim.note("staging"), expected);
}
