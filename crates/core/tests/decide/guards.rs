//! Guards against a pipeline that promotes its own commits, if Sluice cannot read the sources of its targets.

use sluice_core::observed::Health;
use sluice_core::repository::Repository;
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_core::tracks::Track;

use crate::simulation::{Simulation, member, shows};

/// dev and prod of a pipeline that tracks the revision of the source, with commits for prod to `main` of the fleet
/// repository. dev follows the repository `source`; `None` if Sluice cannot read it.
fn tracks_source(dev: &str, source: Option<Repository>) -> Simulation {
    let mut sim = Simulation::new(&[("dev", &["d"]), ("prod", &["p"])]);
    sim.pipeline.tracks = vec![Track::Facet(Facet::Source)];
    sim.commits = true;
    let fleet = Repository { url: "https://git.example/fleet.git".into(), branch: "main".into() };
    let prod = Repository { url: "https://git.example/prod.git".into(), branch: "main".into() };
    sim.policy_of("prod").writes_to = Some(fleet);
    for (environment, target, revision, source) in
        [("dev", "d", dev, source), ("prod", "p", "main@sha1:00", Some(prod))]
    {
        let mut shown = shows("x", Health::Ready);
        let member = member(&mut shown);
        (member.kind, member.default_facet) = ("Kustomization".into(), DefaultFacet::Images);
        member.facets = [(Facet::Source, revision.to_string())].into();
        member.source = source;
        sim.observed.insert(environment, target, shown);
    }
    sim.settle();
    sim
}

#[test]
fn nothing_is_committed_while_a_source_with_the_same_branch_cannot_be_read() {
    // Sluice cannot read the GitRepository, and its branch has the same name as the branch that Sluice writes to.
    let mut sim = tracks_source("main@sha1:bb", None);
    assert_eq!(sim.promotions, []);
    let note = sim.last.notes.get("prod").unwrap();
    assert_eq!(note.reason, "SourceNotReadable");
    assert!(note.message.contains("dev/d") && note.message.contains("GitRepository"), "{}", note.message);
    // Sluice can read the GitRepository, and it is another repository.
    let app = Repository { url: "https://git.example/app.git".into(), branch: "main".into() };
    let seen = tracks_source("main@sha1:bb", Some(app));
    assert_eq!(seen.phases("prod"), ["main@sha1:bb Delivered"]);
    // If a target cannot be read, the last revision that it proved names its branch.
    sim.cannot_be_read("dev", "d");
    sim.settle();
    assert_eq!(sim.promotions, []);
    // A target that follows another branch, or no branch, never gets the commits to main.
    for revision in ["dev@sha1:bb", "v1.0.0@sha1:bb", "sha1:bb", "sha256:bb"] {
        let other = tracks_source(revision, None);
        assert_eq!(other.phases("prod"), [format!("{revision} Delivered")]);
    }
}

#[test]
fn an_open_promotion_waits_and_is_not_cancelled_while_its_source_cannot_be_read() {
    let app = Repository { url: "https://git.example/app.git".into(), branch: "main".into() };
    let mut sim = tracks_source("main@sha1:00", Some(app.clone()));
    sim.policy_of("prod").manual = true;
    let show = |sim: &mut Simulation, source: Option<Repository>| {
        let mut shown = sim.observed.target("dev", "d").unwrap().clone();
        member(&mut shown).facets = [(Facet::Source, "main@sha1:bb".to_string())].into();
        member(&mut shown).source = source;
        sim.observed.insert("dev", "d", shown);
        sim.settle();
    };
    show(&mut sim, Some(app.clone()));
    assert_eq!(sim.phases("prod"), ["main@sha1:bb Pending"]);
    sim.promotions[0].approved = true;
    show(&mut sim, None);
    assert_eq!(sim.phases("prod"), ["main@sha1:bb Pending"]);
    show(&mut sim, Some(app));
    assert_eq!(sim.phases("prod"), ["main@sha1:bb Delivered"]);
}

/// The rules of the API server refuse it, but not for what was stored before them. The promotions of each of two
/// environments of one name are those of the other: one starts what the other cancels.
#[test]
fn environments_without_a_usable_name_are_reported_and_nothing_is_decided() {
    for (name, says) in [
        ("dev", "two environments are named dev: give each a name of its own"),
        (
            "Production EU",
            "an environment is named \"Production EU\": its name is made of lower-case letters",
        ),
        ("prod/eu", "an environment is named \"prod/eu\""),
        ("-prod", "an environment is named \"-prod\""),
        ("", "an environment is named \"\""),
    ] {
        let mut sim = Simulation::three();
        sim.runs("dev", "d", "1.2.0", Health::Ready);
        sim.settle();
        sim.pipeline.environments[1].name = name.into();
        for version in ["1.3.0", "1.4.0"] {
            sim.runs("dev", "d", version, Health::Ready);
            sim.settle();
            let note = &sim.last.notes[name];
            assert!(note.reason == "NameNotAccepted" && note.message.starts_with(says), "{note:?}");
            assert!(sim.last.actions.is_empty(), "{:?}", sim.last.actions);
        }
    }
}
