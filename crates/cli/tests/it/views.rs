//! `sluice status`, `explain`, `history` and `events`: what people read, and the data for scripts.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Api;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use sluice_cli::Exit;

use crate::hub::{TestNamespace, place, running};

/// Creates podinfo, whose promotion into prod waits for an approval.
async fn waiting(name: &str) -> Result<TestNamespace> {
    let place = place(name).await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.5")).await?;
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval"});
    place.promotion("podinfo-prod-1", "prod", json!({"phase": "Pending", "gates": [gate]})).await?;
    Ok(place)
}

/// Returns an output without the time at which the promotion was created.
fn without_since(output: &str) -> String {
    let line = |line: &str| match line.split_once(" since ") {
        Some((before, since)) if since.parse::<jiff::Timestamp>().is_ok() => format!("{before} since TIME\n"),
        _ => format!("{line}\n"),
    };
    output.lines().map(line).collect()
}

#[tokio::test]
async fn one_screen_shows_the_cause_and_the_next_command() -> Result<()> {
    let place = waiting("status").await?;
    let ran = place.sluice(&["status", "podinfo"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, ""));
    insta::assert_snapshot!(without_since(&ran.steady()), @r"
    status/podinfo

    ENVIRONMENT RUNS HEALTH SINCE TARGETS AFTER INCOMING STATE
    dev 6.1.8 Ready AGE 1/1 - - only observed
    prod 6.1.5 Ready AGE 1/1 dev 6.1.8 Pending needs a person

    prod: 6.1.5, Ready; needs a person since TIME
    6.1.8 waits for approval
    ► sluice approve podinfo-prod-1 -n status
    ");
    Ok(())
}

#[tokio::test]
async fn an_explanation_is_for_people_and_for_scripts() -> Result<()> {
    let place = waiting("explain").await?;
    let ran = place.sluice(&["explain", "podinfo", "-e", "prod"]).await;
    insta::assert_snapshot!(without_since(&ran.out), @r"
    prod: 6.1.5, Ready; needs a person since TIME
      6.1.8 waits for approval
      ► sluice approve podinfo-prod-1 -n explain
    ");
    let ran = place.sluice(&["explain", "podinfo", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    assert_eq!(data["apiVersion"], "view.pipelines.weave.works/v1alpha1");
    assert_eq!(data["view"][1]["situation"], "Blocked", "{data}");

    let ran = place.sluice(&["explain", "podinfo", "-e", "prd"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    insta::assert_snapshot!(ran.err, @"✗ pipeline podinfo has no environment prd; did you mean prod?");
    let ran = place.sluice(&["explain", "podinf"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    insta::assert_snapshot!(ran.err, @"✗ there is no pipeline podinf in namespace explain; did you mean podinfo?");
    Ok(())
}

#[tokio::test]
async fn a_summarized_status_says_what_is_left_out() -> Result<()> {
    let place = place("summarized").await?;
    let mut status = running("6.1.8", "6.1.8");
    let says = "the status of 900 targets is too large for one object: left out are the workloads; split the pipeline";
    status["conditions"] = json!([{"type": "Summarized", "status": "True", "reason": "TooLarge", "message": says,
        "lastTransitionTime": "2026-11-21T11:00:00Z"}]);
    place.pipeline("podinfo", status).await?;
    let ran = place.sluice(&["status", "podinfo"]).await;
    assert_eq!(ran.out.lines().nth(1), Some(format!("  {says}").as_str()), "{ran:?}");
    for output in [&[][..], &["-o", "json"]] {
        let ran = place.sluice(&[&["explain", "podinfo"], output].concat()).await;
        assert_eq!((ran.exit, ran.err), (Exit::Ok, format!("! {says}\n")));
    }
    let ran = place.sluice(&["get", "targets", "podinfo"]).await;
    assert_eq!((ran.exit, ran.err), (Exit::Ok, format!("✗ podinfo: {says}\n")));
    Ok(())
}

#[tokio::test]
async fn the_record_of_a_promotion_shows_its_history() -> Result<()> {
    let place = waiting("story").await?;
    let ran = place.sluice(&["explain", "podinfo-prod-1"]).await;
    assert_eq!(ran.exit, Exit::Ok);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "podinfo 6.1.8 into prod");
    assert!(lines[1].ends_with("the promotion of 6.1.8 into prod was started"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn the_history_of_an_environment_is_a_table() -> Result<()> {
    let place = waiting("history").await?;
    place
        .promotion("podinfo-dev-1", "dev", json!({"phase": "Succeeded", "commit": "1eabc9a4d5e6f708"}))
        .await?;
    let ran = place.sluice(&["history", "podinfo", "-e", "prod"]).await;
    insta::assert_snapshot!(ran.steady(), @r"
    ENVIRONMENT REVISION REPLACES PHASE AGE BY DELIVERED AS NAME
    prod 6.1.8 - Pending AGE - - podinfo-prod-1
    ");
    let ran = place.sluice(&["history", "podinfo", "--limit", "1", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    assert_eq!(data["view"].as_array().map(Vec::len), Some(1), "{data}");

    place.pipeline("fresh", running("6.1.8", "6.1.8")).await?;
    let ran = place.sluice(&["history", "fresh"]).await;
    assert_eq!((ran.exit, ran.out.as_str(), ran.err.as_str()), (Exit::Ok, "", "nothing was promoted yet\n"));
    let ran = place.sluice(&["history", "fresh", "-e", "prod"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, "nothing was promoted into prod yet\n"));
    // As get targets -o name prints it: the promotions into prod change its targets.
    let ran = place.sluice(&["history", "podinfo", "-e", "prod/prod-podinfo"]).await;
    assert!(ran.out.contains("podinfo-prod-1") && ran.err.is_empty(), "{ran:?}");
    let ran = place.sluice(&["history", "podinfo", "-e", "pord", "-o", "json"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::NotFound, ""));
    let ran = place.sluice(&["history", "podinfo", "--limit", "0"]).await;
    assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
    let ran = place.sluice(&["history", "podinfo", "-e", "pord"]).await;
    let error = "✗ pipeline podinfo has no environment pord; there are: dev, prod\n";
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::NotFound, error));
    Ok(())
}

#[tokio::test]
async fn events_are_those_of_the_pipeline_and_its_promotions() -> Result<()> {
    let place = waiting("events").await?;
    let api: Api<Event> = Api::namespaced(place.client.clone(), &place.namespace);
    for (kind, name, reason, type_) in [
        ("Promotion", "podinfo-prod-1", "Pending", "Normal"),
        ("Promotion", "podinfo-gone", "Succeeded", "Normal"),
        ("Promotion", "other-prod-1", "Failed", "Warning"),
        ("Pipeline", "podinfo", "ClusterLost", "Warning"),
    ] {
        let object = |kind: &str, name: &str| ObjectReference {
            api_version: Some("pipelines.weave.works/v1alpha1".into()),
            kind: Some(kind.into()),
            name: Some(name.into()),
            namespace: Some(place.namespace.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            metadata: kube::api::ObjectMeta {
                name: Some(format!("{name}-{}", reason.to_lowercase())),
                ..Default::default()
            },
            involved_object: object(kind, name),
            // The Promotion is gone, but the event says which pipeline it was of.
            related: (name == "podinfo-gone").then(|| object("Pipeline", "podinfo")),
            action: Some("Promote".into()),
            reason: Some(reason.into()),
            type_: Some(type_.into()),
            message: Some("why".into()),
            ..Event::default()
        };
        api.create(&PostParams::default(), &event).await.context("an event")?;
    }
    let ran = place.sluice(&["events", "podinfo"]).await;
    assert!(ran.out.contains("promotion/podinfo-prod-1") && ran.out.contains("ClusterLost"), "{}", ran.out);
    assert!(ran.out.contains("promotion/podinfo-gone") && !ran.out.contains("other-prod-1"), "{}", ran.out);
    let ran = place.sluice(&["events", "--types", "Warning"]).await;
    assert!(ran.out.contains("other-prod-1") && !ran.out.contains("podinfo-prod-1"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn events_of_all_namespaces_name_their_namespace() -> Result<()> {
    let (one, other) = (waiting("events-one").await?, waiting("events-other").await?);
    one.event("podinfo", "ClusterLost").await?;
    other.event("podinfo", "ClusterLost").await?;
    let ran = one.sluice(&["events", "-A", "--types", "Warning"]).await;
    let lines: Vec<String> = ran.steady().lines().map(String::from).collect();
    assert_eq!(lines[0], "NAMESPACE LAST SEEN TYPE REASON OBJECT MESSAGE");
    for namespace in ["events-one", "events-other"] {
        let line = format!("{namespace} AGE Warning ClusterLost pipeline/podinfo why");
        assert!(lines.contains(&line), "{lines:#?}");
    }
    let ran = one.sluice(&["events", "podinfo", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&ran.out)?;
    let event = json!({"lastSeen": "2026-11-21T12:00:00Z", "type": "Warning", "reason": "ClusterLost",
        "namespace": "events-one", "object": "pipeline/podinfo", "message": "why"});
    assert_eq!(data["view"], json!([event]));
    let ran = one.sluice(&["events", "podinfo", "-A"]).await;
    assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn running_versions_are_shown_as_a_tree_and_as_tables() -> Result<()> {
    let place = place("running").await?;
    let workload = |tag: &str| {
        json!([
            {"kind": "HelmRelease", "name": "podinfo", "version": tag, "health": "Ready"},
            {"kind": "Deployment", "name": "podinfo", "version": tag, "health": "Ready", "images": [format!("podinfo:{tag}")]},
        ])
    };
    let mut status = running("6.1.8", "6.1.5");
    status["environments"]["dev"]["targets"][0]["workloads"] = workload("6.1.8");
    let mut failed = workload("6.1.5");
    failed[1]["health"] = "Failed".into();
    failed[1]["message"] = "exceeded its progress deadline".into();
    status["environments"]["prod"]["targets"][0]["workloads"] = failed;
    place.pipeline("podinfo", status).await?;

    let ran = place.sluice(&["tree", "podinfo", "-e", "prod"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, ""));
    insta::assert_snapshot!(ran.out, @r"
    running/podinfo
    └── prod after dev
        └── prod-podinfo (cluster prod, namespace podinfo) 6.1.5 Ready
            └── HelmRelease/podinfo 6.1.5 Ready
                └── Deployment/podinfo Failed: exceeded its progress deadline
                    └── podinfo:6.1.5
    ");
    insta::assert_snapshot!(place.sluice(&["charts"]).await.steady(), @r"
    HELM RELEASE PIPELINE ENVIRONMENT VERSION TARGETS OUTLIERS
    podinfo running/podinfo dev 6.1.8 1
    podinfo running/podinfo prod 6.1.5 1
    ");
    insta::assert_snapshot!(place.sluice(&["images", "podinfo", "-e", "dev"]).await.steady(), @r"
    IMAGE PIPELINE ENVIRONMENT VERSION TARGETS OUTLIERS
    podinfo running/podinfo dev 6.1.8 1
    ");
    insta::assert_snapshot!(place.sluice(&["clusters"]).await.steady(), @r"
    CLUSTER SECRET READY PROBLEM
    running/dev - 1/1 there is no GitopsCluster running/dev: create it, or correct the target's clusterRef
    running/prod - 1/1 there is no GitopsCluster running/prod: create it, or correct the target's clusterRef
    ");
    let ran = place.sluice(&["images", "--outliers"]).await;
    assert_eq!(ran.err, "none of the 2 images in namespace running has outliers; -A looks in all of them\n");
    let ran = place.sluice(&["charts", "nosuch", "-e", "dev", "-A"]).await;
    assert!(ran.err.contains(" charts has nosuch in its name and runs in dev\n"), "{ran:?}");
    let names = place.sluice(&["get", "targets", "podinfo", "-o", "name"]).await.out;
    assert_eq!(names, "dev/dev-podinfo\nprod/prod-podinfo\n");
    for command in ["tree", "explain", "history"] {
        for name in names.lines() {
            let ran = place.sluice(&[command, "podinfo", "-e", name]).await;
            assert!(ran.exit == Exit::Ok, "{command}: {ran:?}");
        }
    }
    let ran = place.sluice(&["tree", "podinfo", "-e", "prd"]).await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (Exit::NotFound, "✗ pipeline podinfo has no environment prd; did you mean prod?\n")
    );
    Ok(())
}

#[tokio::test]
async fn an_unreadable_target_is_named_below_the_charts_and_images() -> Result<()> {
    let place = place("lost").await?;
    let mut status = running("6.1.8", "6.1.5");
    let lost = &mut status["environments"]["prod"]["targets"][0];
    lost["health"] = "Unknown".into();
    lost["error"] = "cluster lost/prod cannot be reached: connection refused".into();
    lost["workloads"] = json!([]);
    place.pipeline("podinfo", status).await?;
    let expected = "prod/prod-podinfo of lost/podinfo is not shown in full: cluster lost/prod cannot be reached: connection refused\n";
    for command in ["charts", "images"] {
        let ran = place.sluice(&[command]).await;
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, expected), "{command}");
        assert_eq!(place.sluice(&[command, "-o", "json"]).await.err, expected, "{command}");
        assert_eq!(place.sluice(&[command, "-e", "dev"]).await.err, "", "{command}");
    }
    let ran = place.sluice(&["charts", "-e", "prod"]).await;
    assert!(ran.err.starts_with(expected), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn a_misspelled_environment_of_charts_is_an_error_with_the_right_one() -> Result<()> {
    let place = place("misspelled").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.5")).await?;
    let ran = place.sluice(&["charts", "-e", "prd"]).await;
    assert_eq!(ran.exit, Exit::NotFound, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"✗ no pipeline in namespace misspelled has an environment prd; did you mean prod?");
    Ok(())
}

/// The Lease of a shard that its holder no longer renews.
#[tokio::test]
async fn a_controller_that_does_not_act_is_named_by_status_and_explain() -> Result<()> {
    let place = waiting("dead").await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "sluice.shard-0", "namespace": "dead", "labels": {"app.kubernetes.io/part-of": "sluice"}},
        "spec": {"holderIdentity": "sluice-a", "leaseDurationSeconds": 10, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    crate::hub::servers().await?.hub.apply_yaml(&lease.to_string()).await?;
    for command in ["status", "explain"] {
        let ran = place.sluice(&[command, "podinfo", "--system-namespace", "dead"]).await;
        assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
        let first = "! no controller acts: sluice-a has not renewed the Lease sluice.shard-0 for ";
        assert!(
            ran.err.starts_with(first) && ran.err.ends_with(": sluice check -n dead\n"),
            "{command}: {ran:?}"
        );
        assert_eq!(place.sluice(&[command, "podinfo"]).await.err, "", "without a readable Lease");
    }
    Ok(())
}

#[tokio::test]
async fn an_event_with_a_time_that_cannot_be_parsed_does_not_hide_the_others() -> Result<()> {
    let place = waiting("odd-times").await?;
    let events = |name: &str, time: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "odd-times"},
            "involvedObject": {"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": "podinfo",
                "namespace": "odd-times"},
            "reason": name, "type": "Normal", "message": "why", "lastTimestamp": time})
    };
    for (name, time) in [("odd", "9999-12-31T23:59:59Z"), ("usual", "2026-11-21T12:00:00Z")] {
        let all = Request::new("/api/v1/namespaces/odd-times/events");
        let create = all.create(&PostParams::default(), serde_json::to_vec(&events(name, time))?)?;
        place.client.request::<Value>(create).await.context("an event")?;
    }
    let ran = place.sluice(&["events", "podinfo"]).await;
    assert!(ran.out.contains("usual"), "{ran:?}");
    assert!(ran.err.starts_with("✗ event odd-times/odd cannot be read: "), "{ran:?}");
    Ok(())
}
