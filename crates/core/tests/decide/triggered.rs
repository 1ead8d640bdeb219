//! Revisions that a caller of `/trigger` requests for the first environment, and reports of webhook receivers.

use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::promotion::{Phase, ReceiverReport};

use crate::simulation::Simulation;

const A: &str = "1.0.0";
const B: &str = "1.1.0";
const C: &str = "1.2.0";

#[test]
fn a_requested_revision_goes_into_the_first_environment_and_on_from_there() {
    let mut sim = Simulation::three();
    sim.trigger("dev", B, "build-1");
    assert_eq!(sim.phases("dev"), ["1.1.0 Proposed"]);
    assert_eq!(sim.step(), 0, "nothing more is done");
    sim.merge("dev");
    assert_eq!(sim.phases("staging"), Vec::<String>::new());
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(
        (sim.phases("dev"), sim.phases("staging")),
        (vec!["1.1.0 Succeeded".into()], vec!["1.1.0 Proposed".into()])
    );
    // Another key requests the same revision, which runs there already.
    sim.trigger("dev", B, "build-2");
    assert_eq!(sim.phases("dev"), ["1.1.0 Succeeded", "1.1.0 Succeeded"]);
    assert_eq!(sim.requests.len(), 2);
}

#[test]
fn a_later_request_takes_over_the_open_change_request() {
    let mut sim = Simulation::three();
    sim.trigger("dev", B, "build-1");
    sim.trigger("dev", C, "build-2");
    assert_eq!(sim.phases("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    assert_eq!(sim.open_requests("dev"), [C]);
    sim.promotion("dev-build-1").retry = Some("now".into());
    sim.settle();
    assert!(sim.promotion("dev-build-1").message.contains("a later call (key build-2) requested"));
    assert_eq!(sim.phases("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    sim.close("dev");
    assert_eq!(sim.phases("dev"), ["1.1.0 Superseded", "1.2.0 Rejected"]);
    sim.promotion("dev-build-2").retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.phases("dev"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn a_request_with_another_key_does_not_overrule_a_rejection() {
    let mut sim = Simulation::three();
    sim.trigger("dev", B, "build-1");
    sim.promotion("dev-build-1").rejected = Some("rejected by ann: no".into());
    sim.settle();
    assert_eq!(sim.phases("dev"), ["1.1.0 Rejected"]);
    // The second one takes the place of a request that was held too.
    for key in ["build-2", "build-3"] {
        sim.trigger("dev", B, key);
        assert_eq!(sim.promotion(&format!("dev-{key}")).phase, Phase::Pending);
        assert!(sim.note("dev").contains("since dev-build-1 of the same revision was rejected"));
    }
    sim.trigger("dev", C, "build-4");
    assert_eq!(sim.promotion("dev-build-4").phase, Phase::Proposed, "another revision is not held");
    sim.close("dev");
    sim.trigger("dev", B, "build-5");
    assert_eq!(sim.promotion("dev-build-5").phase, Phase::Pending);
    sim.promotion("dev-build-5").approved = true;
    sim.settle();
    sim.merge("dev");
    sim.runs("dev", "d", A, Health::Ready);
    sim.trigger("dev", B, "build-6");
    assert_eq!(sim.promotion("dev-build-6").phase, Phase::Proposed, "it was promoted since");
}

#[test]
fn simultaneous_requests_have_one_order_whichever_is_seen_first() {
    for turned in [false, true] {
        let mut sim = Simulation::three();
        sim.trigger("dev", B, "build-1");
        sim.trigger("dev", C, "build-2");
        // Two replicas have given the same sequence number at the same moment.
        sim.promotions.iter_mut().for_each(|p| p.sequence = 1);
        if turned {
            sim.promotions.reverse();
        }
        sim.settle();
        sim.merge("dev");
        // Both promotions have the same change request, so Sluice does not close that of the first one.
        assert_eq!(sim.promotion("dev-build-1").phase, Phase::Superseded, "{turned}");
        assert_eq!(sim.promotion("dev-build-2").phase, Phase::Delivered, "{turned}");
        sim.promotion("dev-build-1").phase = Phase::Delivered;
        sim.settle();
        assert_eq!(sim.promotion("dev-build-1").phase, Phase::Superseded, "{turned}: superseded");
    }
}

#[test]
fn promotions_from_a_removed_environment_end() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
    sim.pipeline.environments.remove(0);
    sim.pipeline.environments[0].depends_on.clear();
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Cancelled"]);
    assert_eq!(sim.open_requests("staging"), [] as [&str; 0]);
    sim.trigger("staging", C, "build-1");
    assert_eq!(sim.phases("staging"), ["1.1.0 Cancelled", "1.2.0 Proposed"]);
}

#[test]
fn gates_suspension_and_unreadable_targets_hold_a_requested_revision() {
    let mut sim = Simulation::three();
    sim.policy_of("dev").manual = true;
    sim.trigger("dev", B, "build-1");
    assert!(sim.note("dev").contains("waits for approval"), "{}", sim.note("dev"));
    sim.promotion("dev-build-1").approved = true;
    sim.pipeline.suspended = true;
    sim.settle();
    assert_eq!((sim.phases("dev"), sim.effects.len()), (vec!["1.1.0 Pending".into()], 0));
    sim.pipeline.suspended = false;
    sim.cannot_be_read("dev", "d");
    sim.settle();
    assert!(sim.note("dev").contains("no target can be read"), "{}", sim.note("dev"));
    sim.runs("dev", "d", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("dev"), ["1.1.0 Proposed"]);
    // A downgrade is held in the first environment too.
    sim.policy_of("dev").manual = false;
    sim.trigger("dev", "0.9.0", "build-2");
    assert!(sim.note("dev").contains("older than 1.0.0"), "{}", sim.note("dev"));
}

#[test]
fn a_requested_revision_can_be_approved_while_no_target_can_be_read() {
    let mut sim = Simulation::three();
    sim.policy_of("dev").manual = true;
    sim.cannot_be_read("dev", "d");
    sim.trigger("dev", B, "build-1");
    let recorded = sim.promotion("dev-build-1").clone();
    assert_eq!(recorded.message, "1.1.0 waits: no target can be read: the cluster is gone");
    assert!(!recorded.gates[0].open, "{recorded:?}");

    sim.promotion("dev-build-1").approved = true;
    sim.settle();
    let noted = sim.promotion("dev-build-1").clone();
    assert!(noted.gates[0].open, "{noted:?}");

    // Another cause is not recorded: a connection may come and go.
    sim.observed.insert("dev", "d", ObservedTarget::unreadable("timed out"));
    sim.settle();
    assert_eq!(sim.promotion("dev-build-1").message, noted.message);

    sim.runs("dev", "d", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("dev"), ["1.1.0 Proposed"]);
}

#[test]
fn a_promotion_that_becomes_refused_ends_once() {
    let mut sim = Simulation::three();
    sim.policy_of("dev").manual = true;
    sim.policy_of("staging").manual = true;
    sim.trigger("dev", B, "build-1");
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    for environment in ["dev", "staging"] {
        sim.policy_of(environment).refused = Some("cannot be done".into());
        sim.settle();
        assert!(sim.phases(environment)[0].ends_with("Cancelled"), "{:?}", sim.phases(environment));
        assert_eq!(sim.note(environment), "cannot be done");
        sim.policy_of(environment).refused = None;
        sim.settle();
        assert!(sim.phases(environment)[0].ends_with("Pending"), "{:?}", sim.phases(environment));
    }
}

#[test]
fn the_receivers_report_counts_except_for_success() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.merge("staging");
    let name = sim.promotions[0].name.clone();
    sim.promotion(&name).report = Some(ReceiverReport::Accepted("job 7".into()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    assert!(sim.promotion(&name).message.starts_with("the receiver has accepted it: job 7"));
    sim.promotion(&name).report = Some(ReceiverReport::Done(String::new()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    sim.promotion(&name).report = Some(ReceiverReport::Failed("disk full".into()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    assert_eq!(sim.promotion(&name).message, "the receiver reports that it has failed: disk full");
    // If the targets run the revision later, the promotion succeeds after all.
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn a_failure_that_the_receiver_fixed_needs_no_retry() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.merge("staging");
    let name = sim.promotions[0].name.clone();
    sim.promotion(&name).report = Some(ReceiverReport::Failed("disk full".into()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    sim.promotion(&name).report = Some(ReceiverReport::Fixed("run 8".into()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    let waits = "the receiver reports that it is done: run 8; waits for the targets to run it";
    assert_eq!(sim.promotion(&name).message, waits);
    // From then on `Done` counts as in any other promotion.
    sim.promotion(&name).report = Some(ReceiverReport::Done("run 8".into()));
    sim.settle();
    assert_eq!(sim.step(), 0, "and nothing more");
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn a_report_shows_that_the_call_has_arrived() {
    let mut sim = Simulation::three();
    // As after a call whose answer was lost.
    sim.refuses = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Promoting"]);
    let name = sim.promotions[0].name.clone();
    sim.promotion(&name).report = Some(ReceiverReport::Failed("no".into()));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    assert_eq!(sim.effects, [], "it is not delivered again");
}

#[test]
fn a_report_replaces_neither_an_approval_nor_the_call() {
    let reports = [
        ReceiverReport::Accepted(String::new()),
        ReceiverReport::Done(String::new()),
        ReceiverReport::Failed("no".into()),
        ReceiverReport::Fixed(String::new()),
    ];
    let mut not_approved = Simulation::three();
    not_approved.policy_of("staging").manual = true;
    not_approved.runs("dev", "d", B, Health::Ready);
    not_approved.settle();

    let mut not_called = Simulation::three();
    not_called.runs("dev", "d", B, Health::Ready);
    not_called.step();
    not_called.pipeline.suspended = true;

    let mut asked_after_the_call = Simulation::three();
    asked_after_the_call.refuses = true;
    asked_after_the_call.runs("dev", "d", B, Health::Ready);
    asked_after_the_call.settle();
    asked_after_the_call.policy_of("staging").manual = true;

    for (mut sim, phase) in [
        (not_approved, "1.1.0 Pending"),
        (not_called, "1.1.0 Pending"),
        (asked_after_the_call, "1.1.0 Promoting"),
    ] {
        let name = sim.promotions[0].name.clone();
        for report in reports.clone() {
            sim.promotion(&name).report = Some(report.clone());
            sim.settle();
            assert_eq!(sim.phases("staging"), [phase], "{report:?}");
        }
    }
}
