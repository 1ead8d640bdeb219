//! What a target has run last without being healthy counts also while the target cannot be read, and when it comes back to what
//! it ran healthily before. A is 1.0.0, B is 1.1.0, C is 1.2.0.

use jiff::SignedDuration;
use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::revision::Facet;
use sluice_core::tracks::Track;

use crate::simulation::{Simulation, member, shows};
use crate::table::{A, B, C};

/// Prod was healthy with A and fails with B, and dev is back at A.
fn back_from_a_failure() -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.commits = true;
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.runs("prod", "p", B, Health::Failed);
    sim.settle();
    sim.runs("dev", "d", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Delivered", "1.0.0 Pending"]);
    sim
}

/// Approves the last promotion, which its gate holds.
fn approve(sim: &mut Simulation) {
    sim.promotions.last_mut().unwrap().approved = true;
    sim.settle();
}

/// Changes a simulation so that it is unknown what a target runs now.
type Outage = fn(&mut Simulation, &str);

const OUTAGES: [Outage; 2] = [
    |sim, target| sim.cannot_be_read("prod", target),
    // As of a HelmRelease that was created again, and has not installed anything yet.
    |sim, target| {
        let mut shown = shows("", Health::Pending);
        member(&mut shown).facets.clear();
        sim.observed.insert("prod", target, shown);
    },
];

#[test]
fn a_record_does_not_say_that_the_next_revision_waits() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.policy_of("prod").manual = true;
    sim.runs("prod", "p", A, Health::Ready);
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Pending"]);
    sim.cannot_be_read("prod", "p");
    sim.runs("dev", "d", C, Health::Ready);
    sim.settle();
    approve(&mut sim);
    let message = &sim.promotions[0].message;
    assert!(!message.contains(C), "{message}");
}

#[test]
fn a_way_back_is_not_over_while_it_is_unknown_what_runs() {
    for outage in OUTAGES {
        let mut sim = back_from_a_failure();
        outage(&mut sim, "p");
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Delivered", "1.0.0 Pending"]);
        sim.now += SignedDuration::from_mins(31);
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Failed", "1.0.0 Pending"]);
    }
}

#[test]
fn a_way_back_succeeds_only_when_the_target_is_healthy_again() {
    let mut sim = back_from_a_failure();
    approve(&mut sim);
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.0.0 Delivered"]);
    for health in [Health::Progressing, Health::Failed] {
        sim.runs("prod", "p", A, health);
        sim.settle();
        assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.0.0 Delivered"], "{health}");
    }
    let (mut late, mut lost) = (sim.clone(), sim.clone());
    sim.runs("prod", "p", A, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("prod"), ["1.1.0 Superseded", "1.0.0 Succeeded"]);
    late.now += SignedDuration::from_mins(31);
    late.settle();
    assert_eq!(late.phases("prod"), ["1.1.0 Superseded", "1.0.0 Failed"]);
    lost.cannot_be_read("prod", "p");
    lost.settle();
    assert_eq!(lost.phases("prod"), ["1.1.0 Superseded", "1.0.0 Delivered"]);
}

#[test]
fn a_target_that_was_moved_ahead_holds_older_revisions_also_while_it_is_unknown_what_it_runs() {
    for outage in OUTAGES {
        let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
        sim.runs("prod", "us", C, Health::Failed);
        sim.settle();
        sim.runs("dev", "d", B, Health::Ready);
        sim.settle();
        outage(&mut sim, "us");
        sim.settle();
        assert_eq!(sim.phases("prod").last().unwrap(), "1.1.0 Pending");
        assert!(sim.note("prod").contains("it is older than 1.2.0"), "{}", sim.note("prod"));
        approve(&mut sim);
        assert_eq!(sim.phases("prod").last().unwrap(), "1.1.0 Proposed", "an approval opens the gate");
    }
}

#[test]
fn an_approval_does_not_count_for_what_came_to_a_target_after_it() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["eu", "us"])]);
    sim.runs("prod", "us", C, Health::Ready);
    sim.settle();
    sim.runs("dev", "d", B, Health::Ready);
    sim.settle();
    sim.pipeline.suspended = true;
    sim.promotions.last_mut().unwrap().approved = true;
    sim.runs("prod", "us", "2.0.0", Health::Failed);
    sim.settle();
    sim.cannot_be_read("prod", "us");
    sim.pipeline.suspended = false;
    sim.settle();
    assert_eq!(sim.phases("prod").last().unwrap(), "1.1.0 Pending");
    assert!(sim.note("prod").contains("it is older than 2.0.0"), "{}", sim.note("prod"));
}

/// A target with two HelmReleases, of which some run a version.
fn releases(versions: [Option<&str>; 2], health: Health) -> ObservedTarget {
    let mut target = ObservedTarget::default();
    for (name, version) in ["app", "db"].into_iter().zip(versions) {
        let mut one = shows(version.unwrap_or_default(), health);
        member(&mut one).name = name.into();
        if version.is_none() {
            member(&mut one).facets.clear();
        }
        target.members.extend(one.members);
    }
    target
}

/// On call, people delete what crashes, and Flux creates it again.
#[test]
fn a_part_that_is_deleted_and_created_again_does_not_open_a_gate() {
    let gone = |mut target: ObservedTarget| {
        target.members.remove(0);
        target
    };
    for tracks in [vec![], vec![Track::Facet(Facet::Chart)]] {
        let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
        sim.pipeline.tracks = tracks;
        for environment in ["dev", "prod"] {
            let target = if environment == "dev" { "d" } else { "p" };
            sim.observed.insert(environment, target, releases([Some(A), Some(A)], Health::Ready));
        }
        sim.settle();
        sim.observed.insert("prod", "p", releases([Some(C), Some(A)], Health::Failed));
        sim.settle();
        sim.observed.insert("dev", "d", releases([Some(B), Some(A)], Health::Ready));
        sim.settle();
        for shown in [
            gone(releases([None, Some(A)], Health::Ready)),
            gone(releases([None, Some(A)], Health::Failed)),
            releases([None, Some(A)], Health::Progressing),
        ] {
            sim.observed.insert("prod", "p", shown);
            sim.settle();
            assert!(sim.effects.is_empty(), "{:?}", sim.effects);
            assert!(
                !sim.phases("prod").iter().any(|phase| phase.contains("Succeeded")),
                "{:?}",
                sim.phases("prod")
            );
        }
        // It is installed again, as older than what dev runs.
        sim.observed.insert("prod", "p", releases([Some(A), Some(A)], Health::Ready));
        sim.settle();
        assert_eq!(sim.effects.len(), 1, "nothing newer runs now");
    }
}

#[test]
fn a_healthy_workload_that_is_deleted_and_created_again_does_not_open_a_gate() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.observed.insert("dev", "d", releases([Some(A), Some(A)], Health::Ready));
    sim.observed.insert("prod", "p", releases([Some(C), Some(A)], Health::Ready));
    sim.settle();
    sim.observed.insert("dev", "d", releases([Some(B), Some(A)], Health::Ready));
    sim.settle();
    let mut deleted = releases([None, Some(A)], Health::Ready);
    deleted.members.remove(0);
    for shown in [deleted.clone(), deleted, releases([None, Some(A)], Health::Pending)] {
        sim.observed.insert("prod", "p", shown);
        sim.settle();
        assert!(sim.effects.is_empty(), "{:?}", sim.effects);
    }
    assert!(sim.note("prod").contains("it is older than app/chart=1.2.0"), "{}", sim.note("prod"));
    sim.observed.insert("prod", "p", releases([Some(A), Some(A)], Health::Ready));
    sim.settle();
    assert_eq!(sim.effects.len(), 1, "nothing newer runs now");
}

/// Workloads whose names have a hash come and go.
#[test]
fn what_workloads_ran_that_never_come_back_takes_no_more_and_more_room() {
    for health in [Health::Failed, Health::Ready] {
        let mut sim = Simulation::new(&[("dev", &["d"])]);
        for n in 0..300 {
            let mut shown = shows(A, health);
            member(&mut shown).name = format!("preview-{n}");
            sim.observed.insert("dev", "d", shown);
            sim.settle();
        }
        let unproven = sim.evidence.unproven("dev", "d").map_or(0, |revision| revision.facets().count());
        let per_workload = shows(A, health).revision(&[]).map_or(0, |revision| revision.facets().count());
        assert!((1..=80 * per_workload).contains(&unproven), "{health}: {unproven} facets");
    }
}

/// If there is no room for what targets have run last, they have not settled with what they ran before.
#[test]
fn a_target_whose_last_revision_is_too_large_to_keep_has_not_settled() {
    let targets = ["one", "two", "three", "four"];
    let mut sim = Simulation::new(&[("dev", &targets)]);
    for target in targets {
        sim.runs("dev", target, A, Health::Ready);
    }
    sim.settle();
    for target in targets {
        sim.runs("dev", target, &format!("{target}-{}", "x".repeat(3 << 20)), Health::Failed);
    }
    sim.settle();
    let kept = targets.iter().filter(|target| sim.evidence.unproven("dev", target).is_some()).count();
    assert!((1..targets.len()).contains(&kept), "{kept} are kept");
    for target in targets {
        sim.cannot_be_read("dev", target);
    }
    sim.settle();
    let proven = shows(A, Health::Ready).revision(&[]).unwrap();
    for target in targets {
        let mut alone = sim.pipeline.environments[0].clone();
        alone.targets = vec![target.into()];
        assert!(!sim.evidence.has_settled(&alone, &proven), "{target} ran something else last");
    }
}

/// A target that only becomes unhealthy with what it runs has not run anything else.
#[test]
fn a_target_that_fails_with_what_it_has_proven_still_runs_that() {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.runs("prod", "p", A, Health::Failed);
    sim.settle();
    sim.runs("prod", "p", A, Health::Progressing);
    sim.cannot_be_read("prod", "p");
    sim.settle();
    assert_eq!(sim.phases("prod"), Vec::<String>::new(), "prod runs A already");
}
