//! The graph of the environments: chains, branches and promotions on their lines, as HTML and in a real Chromium.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_core::fleet::index::Fleet;
use sluice_testkit::{Browser as Chromium, Look};
use sluice_web::{Api, router};

use super::Browser;
use super::world::{World, environment, pipeline, snapshot};

/// A pipeline with these environments: name, predecessors, revision, health.
fn with_environments(name: &str, environments: &[(&str, &[&str], &str, &str)]) -> StoredPipeline {
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
            (name.to_string(), environment(revision, health, error))
        })
        .collect();
    let status = json!({"observedGeneration": 1, "environments": statuses});
    stored.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    stored
}

/// A promotion of 6.2.0 into an environment.
fn into(pipeline: &str, environment: &str, status: Value) -> Arc<Promotion> {
    let object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": format!("{pipeline}-{environment}-1"), "namespace": "apps", "uid": "u",
            "creationTimestamp": "2026-11-22T10:00:00Z"},
        "spec": {"pipeline": pipeline, "environment": environment, "revision": "6.2.0", "facets": {"chart": "6.2.0"},
            "replaces": "6.1.8", "sequence": 1},
        "status": status,
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn waits(name: &str) -> Value {
    let message = format!("waits for approval: sluice approve -n apps {name}");
    json!({"phase": "Pending", "message": message, "times": {"Pending": "2026-11-22T10:00:00Z"},
        "gates": [{"name": "Approval", "open": false, "message": message}]})
}

fn succeeded() -> Value {
    json!({"phase": "Succeeded", "times": {"Succeeded": "2026-11-22T10:05:00Z"}})
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
    let request = json!({"number": 417, "url": "https://git.example.com/417", "state": "open", "branch": "b",
        "headCommit": "c"});
    let proposed = json!({"phase": "Proposed", "message": "waits for 1 of 2 checks", "changeRequest": request,
        "times": {"Proposed": "2026-11-22T10:01:00Z"}});
    let delivered = json!({"phase": "Delivered", "reason": "Committed", "times": {"Delivered": "2026-11-22T10:02:00Z"},
        "message": "committed; waits for the targets to run it"});
    let failed = json!({"phase": "Promoting", "reason": "NoMarker", "attempts": 2, "nextAttempt": "2100-01-01T00:00:00Z",
        "times": {"Promoting": "2026-11-22T10:02:00Z"},
        "message": "no marker of apps:branches:prod-us in clusters/us; add one to the file with the version"});
    snapshot(
        vec![
            with_environments("three", &[at("dev", &[], NEW), at("staging", &[], NEW), at("prod", &[], OLD)]),
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
                    at("archive", &["prod-eu", "prod-us", "prod-ap"], OLD),
                ],
            ),
        ],
        vec![
            into("three", "staging", succeeded()),
            into("three", "prod", waits("three-prod-1")),
            into("eight", "canary", delivered),
            into("branches", "qa", succeeded()),
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
    let page = page("three").await;
    let prod = page.split("id=\"env-staging\"").nth(1).unwrap().split("id=\"env-prod\"").next().unwrap();
    for said in [
        "class=\"edge l3 f1 t1 waits\"",
        "class=\"into l3 r1 waits\"",
        "href=\"/promotions/apps/three-prod-1\"",
        "<b>Gate Approval</b>",
        ">waits for approval</p>",
        "Opens when a person approves.",
    ] {
        assert!(prod.contains(said), "{said}: {prod}");
    }
    assert!(!prod.contains("sluice approve"), "{prod}");
    // What has arrived is on the line, too.
    let staging = page.split("id=\"env-dev\"").nth(1).unwrap().split("id=\"env-staging\"").next().unwrap();
    assert!(staging.contains("<a class=\"arrived\" href=\"/promotions/apps/three-staging-1\">"), "{staging}");
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
async fn graphs_are_accessible_and_fit_in_every_look() {
    let router = router(Api::new(Fleet::default(), World::new(graphs()), true));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let browser = Chromium::start().await.unwrap();
    browser.open(&format!("{base}/sign-in")).await.unwrap();
    browser.write("#token", "admin").await.unwrap();
    browser.click("button.main").await.unwrap();
    browser.until_text("branches").await.unwrap();
    let pictures = std::env::var_os("SLUICE_SCREENSHOTS").map(PathBuf::from);
    let mut faults = Vec::new();
    for name in ["three", "eight", "branches", "branches/edit"] {
        for (look, width, dark) in [("light", 1280, false), ("dark", 1280, true), ("phone", 360, false)] {
            browser.look(Look { width, dark }).await.unwrap();
            browser.open(&format!("{base}/pipelines/apps/{name}")).await.unwrap();
            let found = browser.faults().await.unwrap();
            faults.extend(found.into_iter().map(|fault| format!("{name} {look}: {fault}")));
            if let Some(folder) = &pictures {
                browser
                    .picture(&folder.join(format!("graph-{}-{look}.png", name.replace('/', "-"))))
                    .await
                    .unwrap();
            }
        }
    }
    server.abort();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
