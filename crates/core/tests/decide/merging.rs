//! When the change request of a promotion may be merged by whoever is to merge it.

use sluice_core::decide::Action;
use sluice_core::world::{Health, Target};

use crate::sim::Sim;

#[test]
fn a_change_request_may_be_merged_only_while_nothing_that_comes_first_speaks_against_it() {
    let may = |change: &dyn Fn(&mut Sim)| {
        let mut sim = Sim::three();
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
    let approved = |sim: &mut Sim| {
        sim.policy_of("staging").manual = true;
        sim.promotions[0].approved = true;
    };
    assert_eq!(may(&approved), [true]);
    assert_eq!(may(&|sim| sim.policy_of("staging").refused = Some("not that way".into())), [false]);
    // What is older than what runs there by now waits for a person; that one goes on to prod.
    assert_eq!(may(&|sim| sim.runs("staging", "s", "1.2.0", Health::Ready)), [false, true]);
    let unseen = |sim: &mut Sim| sim.world.insert("staging", "s", Target::unreadable("gone"));
    assert_eq!(may(&unseen), [false]);
}
