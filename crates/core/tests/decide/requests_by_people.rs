//! What people may write into promotions (approvals, rejections, retries), and what they may not (forged records).
//! A is 1.0.0, B is 1.1.0, C is 1.2.0.

use sluice_core::decide::Action;
use sluice_core::observed::Health;
use sluice_core::pipeline::MinReady;
use sluice_core::promotion::{GateKind, Phase, Promotion};

use crate::simulation::{Effect, Simulation, revision};
use crate::table::{A, B, C, proposed};

/// B waits for an approval before staging.
fn waiting() -> Simulation {
    let mut sim = Simulation::three();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Pending"]);
    sim
}

/// A record that somebody wrote by hand, with the highest possible numbers.
fn forged(sim: &Simulation, version: &str, phase: Phase) -> Promotion {
    Promotion {
        name: format!("staging-{version}"),
        revision: revision(version),
        arrival: 999_999,
        sequence: 999_999,
        approved: true,
        phase,
        ..sim.promotions[0].clone()
    }
}

#[test]
fn unproven_revisions_are_not_delivered_whatever_the_record_says() {
    for phase in [Phase::Pending, Phase::Promoting, Phase::Proposed] {
        for trigger in [None, Some("build-1".to_string())] {
            let mut sim = waiting();
            let record = Promotion { trigger, ..forged(&sim, "6.6.6", phase) };
            sim.promotions[0] = record;
            sim.settle();
            assert_eq!(sim.effects, [], "{phase:?}");
            let delivers = |action: &Action| matches!(action, Action::Deliver { .. });
            assert!(!sim.last.actions.iter().any(delivers), "{:?}", sim.last);
            assert!(
                sim.note("staging").contains("6.6.6 waits: it is not proven in dev"),
                "{}",
                sim.note("staging")
            );
            // The record is no evidence for later environments, and a newer revision replaces it.
            assert_eq!(sim.phases("prod"), Vec::<String>::new());
            sim.runs("dev", "d", C, Health::Ready);
            sim.settle();
            assert_eq!(sim.phases("staging"), ["6.6.6 Superseded", "1.2.0 Pending"]);
        }
    }
}

#[test]
fn an_approval_is_recorded_with_its_open_gate_before_the_delivery() {
    let mut sim = waiting();
    let shut = sim.promotions[0].gates.clone();
    assert!(shut.iter().any(|gate| gate.kind == GateKind::Approval && !gate.open), "{shut:?}");
    sim.promotions[0].approved = true;
    sim.step();
    let passed = sim.last.actions.iter().find_map(|action| match action {
        Action::Pass { gates, .. } => Some(gates.clone()),
        _ => None,
    });
    assert!(passed.is_some_and(|gates| gates.iter().all(|gate| gate.open && gate.message.is_empty())));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn a_rejection_ends_an_undelivered_promotion_and_closes_its_change_request() {
    let why = "rejected by jane: not before Monday";
    let mut pending = waiting();
    let mut proposed = waiting();
    proposed.promotions[0].approved = true;
    proposed.settle();
    for sim in [&mut pending, &mut proposed] {
        sim.promotions[0].rejected = Some(why.into());
        sim.promotions[0].retry = Some("before".into());
        sim.settle();
        assert_eq!(sim.phases("staging"), ["1.1.0 Rejected"]);
        assert_eq!((&sim.promotions[0].message, &sim.promotions[0].retry), (&why.into(), &None));
        assert!(sim.note("staging").contains(why), "{}", sim.note("staging"));
        assert_eq!(sim.open_requests("staging"), Vec::<&str>::new());
    }
    assert_eq!(pending.effects, []);
    let (opened, closed) = (Effect::Opened("staging".into(), B.into()), Effect::Closed("staging".into()));
    assert_eq!(proposed.effects, [opened, closed]);
    // An approval, before or after the rejection, does not revive the promotion; neither does an earlier retry
    // request. A newer revision is still promoted.
    pending.promotions[0].approved = true;
    pending.settle();
    assert_eq!(pending.phases("staging"), ["1.1.0 Rejected"]);
    pending.runs("dev", "d", C, Health::Ready);
    pending.settle();
    assert_eq!(pending.phases("staging"), ["1.1.0 Rejected", "1.2.0 Pending"]);
}

/// Both may be read at the same time, after a restart.
#[test]
fn a_rejection_of_a_failed_promotion_answers_an_earlier_request_for_another_try() {
    for phase in [Phase::Failed, Phase::Superseded, Phase::Cancelled] {
        let mut ended = waiting();
        let promotion = &mut ended.promotions[0];
        (promotion.phase, promotion.rejected) = (phase, Some("rejected by jane".into()));
        promotion.retry = Some("before".into());
        ended.step();
        assert_eq!(ended.phases("staging"), ["1.1.0 Rejected"], "{phase}");
        assert_eq!(ended.promotions[0].retry, None);
    }
}

#[test]
fn a_failed_promotion_can_be_rejected_and_a_suspended_one_closes_nothing() {
    let mut failed = waiting();
    (failed.promotions[0].phase, failed.promotions[0].rejected) =
        (Phase::Failed, Some("rejected by jane".into()));
    failed.settle();
    assert_eq!(failed.phases("staging"), ["1.1.0 Rejected"]);

    let mut sim = waiting();
    sim.promotions[0].approved = true;
    sim.settle();
    sim.pipeline.suspended = true;
    sim.promotions[0].rejected = Some("rejected by jane: no".into());
    sim.settle();
    assert_eq!(
        (sim.phases("staging"), sim.open_requests("staging")),
        (vec!["1.1.0 Rejected".into()], vec![B])
    );
    sim.pipeline.suspended = false;
    sim.settle();
    assert_eq!(sim.open_requests("staging"), Vec::<&str>::new());
}

#[test]
fn a_retried_manual_promotion_says_that_it_needs_a_new_approval() {
    let mut sim = waiting();
    assert!(
        sim.note("staging").contains("1.1.0 waits for approval: sluice approve"),
        "{}",
        sim.note("staging")
    );
    sim.promotions[0].approved = true;
    sim.settle();
    sim.close("staging");
    sim.promotions[0].retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Pending"]);
    let says = "waits for a new approval, since earlier approvals do not count any more: sluice approve";
    assert!(sim.promotions[0].message.contains(says), "{}", sim.promotions[0].message);
    assert!(sim.promotions[0].gates.iter().any(|gate| !gate.open && gate.message.contains(says)));
}

/// Nobody has retried it: the environment was moved ahead by hand after the approval.
#[test]
fn a_manual_promotion_whose_approval_is_outdated_does_not_say_that_it_was_retried() {
    let mut sim = waiting();
    sim.runs("staging", "s", C, Health::Ready);
    sim.promotions[0].approved = true;
    sim.settle();
    assert!(!sim.promotions[0].approved);
    let says =
        "1.1.0 waits for a new approval, since earlier approvals do not count any more: sluice approve";
    let note = sim.note("staging");
    assert!(note.contains(says) && note.contains("is held: it is older than 1.2.0"), "{note}");
}

#[test]
fn a_rejection_of_a_superseded_promotion_keeps_it_from_coming_back() {
    for phase in [Phase::Superseded, Phase::Cancelled] {
        let mut sim = waiting();
        sim.policy_of("staging").manual = false;
        (sim.promotions[0].phase, sim.promotions[0].rejected) = (phase, Some("rejected by jane: no".into()));
        sim.settle();
        assert_eq!(sim.phases("staging"), ["1.1.0 Rejected"], "{phase:?}");
        assert_eq!(sim.effects, []);
    }
}

/// The next revision may wait for days.
#[test]
fn a_rejection_closes_the_change_request_while_the_next_revision_waits() {
    for waits in [true, false] {
        let mut sim = proposed();
        sim.policy_of("staging").manual = waits;
        sim.runs("dev", "d", C, Health::Ready);
        sim.settle();
        assert_eq!(sim.open_requests("staging"), [if waits { B } else { C }]);
        sim.promotions[0].rejected = Some("rejected by ann: no".into());
        sim.settle();
        assert_eq!(sim.phases("staging")[0], "1.1.0 Rejected");
        assert_eq!(sim.open_requests("staging"), if waits { vec![] } else { vec![C] });
    }
}

/// It may have pushed its revision to the change request of an earlier promotion, and the answer was lost.
#[test]
fn a_rejection_closes_the_change_request_of_an_earlier_promotion_while_the_next_revision_waits() {
    let mut sim = proposed();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.open_requests("staging"), [B], "the next one will use it");
    sim.promotions[1].rejected = Some("rejected by ann: no".into());
    sim.runs("dev", "d", "1.3.0", Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Rejected", "1.3.0 Pending"]);
    assert_eq!(sim.open_requests("staging"), Vec::<&str>::new());
}

#[test]
fn a_rejected_revision_that_comes_back_stays_rejected_until_it_is_retried() {
    let mut sim = waiting();
    sim.policy_of("staging").manual = false;
    sim.promotions[0].rejected = Some("rejected by jane: no".into());
    sim.settle();
    for version in [A, B] {
        sim.runs("dev", "d", version, Health::Ready);
        sim.settle();
        assert_eq!(sim.phases("staging"), ["1.1.0 Rejected"], "dev runs {version}");
    }
    assert!(sim.note("staging").contains("will not be retried automatically"), "{}", sim.note("staging"));
    sim.promotions[0].rejected = None;
    sim.promotions[0].retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn a_retry_of_a_promotion_that_has_not_failed_is_declined_and_does_not_count_later() {
    for (phase, why) in
        [(Phase::Proposed, "its change request is open"), (Phase::Delivered, "waits for its targets")]
    {
        let mut sim = waiting();
        sim.promotions[0].approved = true;
        sim.settle();
        sim.promotions[0].phase = phase;
        sim.promotions[0].retry = Some("2026-11-22T10:00:00Z".into());
        sim.step();
        let answer = sim.last.actions.iter().find_map(|action| match action {
            Action::Move(to) if to.reason == "NotRetried" => Some(to.clone()),
            _ => None,
        });
        let answer = answer.unwrap();
        assert_eq!((answer.to, answer.answers.as_deref()), (phase, Some("2026-11-22T10:00:00Z")));
        assert!(answer.message.ends_with(why), "{}", answer.message);
        // If a person closes the change request later, that rejection counts, because the retry request is
        // answered.
        assert_eq!(sim.promotions[0].retry, None);
    }
}

/// Someone has put the revision into the base branch by hand.
#[test]
fn the_change_request_of_a_promotion_that_was_delivered_without_it_is_closed() {
    let mut sim = proposed();
    sim.promotions[0].phase = Phase::Delivered;
    assert_eq!(sim.open_requests("staging"), [B]);
    sim.settle();
    assert_eq!(
        (sim.phases("staging"), sim.open_requests("staging")),
        (vec!["1.1.0 Delivered".to_string()], vec![])
    );
}

/// B waits for approval into prod, which follows dev. The environment `other` stands beside them.
fn waiting_beside_another() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("other", &["o"]), ("prod", &["p"])]);
    sim.pipeline.environments[1].depends_on = Vec::new();
    sim.pipeline.environments[2].depends_on = vec!["dev".into()];
    sim.policy_of("prod").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim
}

/// The pipeline names another environment in `after` while the promotion waits for approval, and the approver does not see that.
#[test]
fn an_approved_promotion_whose_proof_is_gone_says_what_it_waits_for() {
    let mut sim = waiting_beside_another();
    let message = |sim: &Simulation| sim.promotions.last().unwrap().message.clone();
    assert!(message(&sim).contains("waits for approval"), "{}", message(&sim));
    sim.pipeline.environments[2].depends_on = vec!["other".into()];
    for approved in [false, true] {
        sim.promotions.last_mut().unwrap().approved = approved;
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
        assert!(message(&sim).contains("it is not proven in other"), "{}", message(&sim));
        assert_eq!(sim.promotions.last().unwrap().gates.iter().all(|gate| gate.open), approved);
    }
}

/// An approver has seen that prod goes back from 1.1.0. While that cannot be done, somebody moves prod ahead by hand.
#[test]
fn an_approval_to_go_back_does_not_allow_to_go_back_from_a_newer_revision() {
    for is_suspended in [true, false] {
        let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
        sim.runs("prod", "p", B, Health::Ready);
        sim.settle();
        sim.policy_of("prod").allow_downgrade = false;
        sim.runs("dev", "eu", "1.0.5", Health::Ready);
        sim.settle();
        assert!(sim.note("prod").contains("it is older than 1.1.0"), "{}", sim.note("prod"));
        sim.pipeline.suspended = is_suspended;
        sim.policy_of("prod").min_ready = MinReady::Percent(100);
        sim.promotions.last_mut().unwrap().approved = true;
        sim.settle();
        sim.runs("prod", "p", C, Health::Ready);
        sim.settle();
        sim.pipeline.suspended = false;
        sim.runs("dev", "us", "1.0.5", Health::Ready);
        sim.settle();
        assert_eq!((sim.phases("prod").last().unwrap().as_str(), &sim.effects), ("1.0.5 Pending", &vec![]));
        assert!(sim.note("prod").contains("it is older than 1.2.0"), "{}", sim.note("prod"));
        // A new approval allows that, and also to go back from an older revision.
        sim.promotions.last_mut().unwrap().approved = true;
        sim.runs("prod", "p", B, Health::Ready);
        sim.settle();
        assert_eq!(sim.phases("prod").last().unwrap(), "1.0.5 Proposed");
    }
}

/// Builds with a hash cannot be compared. Somebody moves one of two targets ahead after the approval.
#[test]
fn an_approval_to_go_back_from_one_build_does_not_allow_to_go_back_from_another() {
    let [old, seen, other] = ["1.0.0-aaaaaa1", "1.0.0-cccccc3", "1.0.0-dddddd4"];
    for moved in [seen, other] {
        let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
        for (version, targets) in [(old, ["eu", "us"]), (seen, ["eu", "us"])] {
            targets.iter().for_each(|target| sim.runs("prod", target, version, Health::Ready));
            sim.settle();
        }
        sim.policy_of("prod").allow_downgrade = false;
        sim.runs("dev", "d", old, Health::Ready);
        sim.settle();
        let held = format!("it is older than {seen}, which prod runs");
        assert!(sim.note("prod").contains(&held), "{}", sim.note("prod"));
        sim.pipeline.suspended = true;
        sim.promotions.last_mut().unwrap().approved = true;
        sim.settle();
        sim.runs("prod", "us", moved, Health::Ready);
        sim.pipeline.suspended = false;
        sim.settle();
        let phase = if moved == seen { "Proposed" } else { "Pending" };
        assert_eq!(sim.phases("prod").last().unwrap(), &format!("{old} {phase}"), "{moved}");
    }
}

/// The pipeline names an environment in `after` that runs nothing.
#[test]
fn an_approved_promotion_says_what_it_waits_for_while_nothing_at_all_is_proven() {
    let mut sim = waiting_beside_another();
    sim.pipeline.environments[2].depends_on = vec!["other".into()];
    sim.pipeline.environments[1].targets.clear();
    for approved in [false, true] {
        sim.promotions.last_mut().unwrap().approved = approved;
        sim.settle();
        assert_eq!((sim.phases("prod"), &sim.effects), (vec!["1.1.0 Pending".to_string()], &vec![]));
        let promotion = sim.promotions.last().unwrap();
        assert!(promotion.message.contains("and no other revision is"), "{}", promotion.message);
        assert_eq!(promotion.gates.iter().all(|gate| gate.open), approved);
        assert!(sim.note("prod").contains("1.1.0 waits: it is not proven in other"), "{}", sim.note("prod"));
    }
}

/// While the proof is missing, somebody moves prod ahead by hand. The approver has not seen that.
#[test]
fn an_approval_from_before_the_environment_was_moved_ahead_does_not_allow_to_go_back() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").manual = true;
    sim.runs("dev", "eu", B, Health::Ready);
    sim.settle();
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    sim.promotions[0].approved = true;
    sim.settle();
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    sim.runs("dev", "us", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
    assert!(sim.note("prod").contains("it is older than 1.2.0"), "{}", sim.note("prod"));
}
