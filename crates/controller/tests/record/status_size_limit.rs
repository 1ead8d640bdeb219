//! The limit for the size of a status, for pipelines of any shape.

use proptest::prelude::*;
use sluice_api::pipeline::{
    ClusterAppRef, EnvironmentStatus, Health, PipelineStatus, PromotionSummary, TargetStatus, Verified,
    WorkloadStatus,
};
use sluice_controller::record::status_size::fit;

fn health() -> impl Strategy<Value = Health> {
    prop_oneof![
        6 => Just(Health::Ready),
        1 => Just(Health::Progressing),
        1 => Just(Health::Failed),
        1 => Just(Health::Unknown),
    ]
}

fn verified() -> impl Strategy<Value = Verified> {
    ("[a-c]", 0u8..4, any::<u32>(), 0u32..3).prop_map(|(name, version, arrival, run)| Verified {
        facets: [(format!("HelmRelease/{name}:chart"), format!("6.1.{version}"))].into(),
        arrival: arrival.into(),
        run,
        at: "2026-11-21T10:00:00Z".parse().unwrap(),
    })
}

prop_compose! {
    fn target()(
        health in health(),
        message_length in 0usize..1000,
        workloads in 0usize..12,
        verified in proptest::collection::vec(verified(), 0..12),
        promotion in proptest::option::of(0usize..4000),
        name in "[a-z]{1,63}",
        cluster in "[a-z]{1,253}",
    ) -> TargetStatus {
        let workload = WorkloadStatus { kind: "HelmRelease".into(), name: "podinfo".into(),
            message: "é".repeat(message_length / 2), ..WorkloadStatus::default() };
        TargetStatus {
            namespace: name.clone(),
            name,
            health,
            revision: Some("6.1.8 ".repeat(message_length / 10)),
            error: "x".repeat(if health == Health::Ready { 0 } else { message_length }),
            cluster_app_ref: Some(ClusterAppRef { name: cluster, ..ClusterAppRef::default() }),
            workloads: vec![workload; workloads],
            promotion: promotion.map(|n| PromotionSummary { message: "y".repeat(n), ..PromotionSummary::default() }),
            verified,
            ..TargetStatus::default()
        }
    }
}

fn status() -> impl Strategy<Value = PipelineStatus> {
    let environment = proptest::collection::vec(target(), 1..12);
    proptest::collection::btree_map("[a-z]{1,8}", environment, 1..4).prop_map(|all| {
        let environment =
            |(name, targets)| (name, EnvironmentStatus { targets, ..EnvironmentStatus::default() });
        PipelineStatus {
            environments: all.into_iter().map(environment).collect(),
            ..PipelineStatus::default()
        }
    })
}

fn length(status: &PipelineStatus) -> usize {
    serde_json::to_vec(status).unwrap().len()
}

fn targets(status: &PipelineStatus) -> impl Iterator<Item = &TargetStatus> {
    status.environments.values().flat_map(|e| &e.targets)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_status_of_any_shape_fits_and_reports_what_was_left_out(before in status(), share in 1usize..120) {
        // A share of the full size in percent, but at least the size of a status without targets.
        let count = targets(&before).count();
        let room = (length(&before) * share / 100).max(2000);
        let mut after = before.clone();
        let report = fit(&mut after, room);
        prop_assert!(length(&after) <= room, "{} bytes of {room}", length(&after));
        let Some(report) = report else {
            let full = |t: &TargetStatus| (t.workloads.len(), t.error.len(), t.cluster_app_ref.is_some());
            prop_assert!(targets(&before).map(full).eq(targets(&after).map(full)));
            return Ok(());
        };
        // Fitting it again changes nothing.
        let mut again = after.clone();
        prop_assert_eq!(fit(&mut again, room), None);
        if report.contains("nothing that ran there counts as proven") {
            prop_assert!(targets(&after).all(|t| matches!(t.health, Health::Failed | Health::Unknown)));
            return Ok(());
        }
        prop_assert_eq!(targets(&after).count(), count);
        prop_assert!(!report.contains("left out are ;"), "{}", report);
        let in_full = |t: &TargetStatus| !matches!(t.health, Health::Failed | Health::Unknown) && !t.workloads.is_empty();
        prop_assert!(
            !report.contains("Failed or Unknown") || !targets(&after).any(in_full),
            "a failed target is shortened before a healthy one: {report}"
        );
        for (old, new) in targets(&before).zip(targets(&after)) {
            prop_assert_eq!((&old.name, old.health, old.ready), (&new.name, new.health, new.ready));
            let kept = after.verified_by(new);
            // All evidence is kept, or the report says that it is not. The newest evidence is always kept.
            prop_assert!(kept == old.verified || report.contains("proven revisions"), "{report}");
            prop_assert!(old.verified.ends_with(&kept) && kept.is_empty() == old.verified.is_empty());
            let fails = matches!(old.health, Health::Failed | Health::Unknown);
            prop_assert!(
                !fails || (&old.workloads, &old.error) == (&new.workloads, &new.error) || report.contains("Failed or Unknown"),
                "{report}"
            );
        }
    }
}
