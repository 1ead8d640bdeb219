//! Helm gives up on a release: the promotion of exactly that revision fails with Helm's cause at once, and
//! succeeds all the same when the targets run it after that.

use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::promotion::Phase;
use sluice_core::revision::Facet;
use sluice_core::tracks::Track;

use crate::simulation::{Simulation, shows};
use crate::table::{A, B, proposed};

/// Helm has tried a chart for the last time, and the one before it runs.
fn gave_up_on(tried: &str) -> ObservedTarget {
    let mut shown = shows(A, Health::Failed);
    shown.members[0].gave_up = [(Facet::Chart, tried.to_string())].into();
    shown.members[0].message = "Helm upgrade failed: timed out".into();
    shown
}

/// B is merged into staging, which shows this.
fn delivered(shown: ObservedTarget) -> Simulation {
    let mut sim = proposed();
    sim.observed.insert("staging", "s", shown);
    sim.merge("staging");
    sim.settle();
    sim
}

#[test]
fn a_promotion_fails_at_once_with_the_cause_of_helm() {
    let mut sim = delivered(gave_up_on(B));
    assert_eq!(sim.phases("staging"), ["1.1.0 Failed"]);
    let promotion = sim.promotions.iter().find(|p| p.environment == "staging").unwrap();
    assert!(promotion.message.contains("Helm upgrade failed: timed out"), "{}", promotion.message);
    assert_eq!(sim.step(), 0, "and nothing more");
    sim.runs("staging", "s", B, Health::Ready);
    sim.settle();
    assert_eq!(sim.phases("staging"), ["1.1.0 Succeeded"]);
}

#[test]
fn giving_up_on_another_revision_does_not_count() {
    for shown in [gave_up_on(A), shows(A, Health::Failed)] {
        let sim = delivered(shown);
        let phases: Vec<Phase> =
            sim.promotions.iter().filter(|p| p.environment == "staging").map(|p| p.phase).collect();
        assert_eq!(phases, [Phase::Delivered]);
    }
}

/// Chart 1.0.0 with an image.
fn with_image(tag: &str, health: Health) -> ObservedTarget {
    let mut shown = shows(A, health);
    shown.members[0].facets.insert(image(), tag.into());
    shown
}

fn image() -> Facet {
    Facet::Image("ghcr.io/acme/web".into())
}

/// A pipeline that tracks an image, the chart too or not, delivers image 2. The state that Helm gave up on in staging
/// has these facets, and image 1 was healthy there before.
fn image_delivered(tracks: &[Facet], gave_up: &[(Facet, &str)]) -> Phase {
    let mut sim = Simulation::three();
    sim.pipeline.tracks = tracks.iter().cloned().map(Track::Facet).collect();
    for (environment, target) in [("dev", "d"), ("staging", "s"), ("prod", "p")] {
        sim.observed.insert(environment, target, with_image("1", Health::Ready));
    }
    sim.settle();
    sim.observed.insert("dev", "d", with_image("2", Health::Ready));
    sim.settle();
    let mut failed = with_image("1", Health::Failed);
    failed.members[0].gave_up =
        gave_up.iter().map(|(facet, value)| (facet.clone(), value.to_string())).collect();
    sim.observed.insert("staging", "s", failed);
    sim.merge("staging");
    sim.settle();
    sim.promotions.iter().find(|p| p.environment == "staging").unwrap().phase
}

#[test]
fn an_image_fails_at_once_too_and_a_failure_from_before_the_delivery_does_not_count() {
    let chart = || (Facet::Chart, A);
    for (tracks, gave_up, expected) in [
        (vec![image()], vec![chart(), (image(), "2")], Phase::Failed),
        (vec![image()], vec![chart(), (image(), "1")], Phase::Delivered),
        // The values do not name the image: which one Helm gave up on is not certain.
        (vec![image()], vec![chart()], Phase::Delivered),
        (vec![image(), Facet::Chart], vec![chart(), (image(), "2")], Phase::Failed),
        (vec![image(), Facet::Chart], vec![chart(), (image(), "1")], Phase::Delivered),
        (vec![image(), Facet::Chart], vec![chart()], Phase::Delivered),
        // The chart is what was healthy before: it need not be known.
        (vec![image(), Facet::Chart], vec![(image(), "2")], Phase::Failed),
    ] {
        assert_eq!(image_delivered(&tracks, &gave_up), expected, "{tracks:?} {gave_up:?}");
    }
}
