//! Helm gives up on a release: the promotion of exactly that revision fails immediately, with Helm's cause. It
//! still succeeds if the targets run the revision later.

use sluice_core::observed::{Health, ObservedTarget};
use sluice_core::promotion::Phase;
use sluice_core::revision::Facet;
use sluice_core::tracks::Track;

use crate::simulation::{Simulation, member, shows};
use crate::table::{A, B, proposed};

/// A target where Helm gave up on a chart. The previous chart runs.
fn gave_up_on(tried: &str) -> ObservedTarget {
    let mut shown = shows(A, Health::Failed);
    member(&mut shown).gave_up = [(Facet::Chart, tried.to_string())].into();
    member(&mut shown).message = "Helm upgrade failed: timed out".into();
    shown
}

/// B is merged into staging, whose target is in the state `shown`.
fn delivered(shown: ObservedTarget) -> Simulation {
    let mut sim = proposed();
    sim.observed.insert("staging", "s", shown);
    sim.merge("staging");
    sim.settle();
    sim
}

#[test]
fn a_promotion_fails_immediately_with_the_cause_of_helm() {
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
    member(&mut shown).facets.insert(image(), tag.into());
    shown
}

fn image() -> Facet {
    Facet::Image("ghcr.io/acme/web".into())
}

/// Returns the phase of the promotion after a pipeline with these `tracks` has delivered image 2 into staging.
/// Helm gave up there on a state with the facets `gave_up`. Image 1 was healthy there before.
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
    member(&mut failed).gave_up =
        gave_up.iter().map(|(facet, value)| (facet.clone(), value.to_string())).collect();
    sim.observed.insert("staging", "s", failed);
    sim.merge("staging");
    sim.settle();
    sim.promotions.iter().find(|p| p.environment == "staging").unwrap().phase
}

#[test]
fn an_image_fails_immediately_and_a_failure_before_the_delivery_does_not_count() {
    let chart = || (Facet::Chart, A);
    for (tracks, gave_up, expected) in [
        (vec![image()], vec![chart(), (image(), "2")], Phase::Failed),
        (vec![image()], vec![chart(), (image(), "1")], Phase::Delivered),
        // The values do not name the image, so it is not certain which image Helm gave up on.
        (vec![image()], vec![chart()], Phase::Delivered),
        (vec![image(), Facet::Chart], vec![chart(), (image(), "2")], Phase::Failed),
        (vec![image(), Facet::Chart], vec![chart(), (image(), "1")], Phase::Delivered),
        (vec![image(), Facet::Chart], vec![chart()], Phase::Delivered),
        // The promoted chart was healthy before, so the chart that Helm gave up on need not be known.
        (vec![image(), Facet::Chart], vec![(image(), "2")], Phase::Failed),
    ] {
        assert_eq!(image_delivered(&tracks, &gave_up), expected, "{tracks:?} {gave_up:?}");
    }
}
