//! When the controller writes a status: a change of health is written within a second, and one step is one write.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_api::pipeline::{EnvironmentStatus, Health, PipelineStatus, PromotionSummary, TargetStatus};
use sluice_api::promotion::Phase;
use sluice_controller::state::status_pace::{
    Damping, Pace, has_health_changed, has_only_health_changed, is_newly_delivered, newly_failed,
};

#[test]
fn a_status_waits_only_for_changes_that_will_soon_follow() {
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
        let due = Pace { differs, sent, damped: None, busy, health, delivered }.due();
        assert_eq!(due - differs, ms(wanted), "{row:?}");
        assert!(
            !health || due - differs < ms(1000),
            "{row:?}: a change of health is written within a second"
        );
    }
}

fn status_with(health: Health, error: &str, promotion: Option<(&str, Phase)>) -> PipelineStatus {
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
fn a_status_reports_health_if_the_health_or_the_error_of_a_target_changes() {
    let ready = status_with(Health::Ready, "", None);
    assert!(has_health_changed(&PipelineStatus::default(), &ready));
    assert!(has_health_changed(&ready, &status_with(Health::Failed, "", None)));
    assert!(has_health_changed(&ready, &status_with(Health::Ready, "no answer", None)));
    assert!(!has_health_changed(&ready, &status_with(Health::Ready, "", Some(("a", Phase::Delivered)))));
}

#[test]
fn a_status_reports_a_delivery_once() {
    let at = |name, phase| status_with(Health::Ready, "", Some((name, phase)));
    let delivered = at("a", Phase::Delivered);
    assert!(is_newly_delivered(&at("a", Phase::Proposed), &delivered));
    assert!(is_newly_delivered(&status_with(Health::Ready, "", None), &delivered));
    assert!(is_newly_delivered(&at("b", Phase::Delivered), &delivered));
    assert!(!is_newly_delivered(
        &delivered,
        &status_with(Health::Progressing, "", Some(("a", Phase::Delivered)))
    ));
    assert!(!is_newly_delivered(&delivered, &at("a", Phase::Succeeded)));
}

/// Returns the time of each write since the start, for a target whose health changes every second.
fn writes_of_a_flapping_target(seconds: u64) -> Vec<(Duration, Health)> {
    let (start, mut written) = (Instant::now(), status_with(Health::Ready, "", None));
    let (mut damping, mut sent, mut differs) = (Damping::default(), None, None);
    let mut writes = Vec::new();
    // The controller checks every tenth of a second whether a write is due.
    for tenth in 0..seconds * 10 {
        let now = start + Duration::from_millis(100 * tenth);
        let health = if (tenth / 10) % 2 == 0 { Health::Failed } else { Health::Ready };
        let status = status_with(health, "", None);
        if status == written {
            differs = None;
            continue;
        }
        let failed = newly_failed(&written, &status);
        assert!(has_only_health_changed(&written, &status));
        let damped = damping.until(&failed, now);
        let differs_since = *differs.get_or_insert(now);
        let pace = Pace { differs: differs_since, sent, damped, busy: false, health: true, delivered: false };
        if pace.due() <= now {
            writes.push((now - start, health));
            damping.sent(failed, now);
            (written, sent, differs) = (status, Some(now), None);
        }
    }
    writes
}

#[test]
fn the_writes_about_a_target_that_flaps_every_second_become_rare() {
    let writes = writes_of_a_flapping_target(600);
    assert_eq!(writes[0], (Duration::ZERO, Health::Failed), "the first change is written immediately");
    assert!(writes.len() <= 30, "{} writes in ten minutes: {writes:?}", writes.len());
    let last_minutes = writes.iter().filter(|(at, _)| *at >= Duration::from_secs(300)).count();
    assert!((5..=11).contains(&last_minutes), "{last_minutes} writes in the last five minutes");
}

#[test]
fn damping_delays_neither_the_first_failure_of_a_target_nor_the_first_change_after_a_quiet_minute() {
    let start = Instant::now();
    let target = |name: &str| ("prod".to_string(), name.to_string());
    let mut damping = Damping::default();
    assert_eq!(damping.until(&[], start), None);
    let at = |seconds| start + Duration::from_secs(seconds);
    for second in 0..6 {
        damping.sent(vec![target("eu")], at(second));
    }
    assert!(damping.until(&[], at(6)).is_some_and(|until| until > at(6)));
    assert!(
        damping.until(&[target("eu")], at(6)).is_some_and(|until| until > at(6)),
        "its failure was written lately"
    );
    assert_eq!(damping.until(&[target("eu"), target("us")], at(6)), None, "us fails for the first time");
    assert_eq!(damping.until(&[], at(66)), None, "it was quiet for a minute");
}

#[test]
fn changes_of_promotions_and_revisions_are_not_damped() {
    let at = |health, promotion| status_with(health, "", promotion);
    let delivered = Some(("a", Phase::Delivered));
    assert!(has_only_health_changed(&at(Health::Ready, None), &at(Health::Failed, None)));
    assert!(!has_only_health_changed(&at(Health::Ready, None), &at(Health::Failed, delivered)));
    assert!(!has_only_health_changed(&PipelineStatus::default(), &at(Health::Ready, None)));
    let mut runs = at(Health::Ready, None);
    runs.environments.get_mut("dev").unwrap().targets[0].revision = Some("6.1.8".into());
    assert!(!has_only_health_changed(&at(Health::Ready, None), &runs));
}

/// A target that can be read now and then costs no more writes than one that is healthy now and then.
#[test]
fn a_target_that_cannot_be_read_and_runs_the_same_afterwards_is_damped() {
    let mut read = status_with(Health::Ready, "", None);
    let target = &mut read.environments.get_mut("dev").unwrap().targets[0];
    let verified = json!([{"facets": {"HelmRelease/podinfo:chart": "6.1.8"}, "arrival": 1, "at": "2026-11-27T03:00:00Z"}]);
    target.verified = serde_json::from_value(verified).unwrap();
    target.revision = Some("6.1.8".into());
    let mut unread = read.clone();
    unread.environments.get_mut("dev").unwrap().targets[0].revision = None;
    assert!(has_only_health_changed(&read, &unread) && has_only_health_changed(&unread, &read));
    let mut newer = read.clone();
    newer.environments.get_mut("dev").unwrap().targets[0].revision = Some("6.2.0".into());
    assert!(!has_only_health_changed(&unread, &newer) && !has_only_health_changed(&read, &newer));
}
