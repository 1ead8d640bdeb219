//! When a status is due: what a target does shows within a second, and one step is one write.

use std::time::{Duration, Instant};

use sluice_api::pipeline::{EnvironmentStatus, Health, PipelineStatus, PromotionSummary, TargetStatus};
use sluice_api::promotion::Phase;
use sluice_controller::record::pace::{Pace, tells_of_delivery, tells_of_health};

#[test]
fn a_status_waits_only_for_what_is_about_to_follow() {
    let differs = Instant::now();
    let ms = Duration::from_millis;
    // (since the last write, busy, health, delivered) → how long after it differs it is due
    let table = [
        ((None, false, false, false), 0),
        ((None, false, true, false), 0),
        ((None, true, true, false), 800),
        ((None, true, true, true), 800),
        ((None, true, false, false), 5000),
        ((None, true, false, true), 5000),
        ((None, false, false, true), 800),
        ((None, false, true, true), 800),
        ((Some(100), false, true, false), 600),
        ((Some(0), true, true, false), 800),
        ((Some(700), false, false, false), 0),
        ((Some(60_000), false, true, false), 0),
    ];
    for (row, wanted) in table {
        let (ago, busy, health, delivered) = row;
        let sent = ago.and_then(|ago| differs.checked_sub(ms(ago)));
        let due = Pace { differs, sent, busy, health, delivered }.due();
        assert_eq!(due - differs, ms(wanted), "{row:?}");
        assert!(!health || due - differs < ms(1000), "{row:?}: people see how a target does within a second");
    }
}

fn shown(health: Health, error: &str, promotion: Option<(&str, Phase)>) -> PipelineStatus {
    let target = TargetStatus { health, error: error.into(), ..TargetStatus::default() };
    let promotion = promotion.map(|(name, phase)| PromotionSummary {
        name: name.into(),
        phase,
        ..PromotionSummary::default()
    });
    let environment = EnvironmentStatus { targets: vec![target], promotion, ..EnvironmentStatus::default() };
    PipelineStatus { environments: [("dev".into(), environment)].into(), ..PipelineStatus::default() }
}

#[test]
fn health_is_told_of_when_a_target_does_otherwise_or_cannot_be_read() {
    let ready = shown(Health::Ready, "", None);
    assert!(tells_of_health(&PipelineStatus::default(), &ready));
    assert!(tells_of_health(&ready, &shown(Health::Failed, "", None)));
    assert!(tells_of_health(&ready, &shown(Health::Ready, "no answer", None)));
    assert!(!tells_of_health(&ready, &shown(Health::Ready, "", Some(("a", Phase::Delivered)))));
}

#[test]
fn a_delivery_is_told_of_once() {
    let at = |name, phase| shown(Health::Ready, "", Some((name, phase)));
    let delivered = at("a", Phase::Delivered);
    assert!(tells_of_delivery(&at("a", Phase::Proposed), &delivered));
    assert!(tells_of_delivery(&shown(Health::Ready, "", None), &delivered));
    assert!(tells_of_delivery(&at("b", Phase::Delivered), &delivered));
    assert!(!tells_of_delivery(&delivered, &shown(Health::Progressing, "", Some(("a", Phase::Delivered)))));
    assert!(!tells_of_delivery(&delivered, &at("a", Phase::Succeeded)));
}
