//! What an answer of the API costs: the reviews of its caller's rights by the hub, and no read.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluice_testkit::eventually;
use sluice_testkit::fault_injection::ApiServerProxy;

use crate::page::Person;
use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{people, releases, run};

/// Paths of every view, below `/api/v1`.
fn views(namespace: &str) -> Vec<String> {
    let pipeline = format!("/pipelines/{namespace}/podinfo");
    let of_pipeline = ["", "/explain", "/history", "/tree", "/triggers"];
    let of_fleet = ["/pipelines", "/clusters", "/charts", "/images"];
    let trace = format!("/trace?kind=HelmRelease&namespace={namespace}&name=podinfo");
    let mut all: Vec<String> = of_pipeline.iter().map(|view| format!("{pipeline}{view}")).collect();
    all.extend(of_fleet.map(String::from));
    all.push(trace);
    all
}

#[test]
fn an_answer_reads_no_object_and_asks_the_hub_only_about_rights() -> Result<()> {
    run(async {
        let place = TestNamespace::new("answers").await?;
        let n = place.namespace.clone();
        // The application is on the hub itself: a proxy without TLS may stand in front of the hub only.
        releases::create_running(&place.shared.hub, &n, "podinfo", "6.1.6").await?;
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": n}, "spec": {
                "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                "environments": [{"name": "dev", "targets": [{"namespace": n}]}]}});
        place.apply(&pipeline.to_string()).await?;
        let hub = ApiServerProxy::in_front_of(&place.shared.hub, &[])?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let flags = [&*format!("--api-addr={address}"), "--observe=all"];
        let controller = Controller::start_at(hub.kubeconfig_path(), &n, &flags, &[])?;
        let kubeconfig = place.shared.hub.service_account(&n, "viewer").await?;
        let rules = json!([
            {"apiGroups": ["pipelines.weave.works"], "resources": ["pipelines", "promotions"], "verbs": ["get", "list"]},
            {"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["get"]},
        ]);
        people::allow(&place, "viewer", rules).await?;
        let token = kubeconfig.split("token: ").nth(1).context("a token")?;
        let token = token.split(['"', '\n', '}']).find(|part| !part.trim().is_empty()).context("a token")?;
        let http = reqwest::Client::new();
        let ask = async |view: &str| -> Result<Value> {
            let url = format!("http://{address}/api/v1{view}");
            let answer = Person::send(http.get(&url).bearer_auth(token.trim())).await?;
            let (status, text) = (answer.status(), answer.text().await?);
            ensure!(status.is_success(), "{view}: {status}: {text}");
            Ok(serde_json::from_str(&text)?)
        };
        place.until("podinfo", "it was observed", |p| revision(p, "dev") == "6.1.6").await?;
        eventually(SOON, || async {
            let charts = ask("/charts").await?.to_string();
            ensure!(charts.contains("6.1.6"), "{charts}");
            Ok(())
        })
        .await
        .with_context(|| controller.tail())?;

        // The first lists and watches may still begin.
        let reviews = eventually(SOON, || async {
            let _ = hub.take_calls();
            for view in views(&n).iter().cycle().take(50) {
                ask(view).await?;
            }
            let is_review = |call: &String| call.starts_with("POST ") && call.ends_with("reviews");
            let (reviews, others): (Vec<String>, Vec<String>) =
                hub.take_calls().into_iter().partition(is_review);
            let others: Vec<&String> = others.iter().filter(|call| !call.contains("/leases")).collect();
            ensure!(others.is_empty(), "the hub was asked: {others:?}");
            Ok(reviews)
        })
        .await?;
        // Each right is asked about once in ten seconds, and 50 answers need some of a few dozen.
        ensure!(reviews.len() < 50, "{} reviews", reviews.len());
        println!("50 answers: {} reviews", reviews.len());
        Ok(())
    })
}
