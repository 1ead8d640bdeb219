//! What is asked for from outside goes into the first environment, and what those who were called say of it.

use sluice_core::model::{Phase, Said};
use sluice_core::world::Health;

use crate::sim::Sim;

const A: &str = "1.0.0";
const B: &str = "1.1.0";
const C: &str = "1.2.0";

#[test]
fn what_is_asked_for_goes_into_the_first_environment_and_on_from_there() {
    let mut sim = Sim::three();
    sim.trigger("dev", B, "build-1");
    assert_eq!(sim.story("dev"), ["1.1.0 Proposed"]);
    assert_eq!(sim.step(), 0, "it is left in peace");
    sim.merge("dev");
    assert_eq!(sim.story("staging"), Vec::<String>::new());
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(
        (sim.story("dev"), sim.story("staging")),
        (vec!["1.1.0 Succeeded".into()], vec!["1.1.0 Proposed".into()])
    );
    // Asked for again by another key: it runs there.
    sim.trigger("dev", B, "build-2");
    assert_eq!(sim.story("dev"), ["1.1.0 Succeeded", "1.1.0 Succeeded"]);
    assert_eq!(sim.requests.len(), 2);
}

#[test]
fn what_is_asked_for_later_takes_over_the_open_change_request() {
    let mut sim = Sim::three();
    sim.trigger("dev", B, "build-1");
    sim.trigger("dev", C, "build-2");
    assert_eq!(sim.story("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    assert_eq!(sim.open_requests("dev"), [C]);
    sim.promotion("dev-build-1").retry = Some("now".into());
    sim.settle();
    assert!(sim.promotion("dev-build-1").message.contains("asked for after it, by key build-2"));
    assert_eq!(sim.story("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    sim.close("dev");
    assert_eq!(sim.story("dev"), ["1.1.0 Superseded", "1.2.0 Rejected"]);
    sim.promotion("dev-build-2").retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.story("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn two_that_were_asked_for_at_once_are_in_line_whichever_is_seen_first() {
    for turned in [false, true] {
        let mut sim = Sim::three();
        sim.trigger("dev", B, "build-1");
        sim.trigger("dev", C, "build-2");
        // Two replicas have counted in the same moment.
        sim.promotions.iter_mut().for_each(|p| p.sequence = 1);
        if turned {
            sim.promotions.reverse();
        }
        sim.settle();
        sim.merge("dev");
        // Both are one change request's: what the first has of it is not taken back.
        assert_eq!(sim.promotion("dev-build-1").phase, Phase::Superseded, "{turned}");
        assert_eq!(sim.promotion("dev-build-2").phase, Phase::Delivered, "{turned}");
        sim.promotion("dev-build-1").phase = Phase::Delivered;
        sim.settle();
        assert_eq!(sim.promotion("dev-build-1").phase, Phase::Superseded, "{turned}: overtaken");
    }
}

#[test]
fn what_came_from_an_environment_that_is_gone_ends() {
    let mut sim = Sim::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Proposed"]);
    sim.pipeline.environments.remove(0);
    sim.pipeline.environments[0].after.clear();
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Cancelled"]);
    assert_eq!(sim.open_requests("staging"), [] as [&str; 0]);
    sim.trigger("staging", C, "build-1");
    assert_eq!(sim.story("staging"), ["1.1.0 Cancelled", "1.2.0 Proposed"]);
}

#[test]
fn gates_suspension_and_unreadable_targets_hold_what_is_asked_for() {
    let mut sim = Sim::three();
    sim.policy_of("dev").manual = true;
    sim.trigger("dev", B, "build-1");
    assert!(sim.note("dev").contains("waits for approval"), "{}", sim.note("dev"));
    sim.promotion("dev-build-1").approved = true;
    sim.pipeline.suspended = true;
    sim.settle();
    assert_eq!((sim.story("dev"), sim.effects.len()), (vec!["1.1.0 Pending".into()], 0));
    sim.pipeline.suspended = false;
    sim.cannot_be_read("dev", "d");
    sim.settle();
    assert!(sim.note("dev").contains("no target can be read"), "{}", sim.note("dev"));
    sim.runs("dev", "d", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("dev"), ["1.1.0 Proposed"]);
    // Going back is held there too.
    sim.policy_of("dev").manual = false;
    sim.trigger("dev", "0.9.0", "build-2");
    assert!(sim.note("dev").contains("older than 1.0.0"), "{}", sim.note("dev"));
}

#[test]
fn what_is_refused_while_it_is_in_hand_comes_to_rest() {
    let mut sim = Sim::three();
    sim.policy_of("dev").manual = true;
    sim.policy_of("staging").manual = true;
    sim.trigger("dev", B, "build-1");
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    for environment in ["dev", "staging"] {
        sim.policy_of(environment).refused = Some("cannot be done".into());
        sim.settle();
        assert!(sim.story(environment)[0].ends_with("Cancelled"), "{:?}", sim.story(environment));
        assert_eq!(sim.note(environment), "cannot be done");
        sim.policy_of(environment).refused = None;
        sim.settle();
        assert!(sim.story(environment)[0].ends_with("Pending"), "{:?}", sim.story(environment));
    }
}

#[test]
fn those_who_were_called_are_taken_at_their_word_but_for_success() {
    let mut sim = Sim::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.merge("staging");
    let name = sim.promotions[0].name.clone();
    sim.promotion(&name).said = Some(Said::Accepted("job 7".into()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
    assert!(sim.promotion(&name).message.starts_with("the other side has taken it: job 7"));
    sim.promotion(&name).said = Some(Said::Done(String::new()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
    sim.promotion(&name).said = Some(Said::Failed("disk full".into()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    assert_eq!(sim.promotion(&name).message, "the other side says that it has failed: disk full");
    // What runs there after all has arrived after all.
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn a_failure_that_the_other_side_fixed_needs_no_retry() {
    let mut sim = Sim::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.merge("staging");
    let name = sim.promotions[0].name.clone();
    sim.promotion(&name).said = Some(Said::Failed("disk full".into()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    sim.promotion(&name).said = Some(Said::Fixed("run 8".into()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Delivered"]);
    let waits = "the other side says that it is done: run 8; waits for the targets to run it";
    assert_eq!(sim.promotion(&name).message, waits);
    // From then on it is a word like any other.
    sim.promotion(&name).said = Some(Said::Done("run 8".into()));
    sim.settle();
    assert_eq!(sim.step(), 0, "and nothing more");
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn a_word_from_the_other_side_shows_that_the_call_arrived() {
    let mut sim = Sim::three();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    let name = sim.promotions[0].name.clone();
    // As after a call whose answer was lost.
    sim.promotion(&name).phase = Phase::Promoting;
    sim.promotion(&name).said = Some(Said::Failed("no".into()));
    sim.settle();
    assert_eq!(sim.story("staging"), ["1.1.0 Failed"]);
    assert_eq!(sim.effects, [], "it is not delivered again");
}
