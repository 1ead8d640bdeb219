//! Events about promotions and clusters, as people and programs receive them: Kubernetes Events, and calls of
//! `--events-addr`. Each is sent once.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_testkit::{Cluster, ControlPlane, eventually, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::receiver::Receiver;
use crate::{releases, run};

/// Longer than the least time between two events about one cluster, which is a minute.
const SOON_AFTER_A_MINUTE: Duration = Duration::from_secs(150);

/// How often each reason was reported.
type Reasons = BTreeMap<String, usize>;

/// The reasons of events until a delivery: the Kubernetes Events about the Promotion, the calls about it, and the same about
/// the Pipeline.
type Delivery = [&'static [&'static str]; 4];

/// What is reported of a delivery by notification, by webhook and by change request.
const DELIVERIES: [Delivery; 3] = [
    [
        &["Started", "Approved", "Notified"],
        &["Started", "WaitingForGate", "Approved", "Notified"],
        &["WaitingForGate", "Promote"],
        &["Promote"],
    ],
    [&["Started", "Called"], &["Started", "Called"], &[], &[]],
    [&[], &["Started", "Proposed", "Merged"], &["Proposed"], &[]],
];

fn once(reasons: &[&str]) -> Reasons {
    reasons.iter().map(|reason| (reason.to_string(), 1)).collect()
}

struct EventsFixture {
    place: TestNamespace,
    receiver: Receiver,
    controller: Controller,
    /// The address of the controller's metrics.
    metrics: String,
}

impl EventsFixture {
    async fn new() -> Result<EventsFixture> {
        let place = TestNamespace::new("events").await?;
        let receiver = Receiver::start().await?;
        let flags = receiver.flags();
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let metrics_addr = format!("--metrics-addr={metrics}");
        let flags: Vec<&str> = flags.iter().chain([&metrics_addr]).map(String::as_str).collect();
        // Kubernetes rejects events of an instance without a name. Outside of a Pod, the variable may be empty.
        let variables = [("HOSTNAME", Path::new(""))];
        let hub = place.shared.hub.kubeconfig_path();
        let controller = Controller::start_at(hub, &place.namespace, &flags, &variables)?;
        Ok(EventsFixture { place, receiver, controller, metrics })
    }

    /// Creates a Pipeline of an application at 1.0.0 in dev and staging.
    async fn application(&self, name: &str, dev: &Cluster, promotion: &str) -> Result<()> {
        let n = &self.place.namespace;
        for cluster in [dev, self.place.leaf("staging")] {
            releases::create_running(cluster, n, name, "1.0.0").await?;
        }
        let environment = |name: &str, cluster: &str| {
            format!(
                "{{name: {name}, targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {cluster}}}}}]}}"
            )
        };
        let (dev, staging) = (environment("dev", dev.name()), environment("staging", "staging"));
        let yaml = format!(
            "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {name}, namespace: {n}}}\nspec:\n  \
             appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: {name}}}\n  \
             environments: [{dev}, {staging}]\n  promotion: {promotion}\n"
        );
        self.place.apply(&yaml).await?;
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "dev") == "1.0.0" && revision(p, "staging") == "1.0.0";
        self.place.until(name, "all runs 1.0.0", at_rest).await.with_context(|| self.controller.tail())?;
        Ok(())
    }

    async fn runs(&self, name: &str, environment: &str) -> Result<()> {
        releases::runs(self.place.leaf(environment), &self.place.namespace, name, "1.1.0", true).await
    }

    async fn until(&self, pipeline: &str, phase: &str) -> Result<Promotion> {
        let wanted = format!("1.1.0 {phase}");
        let found = self.place.until_promotions(pipeline, "staging", &[&wanted]).await;
        found.with_context(|| format!("{pipeline}: {}", self.controller.tail()))?;
        let all = self.place.promotions().list(&ListParams::default()).await?;
        all.items.into_iter().find(|p| p.spec.pipeline == pipeline).context("a promotion")
    }

    /// Approves a promotion whose gate is closed.
    async fn approve(&self, pipeline: &str) -> Result<()> {
        self.decide(pipeline, json!({"approval": {"by": "admin", "revision": "1.1.0"}})).await
    }

    /// Writes what a person decides about a promotion whose gate is closed.
    async fn decide(&self, pipeline: &str, decision: Value) -> Result<()> {
        let name = self.until(pipeline, "Pending").await?.name_any();
        eventually(SOON, || async {
            let status = self.place.promotions().get(&name).await?.status.unwrap_or_default();
            ensure!(status.reason == "WaitingForGate", "{status:?}");
            Ok(())
        })
        .await?;
        let patch = json!({"spec": decision});
        self.place.promotions().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Waits until a promotion is delivered, and all events until then have been sent: a crash loses those that wait.
    async fn until_delivery_reported(&self, pipeline: &str, reasons: Delivery) -> Result<()> {
        let [events, calls, pipeline_events, pipeline_calls] = reasons;
        let promotion = self.until(pipeline, "Delivered").await?.name_any();
        self.until_reported("Promotion", &promotion, events, calls).await?;
        self.until_reported("Pipeline", pipeline, pipeline_events, pipeline_calls).await?;
        Ok(())
    }

    /// Waits until these are the reasons of the Kubernetes Events about an object, and of the calls about the object.
    async fn until_reported(
        &self,
        kind: &str,
        name: &str,
        events: &[&str],
        calls: &[&str],
    ) -> Result<Vec<Value>> {
        let api: Api<Event> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let of_object =
            ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
        let reported = || async {
            let mut written = Reasons::new();
            for event in api.list(&of_object).await?.items {
                let times = event.series.and_then(|series| series.count).unwrap_or(1);
                *written.entry(event.reason.unwrap_or_default()).or_default() += usize::try_from(times)?;
            }
            let (mut sent, received) = (Reasons::new(), self.receiver.events_about(kind, name));
            for event in &received {
                *sent.entry(event["reason"].as_str().unwrap_or_default().into()).or_default() += 1;
            }
            ensure!(
                written == once(events),
                "events of {kind} {name}: {written:?}; {}",
                self.controller.tail()
            );
            ensure!(sent == once(calls), "calls about {kind} {name}: {sent:?}; {}", self.controller.tail());
            Ok(received)
        };
        eventually(SOON_AFTER_A_MINUTE, reported).await
    }

    /// Returns the message of the Kubernetes Event of type `Warning` about a Pipeline that has this reason.
    async fn warning(&self, pipeline: &str, reason: &str) -> Result<String> {
        let api: Api<Event> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let fields = format!("involvedObject.kind=Pipeline,involvedObject.name={pipeline},reason={reason}");
        let found = api.list(&ListParams::default().fields(&fields)).await?.items;
        let warning = found.into_iter().find(|event| event.type_.as_deref() == Some("Warning"));
        warning.and_then(|event| event.message).context("no warning")
    }

    /// Waits until these are the numbers of promotions with a duration of each step.
    async fn until_measured(&self, steps: &[(&str, &str)]) -> Result<()> {
        eventually(SOON, || async {
            let text = reqwest::get(format!("http://{}/metrics", self.metrics)).await?.text().await?;
            let counts = text.lines().filter_map(|line| {
                let line = line.strip_prefix("sluice_promotion_step_seconds_count{step=\"")?;
                line.split_once("\"} ")
            });
            let (found, expected) = (counts.collect::<BTreeMap<_, _>>(), steps.iter().copied().collect());
            ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .await
    }
}

#[test]
fn each_step_of_a_promotion_is_reported_once() -> Result<()> {
    run(async {
        let mut fixture = EventsFixture::new().await?;
        let (n, receiver) = (fixture.place.namespace.clone(), fixture.receiver.host.clone());
        let repo = shared_gitea().await?;
        let file = format!("version: 1.0.0 # {{\"$promotion\": \"{n}:proposed:staging\"}}\n");
        let repo = repo.create_repo(&n, &[("staging.yaml", &file)]).await?;
        fixture.place.forge_secret().await?;
        fixture.place.secret("hook", &[("token", "s3cret")]).await?;
        let webhook =
            format!("{{webhook: {{url: \"http://{receiver}/called\", secretRef: {{name: hook}}}}}}");
        let request =
            format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", repo.url());
        let mut promotions = Vec::new();
        for ((name, manual, strategy), delivery) in [
            ("notified", true, "{notification: {}}"),
            ("called", false, &webhook),
            ("proposed", false, &request),
        ]
        .into_iter()
        .zip(DELIVERIES)
        {
            let promotion = format!("{{manual: {manual}, strategy: {strategy}}}");
            fixture.application(name, fixture.place.leaf("dev"), &promotion).await?;
            fixture.runs(name, "dev").await?;
            if manual {
                fixture.approve(name).await?;
            }
            if name == "proposed" {
                fixture.until(name, "Proposed").await?;
                repo.merge(repo.pulls("open").await?.first().context("a pull request")?.number).await?;
            }
            fixture.until_delivery_reported(name, delivery).await?;
            // The next controller reports nothing again.
            fixture.controller.restart(true)?;
            fixture.runs(name, "staging").await?;
            promotions.push(fixture.until(name, "Succeeded").await?);
        }
        let [notified, called, proposed] = &promotions[..] else { anyhow::bail!("{promotions:?}") };
        let steps = ["Started", "Approved", "Notified", "Succeeded"];
        let sent = fixture
            .until_reported(
                "Promotion",
                &notified.name_any(),
                &steps,
                &[&steps[..], &["WaitingForGate"]].concat(),
            )
            .await?;
        fixture.until_reported("Pipeline", "notified", &["WaitingForGate", "Promote"], &["Promote"]).await?;
        for event in &sent {
            let metadata = |key: &str| event["metadata"][format!("pipelines.weave.works/{key}")].clone();
            ensure!(
                event["severity"] == "info" && event["involvedObject"]["uid"] == json!(notified.uid()),
                "{event}"
            );
            ensure!(metadata("pipeline") == "notified" && metadata("environment") == "staging", "{event}");
            ensure!(metadata("revision") == "1.1.0" && metadata("replaces") == "1.0.0", "{event}");
        }

        let steps = ["Started", "Called", "Succeeded"];
        fixture.until_reported("Promotion", &called.name_any(), &steps, &steps).await?;
        fixture.until_reported("Pipeline", "called", &[], &[]).await?;

        // One Kubernetes Event asks a person to merge. The other steps show at the forge.
        let steps = ["Started", "Proposed", "Merged", "Succeeded"];
        fixture.until_reported("Promotion", &proposed.name_any(), &[], &steps).await?;
        fixture.until_reported("Pipeline", "proposed", &["Proposed"], &[]).await?;
        Ok(())
    })
}

#[test]
fn a_cluster_that_is_lost_and_comes_back_is_reported_once_each() -> Result<()> {
    run(async {
        let fixture = EventsFixture::new().await?;
        let n = fixture.place.namespace.as_str();
        // An own cluster, since the shared ones must not be stopped.
        let plane = ControlPlane::start().await?;
        let far = plane.cluster("far").await?;
        far.install_flux_crds().await?;
        far.namespace(n).await?;
        fixture.place.gitops_cluster("far", &far.kubeconfig()).await?;
        fixture.application("podinfo", &far, "{strategy: {notification: {}}}").await?;
        fixture.until_reported("Pipeline", "podinfo", &[], &[]).await?;

        far.stop();
        let lost = ["ClusterLost"];
        let sent = fixture.until_reported("Pipeline", "podinfo", &lost, &lost).await?;
        let message = sent[0]["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with(&format!("cluster {n}/far cannot be reached: ")), "{message}");
        ensure!(sent[0]["severity"] == "error", "{sent:?}");

        far.start().await?;
        let both = ["ClusterLost", "ClusterBack"];
        let sent = fixture.until_reported("Pipeline", "podinfo", &both, &both).await?;
        ensure!(sent[1]["message"] == format!("cluster {n}/far is back"), "{sent:?}");
        ensure!(sent[1]["severity"] == "info", "{sent:?}");
        Ok(())
    })
}

#[test]
fn each_end_of_a_promotion_is_reported_once() -> Result<()> {
    run(async {
        let fixture = EventsFixture::new().await?;
        let n = fixture.place.namespace.as_str();
        let file = format!("version: 1.0.0 # {{\"$promotion\": \"{n}:merged:staging\"}}\n");
        let repo = shared_gitea().await?.create_repo(n, &[("staging.yaml", &file)]).await?;
        fixture.place.forge_secret().await?;
        let notification = "{notification: {}}";
        let request =
            format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", repo.url());
        for (name, manual, strategy) in [
            ("given-up", false, notification),
            ("refused", true, notification),
            ("unmarked", false, &request),
            ("merged", true, &request),
        ] {
            let promotion = format!("{{manual: {manual}, strategy: {strategy}}}");
            fixture.application(name, fixture.place.leaf("dev"), &promotion).await?;
            fixture.runs(name, "dev").await?;
        }

        // The timeout is the default of 30 minutes: without the condition of Flux, the promotion waits.
        fixture.until("given-up", "Delivered").await?;
        releases::gave_up_on(fixture.place.leaf("staging"), n, "given-up", "1.1.0").await?;
        let given_up = fixture.until("given-up", "Failed").await?;
        let status = given_up.status.clone().unwrap_or_default();
        let cause = "Helm upgrade failed for release podinfo with chart podinfo@1.1.0: timed out";
        ensure!(status.reason == "Unhealthy" && status.message.contains(cause), "{status:?}");
        ensure!(status.message.starts_with("Flux will not try it again: "), "{status:?}");
        let steps = ["Started", "Notified"];
        let (name, calls) = (given_up.name_any(), [&steps[..], &["Unhealthy"]].concat());
        let sent = fixture.until_reported("Promotion", &name, &steps, &calls).await?;
        let failed = sent.iter().find(|event| event["reason"] == "Unhealthy").context("an event")?;
        let message = format!("1.1.0 into staging: {}", status.message);
        ensure!(failed["severity"] == "error" && failed["message"] == message, "{failed}");
        let events = ["Promote", "Unhealthy"];
        fixture.until_reported("Pipeline", "given-up", &events, &["Promote"]).await?;
        ensure!(fixture.warning("given-up", "Unhealthy").await? == message);

        let why = json!({"by": "admin", "reason": "not on a Friday", "revision": "1.1.0"});
        fixture.decide("refused", json!({"rejection": why})).await?;
        let refused = fixture.until("refused", "Rejected").await?.name_any();
        let (events, calls) = (["Started", "Rejected"], ["Started", "WaitingForGate", "Rejected"]);
        let sent = fixture.until_reported("Promotion", &refused, &events, &calls).await?;
        let rejected = sent.iter().find(|event| event["reason"] == "Rejected").context("an event")?;
        let message = rejected["message"].as_str().unwrap_or_default();
        ensure!(message.contains("admin") && message.contains("not on a Friday"), "{rejected}");
        fixture.until_reported("Pipeline", "refused", &["WaitingForGate"], &[]).await?;

        let unmarked = fixture.until("unmarked", "Promoting").await?.name_any();
        let calls = ["Started", "NoMarker"];
        let sent = fixture.until_reported("Promotion", &unmarked, &[], &calls).await?;
        ensure!(sent[1]["severity"] == "error", "{sent:?}");
        fixture.until_reported("Pipeline", "unmarked", &["NoMarker"], &[]).await?;
        let message = fixture.warning("unmarked", "NoMarker").await?;
        ensure!(sent[1]["message"] == message && message.contains("$promotion"), "{message}");

        fixture.approve("merged").await?;
        fixture.until("merged", "Proposed").await?;
        repo.merge(repo.pulls("open").await?.first().context("a pull request")?.number).await?;
        fixture.until("merged", "Delivered").await?;
        fixture.runs("merged", "staging").await?;
        fixture.until("merged", "Succeeded").await?;
        // Two promotions were delivered, and one of them has failed.
        fixture
            .until_measured(&[("delivered", "2"), ("gates", "1"), ("proposed", "1"), ("running", "1")])
            .await
    })
}
