//! `status`: one line for each environment, and the first cause.

use serde_json::json;
use sluice_api::Promotion;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::status;

use crate::fixture::{now, pipeline, promotion, runs, target};

#[test]
fn environments_that_need_a_person_are_shown_before_waiting_ones() {
    let broken = target("staging", "6.1.7", "Progressing", "HelmRelease/podinfo: is upgrading");
    let observed = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": {"health": "Progressing", "revision": "6.1.7", "targets": [broken]},
        "prod": runs("prod", "6.1.5", "Ready"),
    }));
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    let promotions = [
        promotion("staging", 1, json!({"phase": "Delivered"})),
        promotion("prod", 2, json!({"phase": "Pending", "gates": [gate]})),
    ];
    let shown = status(&observed, &promotions, now());
    let cause = shown.cause.unwrap();
    assert_eq!((cause.environment.as_str(), cause.situation), ("prod", Situation::Blocked));
    let lines: Vec<String> = shown
        .environments
        .iter()
        .map(|l| format!("{} {:?} {} {:?} {:?}", l.environment, l.runs, l.health, l.ready, l.incoming))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    dev Some("6.1.8") Ready (1, 1) None
    staging Some("6.1.7") Progressing (0, 1) Some(("6.1.8", Delivered))
    prod Some("6.1.5") Ready (1, 1) Some(("6.1.8", Pending))
    "#);
}

#[test]
fn a_promotion_that_has_arrived_is_not_incoming() {
    let even = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.8", "Ready"),
    }));
    let failed = promotion("prod", 1, json!({"phase": "Failed", "message": "not healthy in time"}));
    let shown = status(&even, &[failed], now());
    assert_eq!(shown.environments[2].incoming, None);
    assert_eq!(shown.cause, None, "nothing waits");
}

#[test]
fn a_summarized_status_says_what_it_leaves_out() {
    let with = |is_summarized: &str| {
        let mut large = pipeline(json!({"dev": runs("dev", "6.1.8", "Ready")}));
        let condition = json!({"type": "Summarized", "status": is_summarized, "reason": "TooLarge",
            "lastTransitionTime": "2026-11-21T11:00:00Z", "message": "left out are the workloads; split the pipeline"});
        let conditions = &mut large.status.as_mut().unwrap().conditions;
        conditions.push(serde_json::from_value(condition).unwrap());
        status::<Promotion>(&large, &[], now()).summarized
    };
    assert_eq!(with("True").as_deref(), Some("left out are the workloads; split the pipeline"));
    assert_eq!(with("False"), None);
}

#[test]
fn a_pipeline_that_is_only_observed_says_what_differs() {
    let mut observed = pipeline(json!({
        "dev": runs("dev", "6.3.0", "Ready"),
        "staging": runs("staging", "6.3.0", "Ready"),
        "prod": runs("prod", "6.2.0", "Ready"),
    }));
    observed.spec.promotion = None;
    observed.spec.environments.iter_mut().for_each(|environment| environment.promotion = None);
    let shown = status::<Promotion>(&observed, &[], now());
    let cause = shown.cause.unwrap();
    assert_eq!((cause.environment.as_str(), cause.situation), ("prod", Situation::Differs));
    assert_eq!(cause.sentences, ["prod runs 6.2.0, staging 6.3.0; Sluice only observes this pipeline."]);
}
