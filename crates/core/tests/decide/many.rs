//! A pipeline as large as its definition allows, which one tenant may create: the controller decides for all tenants.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sluice_core::decide::{Action, Decision, Facts, decide};
use sluice_core::evidence::{Evidence, Proof};
use sluice_core::observed::{Health, Member, ObservedTarget, ObservedTargets};
use sluice_core::pipeline::{Environment, MinReady, Pipeline};
use sluice_core::repository::Repository;
use sluice_core::revision::{Facet, FacetKey};
use sluice_core::tracks::{DefaultFacet, Track};

use crate::simulation::{policy, revision, shows};

/// Eight environments of 128 targets, and eight that follow all of them. Each target of these is promoted into separately.
fn largest() -> Pipeline {
    let targets: Vec<String> = (0..128).map(|n| format!("target-{n}")).collect();
    let first: Vec<String> = (0..8).map(|n| format!("first-{n}")).collect();
    let environment = |n: usize| {
        let mut policy = policy();
        (policy.per_target, policy.min_ready) = (true, MinReady::Percent(100));
        let follows = n >= 8;
        Environment {
            name: if follows { format!("second-{n}") } else { first[n].clone() },
            targets: targets.clone(),
            depends_on: if follows { first.clone() } else { Vec::new() },
            policy: follows.then_some(policy),
            only_target: None,
        }
    };
    Pipeline {
        namespace: "evil".into(),
        name: "evil".into(),
        uid: "1".into(),
        suspended: false,
        tracks: Vec::new(),
        environments: (0..16).map(environment).collect(),
    }
}

/// The decision if there are no promotions.
fn decided(pipeline: &Pipeline, observed: &ObservedTargets, evidence: &Evidence) -> Decision {
    let (promotions, unguarded, now) = (&[], None, jiff::Timestamp::UNIX_EPOCH);
    decide(Facts { pipeline, observed, evidence, promotions, unguarded, now })
}

/// Each target has proven ten revisions: the same ones, or ones of its own.
fn proven(pipeline: &Pipeline, own: bool) -> (Evidence, ObservedTargets) {
    let (mut evidence, mut observed, mut arrival) = (Evidence::default(), ObservedTargets::default(), 0);
    for (e, environment) in pipeline.environments.iter().enumerate() {
        for (t, target) in environment.targets.iter().enumerate() {
            let version = |n: usize| if own { format!("{n}.{e}.{t}") } else { format!("{n}.0.0") };
            let proof = |n: usize| {
                arrival += 1;
                Proof { revision: revision(&version(n)), arrival, run: 0, at: jiff::Timestamp::UNIX_EPOCH }
            };
            evidence.insert(&environment.name, target, (0..10).map(proof).collect());
            observed.insert(&environment.name, target, shows(&version(9), Health::Ready));
        }
    }
    (evidence, observed)
}

#[test]
fn a_decision_about_the_largest_pipeline_takes_a_moment() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let pipeline = largest();
        for own in [false, true] {
            let (evidence, observed) = proven(&pipeline, own);
            let evidence = evidence.updated(&pipeline, &observed, &[], jiff::Timestamp::UNIX_EPOCH);
            let decision = decided(&pipeline, &observed, &evidence);
            // All follow already, or no revision is proven on all targets.
            assert!(decision.actions.is_empty(), "{:?}", decision.actions.first());
            let longest = decision.notes.values().map(|note| note.message.len()).max().unwrap_or_default();
            assert!(longest < 10_000, "a note has {longest} bytes");
        }
        let _ = done.send(());
    });
    finished.recv_timeout(Duration::from_secs(60)).expect("it takes longer than 60 s");
}

/// Each target runs 256 workloads, which all have a new version again and again.
#[test]
fn proofs_of_large_revisions_take_a_limited_part_of_the_memory() {
    let pipeline = largest();
    let version = |n: usize| {
        let facet = |f: usize| (format!("HelmRelease/{}{f:03}:chart", "x".repeat(200)), format!("{n}.{f}.0"));
        sluice_core::Revision::from_strings(&(0..256).map(facet).collect()).unwrap()
    };
    let first = &pipeline.environments[0];
    let mut evidence = Evidence::default();
    for target in &first.targets {
        let proof = |n: usize| Proof {
            revision: version(n),
            arrival: n as u64,
            run: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        evidence.insert(&first.name, target, (0..3).map(proof).collect());
    }
    let kept = evidence.updated(&pipeline, &ObservedTargets::default(), &[], jiff::Timestamp::UNIX_EPOCH);
    for target in &first.targets {
        let proofs = kept.of(&first.name, target);
        assert_eq!(proofs.iter().map(|proof| proof.arrival).collect::<Vec<_>>(), [2], "only the newest");
    }
    // Without so many facets, all are kept.
    let (small, observed) = proven(&pipeline, true);
    let kept = small.updated(&pipeline, &observed, &[], jiff::Timestamp::UNIX_EPOCH);
    assert!(first.targets.iter().all(|target| kept.of(&first.name, target).len() == 10));
}

/// Each target follows a branch by sixteen objects, and each lane would be promoted into by commits to another branch. One
/// repository cannot be seen.
#[test]
fn the_guard_against_own_commits_looks_at_all_targets_once() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut pipeline = largest();
        pipeline.tracks = vec![Track::Facet(Facet::Source)];
        let repository = |url: &str, branch: &str| Repository { url: url.into(), branch: branch.into() };
        for environment in &mut pipeline.environments[8..] {
            environment.policy.as_mut().unwrap().writes_to =
                Some(repository("https://git.example/prod", "main"));
        }
        let key = |n: usize| FacetKey {
            kind: "Kustomization".into(),
            name: format!("app-{n:02}"),
            facet: Facet::Source,
        };
        let sources = |version: &str| {
            let facets = (0..16).map(|n| (key(n), format!("main@sha1:{version}"))).collect();
            sluice_core::Revision::new(facets).unwrap()
        };
        let (mut evidence, mut observed) = (Evidence::default(), ObservedTargets::default());
        for (e, environment) in pipeline.environments.iter().enumerate() {
            let version = if e < 8 { "bb" } else { "aa" };
            for (t, target) in environment.targets.iter().enumerate() {
                let is_unseen = (e, t) == (15, 127);
                let mut shown = shows(version, Health::Ready);
                shown.members = (0..16)
                    .map(|n| Member {
                        kind: "Kustomization".into(),
                        name: format!("app-{n:02}"),
                        facets: [(Facet::Source, format!("main@sha1:{version}"))].into(),
                        default_facet: DefaultFacet::Images,
                        source: (!is_unseen).then(|| repository("https://git.example/dev", "main")),
                        ..Member::clone(&shown.members[0])
                    })
                    .map(Arc::new)
                    .collect();
                observed.insert(&environment.name, target, shown);
                let arrival = (128 * e + t) as u64 + 1;
                let proof =
                    Proof { revision: sources(version), arrival, run: 0, at: jiff::Timestamp::UNIX_EPOCH };
                evidence.insert(&environment.name, target, vec![proof]);
            }
        }
        let decision = decided(&pipeline, &observed, &evidence);
        assert!(decision.actions.is_empty(), "{:?}", decision.actions.first());
        assert_eq!(decision.notes["second-8"].reason, "SourceNotReadable");
        let _ = done.send(());
    });
    finished.recv_timeout(Duration::from_secs(60)).expect("it takes longer than 60 s");
}

/// Each lane would start a promotion of a revision of 32 KiB.
#[test]
fn the_promotions_of_a_pipeline_take_a_limited_part_of_the_memory() {
    let pipeline = largest();
    let target = |version: &str| {
        let member = |n: usize| Member {
            name: format!("app-{n:03}"),
            facets: [(Facet::Chart, format!("{version}.{n}+{}", "1".repeat(300)))].into(),
            ..(*shows("1.0.0", Health::Ready).members[0]).clone()
        };
        ObservedTarget::of((0..100).map(|n| Arc::new(member(n))).collect())
    };
    let (old, new, mut observed) = (target("1.0"), target("1.1"), ObservedTargets::default());
    for environment in &pipeline.environments {
        for name in &environment.targets {
            let runs = if environment.depends_on.is_empty() { &new } else { &old };
            observed.insert(&environment.name, name, runs.clone());
        }
    }
    let evidence = Evidence::default().updated(&pipeline, &observed, &[], jiff::Timestamp::UNIX_EPOCH);
    let decision = decided(&pipeline, &observed, &evidence);
    let started: usize = decision
        .actions
        .iter()
        .map(|action| match action {
            Action::Start(promotion) => promotion.revision.bytes(),
            _ => 0,
        })
        .sum();
    assert!((1 << 20..=16 << 20).contains(&started), "{started} bytes are started");
    let note = decision.notes.values().find(|note| note.reason == "TooManyPromotions");
    assert!(note.is_some_and(|note| note.message.contains("split the pipeline")), "{:?}", decision.notes);
}

/// All targets of a pipeline prove the same revision, each at its own time.
#[test]
fn equal_proofs_of_all_targets_take_memory_once() {
    let (pipeline, mut evidence) = (largest(), Evidence::default());
    let first = &pipeline.environments[0];
    for count in [1, 64, 128] {
        let mut observed = ObservedTargets::default();
        for target in &first.targets[..count] {
            observed.insert(&first.name, target, shows("1.0.0", Health::Ready));
        }
        evidence = evidence.updated(&pipeline, &observed, &[], jiff::Timestamp::UNIX_EPOCH);
    }
    let proofs = first.targets.iter().map(|target| &evidence.of(&first.name, target)[0]);
    let places = proofs.map(|proof| proof.revision.facets().next().unwrap().1.as_ptr());
    assert_eq!(places.collect::<std::collections::BTreeSet<_>>().len(), 1);
}

#[test]
fn a_target_with_a_long_revision_is_read_only_if_the_pipeline_tracks_less_of_it() {
    let images = |length: usize| {
        let image =
            |n: usize| (Facet::Image(format!("registry.example.com/team/image-{n}")), "1".repeat(length));
        (0..200).map(image).chain([(Facet::Source, "main@sha1:abc".to_string())]).collect()
    };
    let target = |length: usize| {
        let mut target = shows("1.0.0", Health::Ready);
        let member = Member {
            facets: images(length),
            default_facet: DefaultFacet::Images,
            ..(*target.members[0]).clone()
        };
        target.members = vec![Arc::new(member)];
        target
    };
    let fits = target(64).with_limited_revision(&[]);
    assert_eq!(fits.error, None);
    let too_long = target(128).with_limited_revision(&[]);
    let why = too_long.error.unwrap();
    assert!(
        why.starts_with("its revision is too long: 200 values with ") && why.contains("spec.tracks"),
        "{why}"
    );
    let tracked = target(128).with_limited_revision(&[Track::Facet(Facet::Source)]);
    assert_eq!(tracked.error, None);
}
