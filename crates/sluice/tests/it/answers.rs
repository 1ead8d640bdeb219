//! What an answer of the API costs: the reviews of its caller's rights by the hub, and no read on any cluster.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use sluice_testkit::fault_injection::ApiServerProxy;
use sluice_testkit::{CallRecorder, eventually};

use crate::page::Person;
use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{people, releases, run};

/// The version in dev, whose promotion into prod waits for an approval.
const DEV: &str = "6.1.7";
/// The leaf cluster.
const CLUSTER: &str = "counted";
/// The number of questions whose calls are counted.
const QUESTIONS: usize = 50;

/// Paths of every view, below `/api/v1`. Events are not watched, and not among them; the stream of changes has no end.
pub(crate) fn views(namespace: &str, cluster: &str, promotion: &str) -> Vec<String> {
    let pipeline = format!("/pipelines/{namespace}/podinfo");
    let of_pipeline = ["", "/explain", "/explain?environment=prod", "/history", "/tree", "/triggers"];
    let of_fleet = ["/pipelines", "/clusters", "/charts", "/images", "/check"];
    let trace = format!("/trace?kind=HelmRelease&namespace={namespace}&name=podinfo");
    let mut all: Vec<String> = of_pipeline.iter().map(|view| format!("{pipeline}{view}")).collect();
    all.extend(of_fleet.map(String::from));
    all.push(format!("/promotions/{namespace}/{promotion}"));
    all.push(format!("{trace}&cluster={namespace}/{cluster}"));
    all.push(trace);
    all
}

/// Creates a pipeline whose dev is on the hub. Its prod is on a leaf cluster of this name, which is reached by the kubeconfig.
pub async fn create_pipeline(place: &TestNamespace, cluster: &str, kubeconfig: &str) -> Result<()> {
    let n = &place.namespace;
    for (cluster, version) in [(&place.shared.hub, DEV), (place.leaf("dev"), "6.1.6")] {
        releases::create_running(cluster, n, "podinfo", version).await?;
    }
    place.gitops_cluster(cluster, kubeconfig).await?;
    let cluster = json!({"kind": "GitopsCluster", "name": cluster});
    let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": n}, "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"manual": true, "strategy": {"notification": {}}},
            "environments": [{"name": "dev", "targets": [{"namespace": n}]},
                {"name": "prod", "targets": [{"namespace": n, "clusterRef": cluster}]}]}});
    place.apply(&pipeline.to_string()).await.map(drop)
}

/// A user who asks a controller that reaches the hub and a leaf cluster through proxies. podinfo is on both.
struct Asked {
    place: TestNamespace,
    hub: ApiServerProxy,
    leaf: CallRecorder,
    controller: Controller,
    http: Client,
    base: String,
    token: String,
    /// The promotion into prod, which waits for an approval.
    promotion: String,
}

impl Asked {
    async fn start(name: &str) -> Result<Asked> {
        let place = TestNamespace::new(name).await?;
        let n = place.namespace.clone();
        let leaf = CallRecorder::in_front_of(place.leaf("dev"))?;
        create_pipeline(&place, CLUSTER, &leaf.kubeconfig()).await?;
        let hub = ApiServerProxy::in_front_of(&place.shared.hub, &[])?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let flags = [&*format!("--api-addr={address}"), "--observe=all"];
        let controller = Controller::start_at(hub.kubeconfig_path(), &n, &flags, &[])?;
        let rules = json!([
            {"apiGroups": ["pipelines.weave.works"], "resources": ["pipelines", "promotions"], "verbs": ["get", "list"]},
            {"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["get"]},
            {"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        ]);
        let token = people::token(&place, "viewer", rules).await?;
        let base = format!("http://{address}/api/v1");
        let promotion = String::new();
        let mut asked = Asked { place, hub, leaf, controller, http: Client::new(), base, token, promotion };
        asked.until_shown("6.1.6").await?;
        asked.place.until_promotions("podinfo", "prod", &["6.1.7 Pending"]).await?;
        let promotions = asked.place.promotions().list(&Default::default()).await?;
        asked.promotion = promotions.items.first().context("no promotion")?.name_any();
        Ok(asked)
    }

    async fn ask(&self, view: &str) -> Result<Value> {
        let request = self.http.get(format!("{}{view}", self.base)).bearer_auth(&self.token);
        let answer = Person::send(request).await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{view}: {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until answers show a version on the leaf cluster, and the status of the pipeline does.
    async fn until_shown(&self, version: &str) -> Result<()> {
        let is_observed = |p: &_| revision(p, "prod") == version && revision(p, "dev") == DEV;
        self.place.until("podinfo", "it was observed", is_observed).await?;
        eventually(SOON, || async {
            let charts = self.ask(&format!("/charts?cluster={}/{CLUSTER}", self.place.namespace)).await?;
            ensure!(charts.to_string().contains(version), "{charts}");
            Ok(())
        })
        .await
        .with_context(|| self.controller.tail())
    }

    /// Asks questions until none of them has called a cluster, except for reviews, and returns the number of reviews. Lists
    /// and watches may still begin at first, and the controller reads what a change may have made.
    async fn reviews_of_questions(&self) -> Result<usize> {
        eventually(SOON, || async {
            let _ = (self.hub.take_calls(), self.leaf.take_calls());
            for view in views(&self.place.namespace, CLUSTER, &self.promotion).iter().cycle().take(QUESTIONS)
            {
                self.ask(view).await?;
            }
            self.only_reviews()
        })
        .await
        .with_context(|| self.controller.tail())
    }

    /// Returns the number of reviews since the last time.
    ///
    /// # Errors
    /// A cluster had another call.
    fn only_reviews(&self) -> Result<usize> {
        // The controller asks each cluster every ten seconds whether it answers.
        let is_probe = |call: &String| call == "GET /version";
        let leaf: Vec<String> = self.leaf.take_calls().into_iter().filter(|call| !is_probe(call)).collect();
        ensure!(leaf.is_empty(), "the leaf cluster was asked: {leaf:?}");
        let is_review = |call: &String| call.starts_with("POST ") && call.ends_with("reviews");
        let (reviews, others): (Vec<String>, Vec<String>) =
            self.hub.take_calls().into_iter().partition(is_review);
        let others: Vec<&String> =
            others.iter().filter(|call| !call.contains("/leases") && !is_probe(call)).collect();
        ensure!(others.is_empty(), "the hub was asked: {others:?}");
        Ok(reviews.len())
    }

    /// Opens the stream of changes, and reads it up to the end of its list of pipelines.
    async fn read_list_of_changes(&self) -> Result<Response> {
        let request = self.http.get(format!("{}/changes", self.base)).bearer_auth(&self.token);
        let mut answer = Person::send(request).await?.error_for_status()?;
        let mut text = String::new();
        while !text.contains("event: listed") {
            let piece = answer.chunk().await?.with_context(|| format!("the stream has ended: {text}"))?;
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        ensure!(text.contains("event: pipeline") && text.contains("podinfo"), "{text}");
        Ok(answer)
    }
}

#[test]
fn an_answer_reads_no_object_and_asks_the_hub_only_about_rights() -> Result<()> {
    run(async {
        let asked = Asked::start("answers").await?;
        // Each right is asked about once in ten seconds, and 50 answers need some of a few dozen.
        let reviews = asked.reviews_of_questions().await?;
        ensure!(reviews < QUESTIONS, "{reviews} reviews");
        println!("{QUESTIONS} answers: {reviews} reviews, no other call");

        // A change arrives by the watches, and answers after it cost no more.
        let n = &asked.place.namespace;
        releases::runs(asked.place.leaf("dev"), n, "podinfo", "6.1.8", true).await?;
        asked.until_shown("6.1.8").await?;
        let reviews = asked.reviews_of_questions().await?;
        ensure!(reviews < QUESTIONS, "{reviews} reviews after a change");
        println!("{QUESTIONS} answers after a change: {reviews} reviews, no other call");
        Ok(())
    })
}

#[test]
fn a_stream_of_changes_reads_no_object_and_asks_the_hub_only_about_rights() -> Result<()> {
    run(async {
        let asked = Asked::start("answers-changes").await?;
        asked.reviews_of_questions().await?;
        let reviews = eventually(SOON, || async {
            let _ = (asked.hub.take_calls(), asked.leaf.take_calls());
            let mut open = Vec::new();
            for _ in 0..10 {
                open.push(asked.read_list_of_changes().await?);
            }
            asked.only_reviews()
        })
        .await
        .with_context(|| asked.controller.tail())?;
        ensure!(reviews < 10, "{reviews} reviews for 10 streams of one caller");
        Ok(())
    })
}

/// What the API server says about the installation is not watched either. The number of calls is bounded.
#[test]
fn a_check_of_the_installation_costs_a_bounded_number_of_calls_of_the_hub() -> Result<()> {
    run(async {
        let asked = Asked::start("answers-check").await?;
        asked.reviews_of_questions().await?;
        let n = &asked.place.namespace;
        let answer = asked.ask(&format!("/check?installation=true&namespace={n}")).await?;
        let calls = asked.hub.take_calls();
        let of_check: Vec<&String> = calls.iter().filter(|call| !call.contains("/leases/")).collect();
        println!("a check of the installation: {} calls", of_check.len());
        ensure!((15..=40).contains(&of_check.len()), "{} calls: {of_check:#?}", of_check.len());
        ensure!(answer.to_string().contains("\"definitions\""), "{answer:#}");
        Ok(())
    })
}

/// Kubernetes keeps events for an hour, and Sluice does not watch them: the hub lists them for each question.
#[test]
fn a_question_about_events_costs_one_list_on_the_hub() -> Result<()> {
    run(async {
        let asked = Asked::start("answers-events").await?;
        let n = &asked.place.namespace;
        eventually(SOON, || async {
            let _ = (asked.hub.take_calls(), asked.leaf.take_calls());
            for _ in 0..3 {
                asked.ask(&format!("/pipelines/{n}/podinfo/events")).await?;
            }
            let leaf: Vec<String> =
                asked.leaf.take_calls().into_iter().filter(|call| call != "GET /version").collect();
            ensure!(leaf.is_empty(), "{leaf:?}");
            let lists = asked.hub.take_calls();
            let lists: Vec<&String> = lists.iter().filter(|call| call.contains("/events")).collect();
            // The controller's own events are created, and not listed.
            let listed = lists.iter().filter(|call| call.starts_with("GET ")).count();
            ensure!(listed == 3, "{lists:?}");
            Ok(())
        })
        .await
        .with_context(|| asked.controller.tail())
    })
}
