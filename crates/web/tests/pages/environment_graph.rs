//! The graph of the environments: chains, branches and promotions on their lines, as HTML and in a real Chromium.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_core::planned_change::{PlannedChange, PlannedValue};

use super::Browser;
use super::chromium::Chromium;
use super::world::{World, environment, pipeline, snapshot};

/// Returns the time some minutes ago, or ahead if negative.
fn ago(minutes: i64) -> String {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    now.checked_sub(SignedDuration::from_mins(minutes)).unwrap().to_string()
}

/// A pipeline with these environments: name, predecessors, revision, health.
pub fn with_environments(name: &str, environments: &[(&str, &[&str], &str, &str)]) -> StoredPipeline {
    let mut stored = pipeline("apps", name, [(); 3].map(|()| environment("1", "Ready", "")));
    let specs: Vec<Value> = environments
        .iter()
        .map(|(name, after, ..)| {
            let target =
                json!({"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": name}});
            json!({"name": name, "after": after, "targets": [target]})
        })
        .collect();
    Arc::make_mut(&mut stored.object).spec.environments = serde_json::from_value(json!(specs)).unwrap();
    let statuses: serde_json::Map<String, Value> = environments
        .iter()
        .map(|(name, _, revision, health)| {
            let error =
                if *health == "Failed" { "Deployment podinfo: CrashLoopBackOff, 3 of 5 pods" } else { "" };
            let mut status = environment(revision, health, error);
            let target = &mut status["targets"][0];
            target["since"] = json!(ago(if *revision == "6.2.0" { 37 } else { 9 * 24 * 60 }));
            target["workloads"][0]["health"] = json!(health);
            let images = json!([format!("ghcr.io/stefanprodan/podinfo:{revision}")]);
            let made = json!({"kind": "Deployment", "name": "podinfo", "health": health, "images": images});
            target["workloads"].as_array_mut().unwrap().push(made);
            (name.to_string(), status)
        })
        .collect();
    let status = json!({"observedGeneration": 1, "environments": statuses});
    stored.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    stored
}

/// A promotion of 6.2.0 into an environment.
fn into(pipeline: &str, environment: &str, status: Value) -> Arc<Promotion> {
    let mut object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": format!("{pipeline}-{environment}-1"), "namespace": "apps", "uid": "u",
            "creationTimestamp": ago(42)},
        "spec": {"pipeline": pipeline, "environment": environment, "revision": "6.2.0", "facets": {"chart": "6.2.0"},
            "replaces": "6.1.8", "sequence": 1,
            "evidence": [{"environment": "staging", "target": "podinfo", "at": ago(43)}]},
        "status": status,
    });
    if status["retried"].is_string() {
        object["spec"]["retry"] = status["retried"].clone();
        object["spec"]["rejection"] =
            json!({"by": "joe", "reason": "not before the sale is over", "revision": "6.2.0"});
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

fn waits(name: &str) -> Value {
    let message = format!("waits for approval: sluice approve -n apps {name}");
    json!({"phase": "Pending", "message": message, "times": {"Pending": ago(42)},
        "gates": [{"name": "Approval", "open": false, "message": message}]})
}

fn succeeded() -> Value {
    json!({"phase": "Succeeded", "times": {"Succeeded": ago(37)}})
}

/// Rejected, started again, and failed.
fn tried_again() -> Value {
    json!({"phase": "Succeeded", "commit": "74e4081d3a0be1f1e9b8a7a0c5a4b3c2d1e0f9a8", "retries": 1,
        "retried": ago(30), "approval": {"by": "jane", "at": ago(22), "retries": 1},
        "message": "archive runs 6.2.0 and is healthy",
        "changeRequest": {"number": 419, "url": "https://git.example.com/acme/fleet/pulls/419", "state": "merged",
            "branch": "sluice/apps/branches/archive", "headCommit": "74e4081d"},
        "times": {"Rejected": ago(35), "Pending": ago(29), "Proposed": ago(20),
            "Delivered": ago(9), "Succeeded": ago(7)}})
}

/// Three in a chain, eight in a chain, and branches.
fn graphs() -> Snapshot {
    const NEW: (&str, &str) = ("6.2.0", "Ready");
    const OLD: (&str, &str) = ("6.1.8", "Ready");
    let at = |name: &'static str, after: &'static [&'static str], (revision, health)| {
        (name, after, revision, health)
    };
    let eight = ["dev", "test", "integration", "performance", "acceptance", "staging", "canary", "prod"];
    let eight: Vec<_> =
        eight.iter().enumerate().map(|(n, name)| at(name, &[], if n < 6 { NEW } else { OLD })).collect();
    let check = |name: &str, result: &str, required: bool| {
        let url = format!("https://ci.example.com/{name}");
        json!({"name": name, "result": result, "required": required, "url": url})
    };
    let checks = json!({"commit": "c", "since": ago(12), "failed": 1, "pending": 2, "passed": 14, "items": [
        check("e2e/prod-eu", "failed", false), check("ci/build", "pending", true), check("policy", "pending", false),
        check("ci/lint", "passed", true), check("ci/test", "passed", true)]});
    let request = json!({"number": 417, "url": "https://git.example.com/417", "state": "open", "branch": "b",
        "headCommit": "c", "checks": checks});
    let proposed = json!({"phase": "Proposed", "message": "waits for 1 of 2 checks", "changeRequest": request,
        "times": {"Proposed": ago(41)}});
    let delivered = json!({"phase": "Delivered", "reason": "Committed", "times": {"Delivered": ago(12)},
        "message": "committed; waits for the targets to run it"});
    let failed = json!({"phase": "Promoting", "reason": "NoMarker", "attempts": 2, "nextAttempt": ago(-3),
        "times": {"Promoting": ago(12)},
        "message": "no marker of apps:branches:prod-us in clusters/us; add one to the file with the version"});
    snapshot(
        vec![
            with_environments(
                "podinfo",
                &[at("dev", &[], NEW), at("staging", &[], NEW), at("prod", &[], OLD)],
            ),
            with_environments("eight", &eight),
            with_environments(
                "branches",
                &[
                    at("dev", &[], NEW),
                    at("qa", &["dev"], NEW),
                    at("load-test", &["dev"], ("6.2.0", "Failed")),
                    at("staging", &["qa"], NEW),
                    at("prod-eu", &["staging", "load-test"], OLD),
                    at("prod-us", &["staging"], OLD),
                    at("prod-ap", &["staging"], OLD),
                    at("archive", &["prod-eu", "prod-us", "prod-ap"], NEW),
                ],
            ),
        ],
        vec![
            into("podinfo", "staging", succeeded()),
            into("podinfo", "prod", waits("podinfo-prod-1")),
            into("eight", "canary", delivered),
            into("branches", "qa", succeeded()),
            into("branches", "archive", tried_again()),
            into("branches", "prod-eu", proposed),
            into("branches", "prod-us", failed),
            into("branches", "prod-ap", waits("branches-prod-ap-1")),
        ],
    )
}

async fn page(name: &str) -> String {
    let admin = Browser::new(&World::new(graphs()), true, "admin").await;
    admin.get(&format!("/pipelines/apps/{name}")).await.text
}

#[tokio::test]
async fn the_line_to_an_environment_shows_the_promotion_and_the_gate_that_holds_it() {
    let page = page("podinfo").await;
    let prod = page.split("id=\"env-staging\"").nth(1).unwrap().split("id=\"env-prod\"").next().unwrap();
    for said in [
        "class=\"edge l3 f1 t1 waits\"",
        "class=\"into l3 r1 waits\"",
        "href=\"/promotions/apps/podinfo-prod-1\"",
        "<b>Gate Approval</b>",
        ">waits for approval</p>",
        "Opens when a person approves.",
    ] {
        assert!(prod.contains(said), "{said}: {prod}");
    }
    assert!(!prod.contains("sluice approve"), "{prod}");
    // What has arrived is on the line, too.
    let staging = page.split("id=\"env-dev\"").nth(1).unwrap().split("id=\"env-staging\"").next().unwrap();
    assert!(
        staging.contains("<a class=\"arrived\" href=\"/promotions/apps/podinfo-staging-1\">"),
        "{staging}"
    );
    assert!(page.contains("staging runs <span class=\"mono\">6.2.0</span>"), "{page}");
}

#[tokio::test]
async fn each_environment_is_an_item_with_a_name_and_its_predecessors() {
    let page = page("branches").await;
    assert_eq!(page.matches("<li role=\"listitem\">").count(), 8, "{page}");
    assert!(page.contains("id=\"env-archive\" aria-labelledby=\"env-name-archive\""), "{page}");
    assert!(page.contains("after prod-eu, prod-us, prod-ap</p>"), "{page}");
    // The line of load-test passes beside staging.
    assert!(page.contains("<div class=\"lane l3 r2 waits\" aria-hidden=\"true\">"), "{page}");
}

#[tokio::test]
async fn a_target_on_a_lost_cluster_says_what_it_ran_and_as_of_when() {
    let mut stored =
        with_environments("podinfo", &[("dev", &[], "6.2.0", "Ready"), ("prod", &[], "6.1.8", "Unknown")]);
    let mut status: Value = serde_json::from_str(stored.status.as_ref().unwrap().get()).unwrap();
    let prod = &mut status["environments"]["prod"];
    prod.as_object_mut().unwrap().remove("revision");
    prod["targets"] = json!([{"name": "podinfo", "namespace": "podinfo", "health": "Unknown", "since": "2026-11-22T11:00:00Z",
        "error": "cluster apps/prod refuses the connection",
        "verified": [{"facets": {"HelmRelease/podinfo:chart": "6.1.8"}, "arrival": 1, "at": "2026-11-20T10:00:00Z"}]}]);
    stored.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    let admin = Browser::new(&World::new(snapshot(vec![stored], vec![])), true, "admin").await;
    let page = admin.get("/pipelines/apps/podinfo").await.text;
    let prod = page.split("id=\"env-prod\"").nth(1).unwrap();
    for said in [
        "not known",
        "last seen healthy: <span class=\"mono\">6.1.8</span>, as of <time datetime=\"2026-11-20T10:00:00Z\"",
        "; unreadable since <time datetime=\"2026-11-22T11:00:00Z\"",
        "refuses the connection",
    ] {
        assert!(prod.contains(said), "{said}: {prod}");
    }
}

/// What the delivery into prod changes.
fn planned() -> PlannedChange {
    let value = |path: &str, line| PlannedValue {
        path: path.into(),
        line,
        old: Some("6.1.8".into()),
        new: "6.2.0".into(),
    };
    PlannedChange {
        repository: "https://git.example.com/acme/fleet".into(),
        branch: "main".into(),
        commit: "74e4081d3a0be1f1e9b8a7a0c5a4b3c2d1e0f9a8".into(),
        values: vec![value("clusters/prod/podinfo.yaml", 12), value("clusters/prod/podinfo-tests.yaml", 9)],
    }
}

/// The pages of which the browser test takes pictures, with the names of these.
const PICTURES: [(&str, &str); 12] = [
    ("list", "/"),
    ("graph", "/pipelines/apps/podinfo"),
    ("graph-eight", "/pipelines/apps/eight"),
    ("graph-branches", "/pipelines/apps/branches"),
    ("objects", "/pipelines/apps/branches/objects"),
    ("triggers", "/pipelines/apps/podinfo/triggers"),
    ("graph-form", "/pipelines/apps/branches/edit"),
    ("story", "/promotions/apps/branches-archive-1"),
    ("checks", "/promotions/apps/branches-prod-eu-1"),
    ("what-changes", "/promotions/apps/podinfo-prod-1/change"),
    ("confirm-approve", "/promotions/apps/podinfo-prod-1/approve"),
    ("confirm-reject", "/promotions/apps/branches-prod-eu-1/reject"),
];

#[tokio::test]
async fn graphs_and_promotions_are_accessible_and_fit_in_every_look() {
    let world = World::new(graphs());
    world.plan(Ok(Some(Arc::new(planned()))));
    let faults = Chromium::of_admin(&world).await.faults_of(&PICTURES).await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
