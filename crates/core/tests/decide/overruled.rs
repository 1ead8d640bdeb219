//! Approvals that were given for something else, and rejections that something else would overrule. A is 1.0.0, B is 1.1.0,
//! C is 1.2.0.

use jiff::SignedDuration;
use sluice_core::decide::Action;
use sluice_core::observed::Health;
use sluice_core::pipeline::MinReady;
use sluice_core::promotion::Phase;

use crate::simulation::{Simulation, member, shows};
use crate::table::{A, B, C};

/// dev → prod, where B was approved and cannot be delivered.
fn approved_and_refused() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    (sim.commits, sim.refuses) = (true, true);
    let policy = sim.policy_of("prod");
    (policy.manual, policy.min_ready) = (true, MinReady::Percent(100));
    ["eu", "us"].iter().for_each(|target| sim.runs("dev", target, B, Health::Ready));
    sim.settle();
    sim.promotions[0].approved = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Promoting"]);
    sim
}

#[test]
fn an_approval_from_before_prod_was_moved_ahead_by_hand_does_not_allow_to_go_back() {
    let mut sim = approved_and_refused();
    sim.refuses = false;
    sim.now += SignedDuration::from_mins(1);
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    assert_eq!((sim.phases("prod"), sim.effects.len()), (vec!["1.1.0 Pending".to_string()], 0));
    assert_eq!((sim.promotions[0].approved, sim.promotions[0].retries), (false, 1));
    assert!(sim.note("prod").contains("it is older than 1.2.0, which prod runs"), "{}", sim.note("prod"));
    // An approval of the question that is shown now counts.
    sim.promotions[0].approved = true;
    sim.settle();
    assert_eq!((sim.phases("prod"), sim.promotions[0].retries), (vec!["1.1.0 Delivered".to_string()], 1));
}

#[test]
fn an_approved_change_request_is_not_merged_after_prod_was_moved_ahead_by_hand() {
    let mut sim = approved_and_refused();
    (sim.commits, sim.refuses) = (false, false);
    sim.now += SignedDuration::from_mins(1);
    sim.settle();
    let merges = |sim: &Simulation| {
        sim.last.actions.iter().any(|action| matches!(action, Action::Follow { may_merge: true, .. }))
    };
    assert_eq!((sim.phases("prod"), merges(&sim)), (vec!["1.1.0 Proposed".to_string()], true));
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    assert_eq!((sim.phases("prod"), merges(&sim)), (vec!["1.1.0 Proposed".to_string()], false));
    assert!(
        sim.note("prod").contains("merge its change request by hand, or close it"),
        "{}",
        sim.note("prod")
    );
}

/// A failed promotion starts again automatically, but not with an approval from before another one was delivered.
#[test]
fn an_approval_of_a_failed_promotion_ends_with_a_later_delivery() {
    let mut sim = approved_and_refused();
    sim.promotions[0].phase = Phase::Failed;
    sim.refuses = false;
    ["eu", "us"].iter().for_each(|target| sim.runs("dev", target, C, Health::Ready));
    sim.settle();
    sim.promotions[1].approved = true;
    sim.settle();
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Failed", "1.2.0 Succeeded"]);
    sim.runs("prod", "p", A, Health::Ready);
    sim.runs("dev", "eu", B, Health::Ready);
    sim.promotions[0].resumes = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending", "1.2.0 Succeeded"]);
    assert_eq!(sim.promotions[0].retries, 1);
    assert_eq!(sim.undone, [B], "a receiver is called again");
}

/// dev and prod have two releases; those of prod are on two clusters.
fn two_releases() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
    for (environment, target, version) in [("dev", "d", B), ("prod", "us", A)] {
        both_run(&mut sim, environment, target, version);
    }
    sim
}

fn both_run(sim: &mut Simulation, environment: &str, target: &str, version: &str) {
    let mut shown = shows(version, Health::Ready);
    let mut side = shows(version, Health::Ready);
    member(&mut side).name = "side".into();
    shown.members.append(&mut side.members);
    sim.observed.insert(environment, target, shown);
}

#[test]
fn a_rejected_revision_does_not_come_back_in_part_while_a_target_cannot_be_read() {
    for first_unreadable in [false, true] {
        let mut sim = two_releases();
        let unreadable = |sim: &mut Simulation, is: bool| match is {
            true => sim.cannot_be_read("prod", "us"),
            false => both_run(sim, "prod", "us", A),
        };
        unreadable(&mut sim, first_unreadable);
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
        sim.promotions[0].rejected = Some("rejected by ann: no".into());
        sim.settle();
        unreadable(&mut sim, !first_unreadable);
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.1.0 Pending"], "{first_unreadable}");
        assert_eq!(sim.open_requests("prod"), Vec::<&str>::new());
        let expected = format!("waits for approval, since {} of the same revision", sim.promotions[0].name);
        assert!(sim.note("prod").contains(&expected), "{}", sim.note("prod"));
        sim.promotions[1].approved = true;
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.1.0 Proposed"]);
        if !first_unreadable {
            // The approval of one release is none for both.
            sim.merge("prod");
            both_run(&mut sim, "dev", "d", A);
            sim.settle();
            both_run(&mut sim, "dev", "d", B);
            unreadable(&mut sim, false);
            sim.settle();
            assert_eq!(sim.open_requests("prod"), Vec::<&str>::new(), "{:?}", sim.phases("prod"));
            assert_ne!(sim.note("prod"), "");
        }
    }
}

/// The revision came back, so that it has two records. Its approver rejects the earlier one.
#[test]
fn a_rejection_of_an_earlier_record_holds_the_later_one() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.refuses = true;
    for version in [B, C, B] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Superseded", "1.1.0 Promoting"]);
    sim.promotions[0].rejected = Some("rejected by ann: no".into());
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.2.0 Superseded", "1.1.0 Promoting"]);
    assert!(sim.note("prod").contains("of the same revision was rejected"), "{}", sim.note("prod"));
    sim.refuses = false;
    sim.now += SignedDuration::from_mins(1);
    sim.settle();
    assert_eq!(sim.effects, []);
}

/// Both are read together after a restart. Then prod goes back, and dev comes back to the revision.
#[test]
fn a_rejection_counts_although_prod_was_moved_to_the_revision_by_hand() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.refuses = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.promotions[0].rejected = Some("rejected by ann: no".into());
    sim.runs("prod", "p", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected"]);
    sim.runs("prod", "p", A, Health::Ready);
    for version in [A, B] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected"]);
}

/// B was delivered again after C: git has B.
#[test]
fn a_revision_older_than_the_one_that_was_delivered_again_is_held() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.commits = true;
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    let dev = |sim: &mut Simulation, versions: [&str; 2]| {
        ["eu", "us"].iter().zip(versions).for_each(|(t, version)| sim.runs("dev", t, version, Health::Ready));
        sim.settle();
    };
    dev(&mut sim, [C, C]);
    sim.policy_of("prod").allow_downgrade = true;
    dev(&mut sim, [B, B]);
    sim.now += SignedDuration::from_mins(1);
    dev(&mut sim, [C, B]);
    assert_eq!(sim.phases("prod"), ["1.2.0 Delivered", "1.1.0 Delivered"]);
    sim.policy_of("prod").allow_downgrade = false;
    dev(&mut sim, ["1.1.5", "1.1.5"]);
    assert_eq!(sim.phases("prod"), ["1.2.0 Superseded", "1.1.0 Delivered", "1.1.5 Pending"]);
}

/// The promotion of both releases was superseded by one of a part, and starts again on its own.
#[test]
fn an_earlier_record_does_not_overrule_the_rejection_of_a_later_one() {
    for manual in [false, true] {
        let mut sim = two_releases();
        sim.refuses = true;
        sim.policy_of("prod").manual = manual;
        sim.settle();
        sim.promotions[0].approved = manual;
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Promoting"]);
        sim.cannot_be_read("prod", "us");
        sim.settle();
        assert_eq!(sim.promotions[0].phase, Phase::Superseded);
        sim.promotions[1].rejected = Some("rejected by ann: no".into());
        sim.settle();
        sim.refuses = false;
        both_run(&mut sim, "prod", "us", A);
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Pending", "1.1.0 Rejected"]);
        let expected = format!("waits for approval, since {} of the same revision", sim.promotions[1].name);
        assert!(sim.note("prod").contains(&expected), "{}", sim.note("prod"));
        assert_eq!(sim.effects, []);
        sim.promotions[0].approved = true;
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Proposed", "1.1.0 Rejected"]);
    }
}

/// One approver approved the second try of a revision, and another one rejects the first, which had failed.
#[test]
fn an_approval_ends_with_the_rejection_of_another_record_of_the_revision() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.refuses = true;
    sim.policy_of("prod").manual = true;
    for version in [B, C, B] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
    }
    sim.promotions[0].phase = Phase::Failed;
    sim.promotions[2].approved = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Failed", "1.2.0 Superseded", "1.1.0 Promoting"]);
    sim.promotions[0].rejected = Some("rejected by ann: no".into());
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.2.0 Superseded", "1.1.0 Pending"]);
    assert_eq!((sim.promotions[2].approved, sim.promotions[2].retries), (false, 1));
    (sim.refuses, sim.promotions[2].approved) = (false, true);
    sim.now += SignedDuration::from_mins(1);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.2.0 Superseded", "1.1.0 Proposed"]);
}
