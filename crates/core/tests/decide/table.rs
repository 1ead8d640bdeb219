//! Scenarios of `decide`, one test for each. A is the revision 1.0.0, B is 1.1.0, and C is 1.2.0.

use jiff::SignedDuration;
use sluice_core::decide::Action;
use sluice_core::observed::Health;
use sluice_core::pipeline::MinReady;
use sluice_core::promotion::Phase;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;

use crate::simulation::{Effect, Simulation, member, shows};

pub const A: &str = "1.0.0";
pub const B: &str = "1.1.0";
pub const C: &str = "1.2.0";

/// Returns a simulation in which dev runs B, and B is proposed for staging.
pub fn proposed() -> Simulation {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim
}

/// Returns a simulation in which B is merged into staging, and staging does not run it healthily yet.
fn delivered() -> Simulation {
    let mut sim = proposed();
    sim.runs("staging", "s", B, Health::Progressing);
    sim.merge("staging");
    sim
}

/// Returns a simulation in which staging runs B, and B is proposed for prod.
fn proposed_for_prod() -> Simulation {
    let mut sim = delivered();
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    sim
}

#[test]
fn dev_healthy_at_b_starts_a_promotion_into_staging_only() {
    let sim = proposed();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
    assert_eq!(sim.effects, [Effect::Opened("staging".into(), B.into())]);
}

#[test]
fn a_promotion_that_was_replaced_while_it_was_recorded_is_superseded_afterwards() {
    let mut sim = Simulation::three();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Pending"]);
    // B kept its phase, because its record was not stored yet when C replaced it.
    sim.promotions[0].phase = Phase::Pending;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Pending"]);
}

#[test]
fn a_refused_strategy_is_reported_before_there_is_a_revision_to_promote() {
    let mut sim = Simulation::three();
    for environment in ["dev", "staging"] {
        sim.policy_of(environment).refused = Some("name one strategy".into());
    }
    for suspended in [false, true] {
        sim.pipeline.suspended = suspended;
        sim.settle();
        assert_eq!(sim.note("staging"), "name one strategy");
        assert_eq!(sim.last.notes["staging"].reason, "StrategyRefused");
        assert_eq!(sim.last.notes.len(), 1, "nothing is promoted into dev: {:?}", sim.last.notes);
    }
}

#[test]
fn the_same_observation_a_thousand_times_does_nothing_more() {
    let mut sim = proposed();
    for _ in 0..1000 {
        assert_eq!(sim.step(), 0);
    }
    assert_eq!(sim.effects.len(), 1);
}

#[test]
fn a_merged_and_progressing_promotion_is_delivered_and_starts_nothing_for_prod() {
    let sim = delivered();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
}

#[test]
fn staging_healthy_at_b_ends_its_promotion_and_starts_one_into_prod() {
    let mut sim = proposed_for_prod();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
    sim.runs("prod", "p", B, Health::Ready);
    sim.merge("prod");
    assert_eq!(sim.phases("prod"), ["1.1.0 Succeeded"]);
    assert_eq!(sim.promotions.len(), 2);
}

#[test]
fn a_promotion_to_an_unhealthy_target_fails_after_its_deadline_and_succeeds_when_healthy() {
    let mut sim = delivered();
    sim.runs("staging", "s", B, Health::Failed);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    let deadline = sim.now + SignedDuration::from_mins(30);
    assert_eq!(sim.last.requeue_at, Some(deadline));
    sim.now = deadline;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    assert!(sim.promotions[0].message.contains("Failed at 1.1.0"), "{}", sim.promotions[0].message);
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn a_newer_revision_takes_over_the_open_change_request() {
    let mut sim = proposed();
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    let effects = [Effect::Opened("staging".into(), B.into()), Effect::Updated("staging".into(), C.into())];
    assert_eq!(sim.effects, effects);
    assert_eq!(sim.open_requests("staging"), [C]);
}

#[test]
fn a_newer_revision_starts_while_an_older_one_is_delivered_and_not_healthy() {
    let mut sim = delivered();
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered", "1.2.0 Proposed"]);
    sim.runs("staging", "s", C, Health::Progressing);
    sim.merge("staging");
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Delivered"]);
}

#[test]
fn a_delivered_revision_seen_healthy_succeeds_although_a_newer_one_is_proposed() {
    let mut sim = delivered();
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded", "1.2.0 Proposed"]);
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn an_approval_of_one_revision_does_not_count_for_the_next() {
    let mut sim = Simulation::three();
    sim.policy_of("prod").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.runs("staging", "s", B, Health::Ready);
    sim.merge("staging");
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
    assert!(sim.note("prod").contains("sluice approve"), "{}", sim.note("prod"));
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    sim.runs("staging", "s", C, Health::Progressing);
    sim.merge("staging");
    // The approval arrives at the moment in which C replaces B.
    let waiting = |sim: &Simulation| {
        let pending = sim.promotions.iter().find(|p| p.environment == "prod" && p.phase == Phase::Pending);
        pending.unwrap().name.clone()
    };
    let name = waiting(&sim);
    sim.promotion(&name).approved = true;
    sim.runs("staging", "s", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Pending"]);
    assert_eq!(sim.open_requests("prod"), Vec::<&str>::new());
    let name = waiting(&sim);
    sim.promotion(&name).approved = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn a_proven_revision_stays_a_candidate_when_its_environment_fails_at_a_newer_one() {
    let mut sim = Simulation::three();
    sim.policy_of("prod").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.runs("staging", "s", B, Health::Ready);
    sim.merge("staging");
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    sim.runs("staging", "s", C, Health::Failed);
    sim.merge("staging");
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
    let name = sim.promotions.iter().find(|p| p.environment == "prod").unwrap().name.clone();
    sim.promotion(&name).approved = true;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn a_downgrade_is_held_with_a_message_until_it_is_approved() {
    let mut sim = proposed_for_prod();
    sim.runs("dev", "d", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded", "1.0.0 Pending"]);
    assert!(
        sim.note("staging").contains("1.0.0 is held: it is older than 1.1.0, which staging runs"),
        "{}",
        sim.note("staging")
    );
    let mut approved = sim.clone();
    let name = approved.promotions.iter().find(|p| p.phase == Phase::Pending).unwrap().name.clone();
    approved.promotion(&name).approved = true;
    approved.settle();
    assert_eq!(approved.phases("staging"), ["1.1.0 Succeeded", "1.0.0 Proposed"]);
    sim.policy_of("staging").allow_downgrade = true;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded", "1.0.0 Proposed"]);
}

#[test]
fn a_resumed_promotion_is_not_superseded_by_earlier_ones() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.commits = true;
    let policy = sim.policy_of("prod");
    (policy.min_ready, policy.allow_downgrade) = (MinReady::Count(2), true);
    let minute = SignedDuration::from_mins(1);
    for version in [B, C] {
        ["eu", "us"].iter().for_each(|target| sim.runs("dev", target, version, Health::Ready));
        sim.settle();
        sim.now += minute;
    }
    sim.runs("prod", "p", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.2.0 Succeeded"]);
    // One of the two targets goes back to B, so B is again the newest revision that enough targets have proven. Flux is
    // slow to deploy B in prod, and the clock was set back.
    sim.now -= minute * 60;
    sim.runs("dev", "eu", B, Health::Ready);
    let before = sim.effects.len();
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Delivered", "1.2.0 Succeeded"]);
    assert_eq!(sim.effects.len(), before + 1, "{:?}", sim.effects);
    assert_eq!(sim.undone, ["1.1.0"]);
    sim.now += minute * 31;
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Failed", "1.2.0 Succeeded"]);
}

#[test]
fn a_revision_merged_by_hand_needs_no_promotion_and_ends_the_open_one() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), Vec::<String>::new());
    let mut sim = proposed();
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
    assert_eq!(sim.open_requests("staging"), Vec::<&str>::new());
}

#[test]
fn a_closed_change_request_is_not_opened_again_until_retried_or_newer() {
    let mut sim = proposed();
    sim.close("staging");
    assert_eq!(sim.phases("staging"), ["1.1.0 Rejected"]);
    assert!(sim.note("staging").contains("sluice retry"), "{}", sim.note("staging"));
    let mut retried = sim.clone();
    retried.promotions[0].retry = Some("again".into());
    retried.settle();
    assert_eq!(retried.phases("staging"), ["1.1.0 Proposed"]);
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Rejected", "1.2.0 Proposed"]);
}

#[test]
fn enough_targets_must_have_proven_a_revision() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    sim.runs("dev", "eu", B, Health::Ready);
    sim.runs("dev", "us", B, Health::Failed);
    sim.settle();
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
    let note = sim.note("prod");
    assert!(
        note.contains("1 of 2 targets") && note.contains("dev/us") && note.contains("Failed at 1.1.0"),
        "{note}"
    );
    let mut one = sim.clone();
    one.policy_of("prod").min_ready = MinReady::Count(1);
    one.settle();
    assert_eq!(one.phases("prod"), ["1.1.0 Proposed"]);
    sim.runs("dev", "us", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn an_unreadable_target_proves_nothing_new_and_keeps_its_evidence() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Percent(100);
    sim.runs("dev", "eu", B, Health::Ready);
    sim.settle();
    sim.cannot_be_read("dev", "eu");
    sim.settle();
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
    sim.runs("dev", "us", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn nothing_starts_into_an_environment_without_a_readable_target() {
    let mut sim = Simulation::three();
    sim.cannot_be_read("staging", "s");
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), Vec::<String>::new());
    assert!(sim.note("staging").contains("the cluster is gone"), "{}", sim.note("staging"));
    sim.runs("staging", "s", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn nothing_starts_while_a_target_progresses_to_an_unknown_revision() {
    let mut sim = Simulation::three();
    let unknown = |health| {
        let mut target = shows("?", health);
        member(&mut target).facets.clear();
        target
    };
    sim.observed.insert("staging", "s", unknown(Health::Progressing));
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.promotions, []);
    assert!(sim.note("staging").contains("until it is known what s runs"), "{}", sim.note("staging"));
    let mut arrived = sim.clone();
    arrived.runs("staging", "s", B, Health::Ready);
    arrived.settle();
    assert_eq!(arrived.phases("staging"), Vec::<String>::new());
    sim.observed.insert("staging", "s", unknown(Health::Failed));
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn a_target_that_is_not_ready_proves_nothing() {
    for health in [Health::Suspended, Health::Progressing, Health::Pending, Health::Failed, Health::Unknown] {
        let mut sim = Simulation::three();
        sim.runs("dev", "d", B, health);
        sim.settle();
        assert_eq!(sim.promotions, [], "{health:?}");
    }
}

#[test]
fn a_suspended_pipeline_only_follows_its_change_requests() {
    let mut sim = proposed();
    sim.pipeline.suspended = true;
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
    assert!(sim.last.actions.iter().any(|a| matches!(a, sluice_core::decide::Action::Follow { .. })));
    sim.merge("staging");
    assert_eq!(sim.phases("staging"), ["1.1.0 Delivered"]);
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
    assert_eq!(sim.effects.len(), 1);
    sim.pipeline.suspended = false;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded", "1.2.0 Proposed"]);
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn at_the_first_start_the_revision_of_dev_arrives() {
    let mut sim = Simulation::three();
    sim.evidence = Default::default();
    sim.runs("dev", "d", C, Health::Ready);
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.2.0 Proposed"]);
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn environments_with_one_predecessor_are_independent_and_one_with_two_waits_for_both() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("qa", &["q"]), ("perf", &["f"]), ("prod", &["p"])]);
    sim.pipeline.environments[2].depends_on = vec!["dev".into()];
    sim.pipeline.environments[3].depends_on = vec!["qa".into(), "perf".into()];
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(
        (sim.phases("qa"), sim.phases("perf")),
        (vec!["1.1.0 Proposed".into()], vec!["1.1.0 Proposed".into()])
    );
    sim.runs("qa", "q", B, Health::Ready);
    sim.merge("qa");
    assert_eq!(sim.phases("prod"), Vec::<String>::new());
    sim.runs("perf", "f", B, Health::Ready);
    sim.merge("perf");
    assert_eq!(sim.phases("prod"), ["1.1.0 Proposed"]);
}

#[test]
fn a_pipeline_that_would_promote_its_own_commits_is_refused_with_a_remedy() {
    let fleet = Repository { url: "https://git.example/fleet.git".into(), branch: "main".into() };
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.pipeline.tracks = vec![Track::Facet(Facet::Source)];
    let shows_source = |revision: &str| {
        let mut target = shows("x", Health::Ready);
        member(&mut target).default_facet = DefaultFacet::Images;
        member(&mut target).kind = "Kustomization".into();
        member(&mut target).facets = [(Facet::Source, revision.to_string())].into();
        member(&mut target).source =
            Some(Repository { url: "ssh://git@git.example/fleet".into(), ..fleet.clone() });
        target
    };
    sim.policy_of("prod").writes_to = Some(fleet.clone());
    sim.observed.insert("dev", "d", shows_source("main@sha1:bb"));
    sim.observed.insert("prod", "p", shows_source("main@sha1:aa"));
    sim.settle();
    assert_eq!(sim.promotions, []);
    assert!(sim.note("prod").contains("its own commits for ever"), "{}", sim.note("prod"));
    sim.policy_of("prod").writes_to = Some(Repository { branch: "prod".into(), ..fleet });
    sim.settle();
    assert_eq!(sim.phases("prod"), ["main@sha1:bb Proposed"]);
}

#[test]
fn a_failed_delivery_waits_for_its_next_attempt() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.step();
    let later = sim.now + SignedDuration::from_secs(10);
    sim.promotions[0].next_attempt = Some(later);
    sim.promotions[0].phase = Phase::Promoting;
    assert_eq!(sim.step(), 0);
    assert_eq!(sim.last.requeue_at, Some(later));
    sim.now = later;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn an_unwanted_promotion_is_cancelled_and_its_change_request_closed() {
    let mut sim = proposed();
    let staging = sim.pipeline.environments.remove(1);
    sim.pipeline.environments[1].depends_on = vec!["dev".into()];
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Cancelled"]);
    assert_eq!(sim.open_requests("staging"), Vec::<&str>::new());
    sim.pipeline.environments.insert(1, staging);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn a_retry_of_a_waiting_promotion_tries_once_and_then_waits_again() {
    let mut sim = Simulation::three();
    sim.runs("dev", "d", B, Health::Ready);
    sim.step();
    let later = sim.now + SignedDuration::from_secs(300);
    sim.promotions[0].next_attempt = Some(later);
    sim.promotions[0].phase = Phase::Promoting;
    sim.promotions[0].retry = Some("now".into());
    sim.step();
    assert_eq!((sim.promotions[0].phase, &sim.promotions[0].retry), (Phase::Pending, &None));
    // The delivery fails again. The next try waits, because a retry request counts once.
    sim.promotions[0].next_attempt = Some(later);
    sim.promotions[0].phase = Phase::Promoting;
    assert_eq!(sim.step(), 0);
    assert_eq!(sim.last.requeue_at, Some(later));
}

#[test]
fn an_older_revision_replaces_nothing_when_evidence_is_lost() {
    let mut sim = proposed();
    sim.evidence = Simulation::three().evidence;
    sim.runs("dev", "d", C, Health::Failed);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
    assert_eq!(sim.open_requests("staging"), [B]);
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
}

#[test]
fn a_rejected_revision_is_not_proposed_again_by_a_target_that_switches_between_revisions() {
    let mut sim = Simulation::new(&[("dev", &["eu", "us"]), ("prod", &["p"])]);
    sim.policy_of("prod").min_ready = MinReady::Count(2);
    ["eu", "us"].iter().for_each(|t| sim.runs("dev", t, B, Health::Ready));
    sim.settle();
    sim.close("prod");
    for version in [A, B] {
        sim.runs("dev", "eu", version, Health::Ready);
        sim.settle();
    }
    assert_eq!(sim.phases("prod"), ["1.1.0 Rejected"]);
}

#[test]
fn an_approval_counts_for_one_try_only() {
    let mut sim = Simulation::three();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.promotions[0].approved = true;
    sim.settle();
    sim.close("staging");
    sim.promotions[0].retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Pending"]);
    assert!(sim.note("staging").contains("sluice approve"), "{}", sim.note("staging"));
    sim.promotions[0].approved = true;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Proposed"]);
}

#[test]
fn the_message_says_why_a_promotion_is_not_retried() {
    let mut sim = proposed();
    sim.close("staging");
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    sim.promotions[0].retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Rejected", "1.2.0 Proposed"]);
    assert_eq!(sim.promotions[0].retry, None);
    assert_eq!(sim.promotions[0].message, "not retried: 1.2.0 goes into staging now");

    let mut sim = proposed();
    sim.close("staging");
    sim.runs("staging", "s", B, Health::Ready);
    sim.promotions[0].retry = Some("again".into());
    sim.settle();
    assert_eq!(sim.promotions[0].message, "not retried: staging runs 1.1.0 already");
}

#[test]
fn an_outdated_change_request_is_closed_before_another_is_opened() {
    let make_outdated = |sim: &mut Simulation| sim.promotions[0].request.as_mut().unwrap().outdated = true;
    let opened = |version: &str| Effect::Opened("staging".into(), version.into());
    let closed = || Effect::Closed("staging".into());
    let mut moved = proposed();
    make_outdated(&mut moved);
    let mut suspended = moved.clone();
    moved.settle();
    assert_eq!(moved.phases("staging"), ["1.1.0 Proposed"]);
    assert_eq!(moved.effects, [opened(B), closed(), opened(B)]);

    suspended.pipeline.suspended = true;
    suspended.settle();
    assert_eq!(suspended.effects, [opened(B)]);
    assert!(matches!(suspended.last.actions[..], [Action::Follow { .. }]), "{:?}", suspended.last);

    // A newer revision cannot take over the outdated change request either.
    let mut newer = proposed();
    make_outdated(&mut newer);
    newer.runs("dev", "d", C, Health::Ready);
    newer.settle();
    assert_eq!(newer.phases("staging"), ["1.1.0 Superseded", "1.2.0 Proposed"]);
    assert_eq!(newer.effects, [opened(B), closed(), opened(C)]);
}

#[test]
fn an_approved_and_superseded_promotion_needs_a_new_approval_to_resume() {
    let mut sim = Simulation::three();
    sim.policy_of("staging").manual = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.promotions[0].approved = true;
    sim.settle();
    let policy = sim.pipeline.environments[1].policy.take();
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Cancelled"]);
    sim.pipeline.environments[1].policy = policy;
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Pending"]);
    assert!(sim.note("staging").contains("sluice approve"), "{}", sim.note("staging"));
}
