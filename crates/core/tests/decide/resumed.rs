//! Promotions that continue when the cause of a failure is gone, and commits that are made again. B is 1.1.0, C is
//! 1.2.0.

use jiff::SignedDuration;
use sluice_core::decide::Action;
use sluice_core::observed::Health;
use sluice_core::pipeline::MinReady;
use sluice_core::promotion::{Gate, GateKind, Phase};
use sluice_core::repository::Repository;

use crate::simulation::{Effect, Simulation};
use crate::table::{A, B, C, proposed};

#[test]
fn a_failed_delivery_succeeds_after_its_owner_has_corrected_the_cause() {
    let mut sim = Simulation::three();
    sim.refuses = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Promoting"]);
    assert_eq!(sim.note("staging"), "no file has the marker");
    sim.refuses = false;
    let (mut retried, mut newer) = (sim.clone(), sim.clone());
    sim.now += SignedDuration::from_mins(1);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
    // A retry by a person does not wait for the next attempt, and neither does a newer revision.
    retried.promotions[0].retry = Some("2026".into());
    retried.settle();
    assert_eq!(retried.phases("staging"), ["1.1.0 Proposed"]);
    newer.runs("dev", "d", C, Health::Ready);
    newer.settle();
    assert_eq!(newer.phases("staging"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn a_failed_promotion_starts_again_if_its_cause_is_gone_or_when_a_person_retries_it() {
    let mut sim = proposed();
    sim.close("staging");
    sim.promotions[0].phase = Phase::Failed;
    sim.promotions[0].message = "disk full".into();
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    assert!(sim.note("staging").contains("will not be retried automatically"), "{}", sim.note("staging"));

    let mut resumes = sim.clone();
    resumes.promotions[0].resumes = true;
    resumes.settle();
    assert_eq!(resumes.phases("staging"), ["1.1.0 Proposed"]);

    sim.promotions[0].retry = Some("2026".into());
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn an_approval_from_before_a_later_delivery_does_not_allow_to_go_back() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    (sim.commits, sim.refuses) = (true, true);
    let policy = sim.policy_of("prod");
    (policy.manual, policy.min_ready) = (true, MinReady::Percent(100));
    for revision in [B, C] {
        ["eu", "us"].iter().for_each(|target| sim.runs("dev", target, revision, Health::Ready));
        sim.settle();
        sim.promotions.last_mut().unwrap().approved = true;
        sim.settle();
        sim.refuses = false;
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Delivered"]);
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    // One target alone makes B the newest again.
    sim.runs("dev", "eu", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending", "1.2.0 Succeeded"]);
    assert!(sim.note("prod").contains("it is older than 1.2.0"), "{}", sim.note("prod"));
}

/// B was proposed, then C, and then B again. C has handed over the change request.
#[test]
fn a_promotion_that_started_again_and_is_rejected_leaves_no_change_request() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    for (targets, revision) in [(&["eu", "us"][..], B), (&["eu", "us"], C), (&["eu"], B)] {
        targets.iter().for_each(|target| sim.runs("dev", target, revision, Health::Ready));
        sim.settle();
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed", "1.2.0 Superseded"]);
    assert_eq!(sim.open_requests("prod"), [B]);
    sim.promotions[1].request.as_mut().unwrap().open = false;
    sim.promotions[0].rejected = Some("rejected by ann: no".into());
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected", "1.2.0 Superseded"]);
    assert_eq!(sim.open_requests("prod"), Vec::<&str>::new());
}

/// The record of C is being created, so it cannot be superseded yet.
#[test]
fn a_promotion_that_started_again_is_not_superseded_by_one_that_is_being_recorded() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    for revision in [B, C] {
        ["eu", "us"].iter().for_each(|target| sim.runs("dev", target, revision, Health::Ready));
        sim.step();
        if revision == B {
            sim.settle();
        }
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Pending"]);
    sim.runs("dev", "eu", B, Health::Ready);
    for _ in 0..10 {
        sim.step();
        sim.promotions[1].phase = Phase::Pending;
    }
    assert_eq!((sim.phases("prod")[0].as_str(), sim.promotions[0].retries), ("1.1.0 Proposed", 1));
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed", "1.2.0 Superseded"]);
}

/// B was committed for staging, which does not run it yet.
fn committed() -> Simulation {
    let mut sim = Simulation::three();
    sim.commits = true;
    let fleet = Repository { url: "https://git.example/fleet.git".into(), branch: "main".into() };
    let policy = sim.policy_of("staging");
    (policy.writes_to, policy.commits) = (Some(fleet), true);
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    sim
}

fn checks(sim: &Simulation) -> usize {
    sim.last.actions.iter().filter(|a| matches!(a, Action::CheckDelivered { .. })).count()
}

#[test]
fn a_commit_that_a_forced_push_removed_is_made_again() {
    let mut sim = committed();
    sim.policy_of("staging").manual = true;
    sim.promotions[0].approved = true;
    let before = sim.effects.len();
    sim.lost = vec![sim.promotions[0].name.clone()];
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    assert_eq!((sim.effects.len(), sim.undone.as_slice()), (before + 1, &[B.to_string()][..]));
    assert!(sim.promotions[0].approved, "it is the revision that was approved");
}

#[test]
fn a_commit_that_is_removed_after_its_promotion_has_ended_stays_removed() {
    // The targets do not become healthy in time, or they ran the revision.
    for runs in [false, true] {
        let mut sim = committed();
        if runs {
            sim.runs("staging", "s", B, Health::Ready);
        } else {
            sim.now += SignedDuration::from_mins(31);
        }
        sim.settle();
        let ended = sim.phases("staging");
        assert_eq!(ended, [if runs { "1.1.0 Succeeded" } else { "1.1.0 Failed" }]);
        // A person resets the branch, and Flux applies what it holds now.
        sim.lost = vec![sim.promotions[0].name.clone()];
        sim.runs("staging", "s", A, Health::Ready);
        sim.settle();
        assert_eq!((sim.phases("staging"), checks(&sim)), (ended, 0));
    }
}

#[test]
fn a_commit_that_a_forced_push_removed_is_made_again_before_its_promotion_would_fail() {
    let mut sim = committed();
    sim.lost = vec![sim.promotions[0].name.clone()];
    sim.now += SignedDuration::from_mins(31);
    sim.settle();
    assert_eq!((sim.phases("staging"), sim.undone.len()), (vec!["1.1.0 Delivered".to_string()], 1));
    // The same happens in the next round. When the commit stays, the promotion fails.
    let name = sim.promotions[0].name.clone();
    for (lost, phase, rounds) in [(vec![name], "1.1.0 Delivered", 2), (Vec::new(), "1.1.0 Failed", 2)] {
        sim.lost = lost;
        sim.now += SignedDuration::from_mins(31);
        sim.settle();
        assert_eq!((sim.phases("staging"), sim.undone.len()), (vec![phase.to_string()], rounds));
    }
}

/// Changes after which a commit would not be made again, or a lost commit is not the reason: the targets run it, the pipeline is
/// suspended, a webhook writes to no branch, or the revision is not the candidate any more.
const NOT_MADE_AGAIN: [fn(&mut Simulation); 4] = [
    |sim| sim.runs("staging", "s", B, Health::Failed),
    |sim| sim.pipeline.suspended = true,
    |sim| sim.policy_of("staging").writes_to = None,
    |sim| {
        sim.refuses = true;
        sim.runs("dev", "d", C, Health::Ready);
    },
];

#[test]
fn a_branch_is_checked_once_before_a_promotion_fails() {
    let last = |change: fn(&mut Simulation)| {
        let mut sim = committed();
        sim.now += SignedDuration::from_mins(31);
        change(&mut sim);
        let mut checks = 0;
        for _ in 0..5 {
            sim.step();
            let is_last = |a: &&Action| matches!(a, Action::CheckDelivered { is_last: true, .. });
            checks += sim.last.actions.iter().filter(is_last).count();
        }
        assert_eq!(sim.phases("staging")[0], "1.1.0 Failed");
        checks
    };
    assert_eq!(last(|_| {}), 1);
    for change in NOT_MADE_AGAIN {
        assert_eq!(last(change), 0);
    }
}

#[test]
fn a_branch_is_checked_only_while_the_targets_do_not_run_the_delivered_revision() {
    let sim = committed();
    assert_eq!(checks(&sim), 1);
    let after = |change: fn(&mut Simulation)| {
        let mut sim = sim.clone();
        change(&mut sim);
        sim.settle();
        checks(&sim)
    };
    assert_eq!(after(|sim| sim.runs("staging", "s", B, Health::Progressing)), 0);
    assert_eq!(after(|sim| sim.runs("staging", "s", B, Health::Ready)), 0);
    for change in NOT_MADE_AGAIN {
        assert_eq!(after(change), 0);
    }
}

/// Settles, and returns how often a delivery was looked for meanwhile.
fn looks_until_settled(sim: &mut Simulation) -> usize {
    let mut looks = 0;
    while sim.step() > 0 {
        looks += sim.last.actions.iter().filter(|a| matches!(a, Action::FindDelivery { .. })).count();
    }
    looks
}

/// A process may have ended between the push and the record of it.
#[test]
fn a_pending_promotion_whose_targets_run_the_revision_succeeds_after_a_look_for_its_delivery() {
    // A webhook writes to no branch, and change requests are read by their own rules.
    let cases = [
        (Phase::Pending, true, 1),
        (Phase::Promoting, true, 1),
        (Phase::Delivered, true, 0),
        (Phase::Pending, false, 0),
    ];
    for (phase, commits, expected) in cases {
        let mut sim = committed();
        sim.promotions[0].phase = phase;
        sim.runs("staging", "s", B, Health::Ready);
        sim.policy_of("staging").commits = commits;
        let looks = looks_until_settled(&mut sim);
        assert_eq!((looks, sim.phases("staging")), (expected, vec!["1.1.0 Succeeded".into()]), "{phase:?}");
        let of_staging = |effect: &&Effect| matches!(effect, Effect::Updated(place, _) if place == "staging");
        assert_eq!(sim.effects.iter().filter(of_staging).count(), 1, "{phase:?}: it is delivered again");
    }
}

/// The commit stays in git, so its promotion is delivered. The owner may have asked for approvals since.
#[test]
fn a_rejection_comes_after_a_look_for_a_delivery_that_was_not_recorded() {
    for (manual, approved, has_waited) in
        [(false, false, false), (true, true, true), (true, false, true), (true, false, false)]
    {
        let mut sim = committed();
        sim.policy_of("staging").manual = manual;
        let promotion = &mut sim.promotions[0];
        (promotion.phase, promotion.approved) = (Phase::Pending, approved);
        promotion.rejected = Some("rejected by ann: no".into());
        let waits = Gate::closed(GateKind::Approval, "waits for approval".into());
        promotion.gates = Vec::from_iter(has_waited.then_some(waits));
        let looks = looks_until_settled(&mut sim);
        let context = format!("{manual} {approved} {has_waited}");
        assert_eq!((looks, sim.phases("staging")), (1, vec!["1.1.0 Rejected".into()]), "{context}");
    }
}

/// The look finds nothing here. What it finds is recorded before the newer revision is delivered.
#[test]
fn a_newer_revision_replaces_a_promotion_after_a_look_for_its_delivery() {
    for (phase, expected) in [(Phase::Pending, 1), (Phase::Promoting, 1), (Phase::Proposed, 0)] {
        let mut sim = committed();
        sim.promotions[0].phase = phase;
        sim.runs("dev", "d", C, Health::Ready);
        let looks = looks_until_settled(&mut sim);
        assert_eq!(looks, expected, "{phase:?}");
        assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Delivered"], "{phase:?}");
    }
}
