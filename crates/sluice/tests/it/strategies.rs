//! The strategies notification and webhook: another program gets an event or a call for each promotion, once, even
//! if the controller is killed at any point, and the promotion succeeds when the targets run the revision.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event as CoreEvent, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice_api::Promotion;
use sluice_testkit::eventually;
use sluice_testkit::fault_injection::{ApiServerProxy, WriteFault};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::receiver::{ReceivedCall, Receiver};
use crate::{releases, run};

const TOKEN: &str = "s3cret-token-of-the-webhook";
const API_KEY: &str = "api-key-of-the-webhook";

/// Computes HMAC-SHA256 by its definition, without the code under test.
pub fn hmac(key: &[u8], message: &[u8]) -> String {
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([&pad(0x36)[..], message].concat());
    let outer = Sha256::digest([&pad(0x5c)[..], &inner[..]].concat());
    outer.iter().map(|b| format!("{b:02x}")).collect()
}

/// A controller with a receiver. Each write of the controller to the hub fails once in each of the ways that a test
/// chooses.
struct StrategyFixture {
    place: TestNamespace,
    receiver: Receiver,
    controller: Controller,
    _conflicts: ApiServerProxy,
}

impl StrategyFixture {
    async fn new(each: &'static [WriteFault]) -> Result<StrategyFixture> {
        let place = TestNamespace::new("strategies").await?;
        let receiver = Receiver::start().await?;
        let headers = format!("X-Api-Key: {API_KEY}\n");
        place.secret("hook", &[("token", TOKEN), ("headers", &headers)]).await?;
        let flags = receiver.flags();
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        flags.push("--log-level=debug");
        let conflicts = ApiServerProxy::in_front_of(&place.shared.hub, each)?;
        let controller = Controller::start_at(conflicts.kubeconfig_path(), &place.namespace, &flags, &[])?;
        Ok(StrategyFixture { place, receiver, controller, _conflicts: conflicts })
    }

    /// Returns the strategy that calls a path of the receiver.
    fn webhook(&self, path: &str) -> String {
        format!("{{webhook: {{url: \"http://{}{path}\", secretRef: {{name: hook}}}}}}", self.receiver.host)
    }

    /// Creates an application at 1.0.0 in dev and staging, with a pipeline.
    async fn application(&self, name: &str, strategy: &str, timeout: &str) -> Result<()> {
        let n = &self.place.namespace;
        for leaf in ["dev", "staging"] {
            releases::create(self.place.leaf(leaf), n, name, json!({})).await?;
            self.runs(name, leaf, "1.0.0").await?;
        }
        let yaml = format!(
            r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: {name}, namespace: {n}}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: {name}}}
  environments:
  - {{name: dev, targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: dev}}}}]}}
  - {{name: staging, targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: staging}}}}]}}
  promotion: {{timeout: {timeout}, strategy: {strategy}}}
"#
        );
        self.place.apply(&yaml).await?;
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "dev") == "1.0.0" && revision(p, "staging") == "1.0.0";
        self.place.until(name, "all runs 1.0.0", at_rest).await.with_context(|| self.controller.tail())?;
        Ok(())
    }

    async fn runs(&self, name: &str, environment: &str, version: &str) -> Result<()> {
        releases::runs(self.place.leaf(environment), &self.place.namespace, name, version, true).await
    }

    async fn until_phase(&self, name: &str, wanted: &str) -> Result<Promotion> {
        let found = self.place.until_promotions(name, "staging", &[wanted]).await;
        found.with_context(|| format!("{name}: {}", self.controller.tail()))?;
        let all = self.place.promotions().list(&ListParams::default()).await?;
        all.items.into_iter().find(|p| p.spec.pipeline == name).context("a promotion")
    }

    async fn retry(&self, promotion: &Promotion, token: &str) -> Result<()> {
        let patch = json!({ "spec": { "retry": token } });
        let name = promotion.name_any();
        self.place.promotions().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Returns the events that announce promotions of a pipeline.
    async fn announcements(&self, pipeline: &str) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let all = api.list(&ListParams::default()).await?.items;
        let of = |e: &Event| e.regarding.as_ref().and_then(|r| r.name.clone()).unwrap_or_default();
        Ok(all.into_iter().filter(|e| e.reason.as_deref() == Some("Promote") && of(e) == pipeline).collect())
    }

    /// Returns the reasons of the events that `kubectl describe` shows of an object, and the names of related objects.
    async fn events_for(&self, kind: &str, name: &str) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
        let api: Api<CoreEvent> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let all = api.list(&ListParams::default().fields(&fields)).await?.items;
        let related = all.iter().filter_map(|e| e.related.as_ref()?.name.clone()).collect();
        Ok((all.into_iter().filter_map(|e| e.reason).collect(), related))
    }
}

#[test]
fn a_promotion_sends_one_event_by_notification_and_one_call_by_webhook() -> Result<()> {
    run(async {
        let fixture = StrategyFixture::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        fixture.application("notified", "{notification: {}}", "30m").await?;
        fixture.application("called", &fixture.webhook("/called"), "30m").await?;
        for name in ["notified", "called"] {
            fixture.runs(name, "dev", "1.1.0").await?;
        }
        let notified = fixture.until_phase("notified", "1.1.0 Delivered").await?;
        let called = fixture.until_phase("called", "1.1.0 Delivered").await?;
        ensure!(notified.status.clone().unwrap_or_default().reason == "Notified", "{notified:?}");
        ensure!(called.status.clone().unwrap_or_default().reason == "Called", "{called:?}");

        let events = fixture.announcements("notified").await?;
        let [event] = &events[..] else { anyhow::bail!("not one event: {events:?}") };
        let uid = notified.metadata.uid.clone().context("a uid")?;
        let n = &fixture.place.namespace;
        let message = format!("Promote pipeline {n}/notified to staging with version 1.1.0");
        ensure!(event.note.as_deref() == Some(&message), "{event:?}");
        let regarding = event.regarding.clone().context("regarding")?;
        let pipeline = fixture.place.pipelines().get("notified").await?;
        ensure!(regarding.kind.as_deref() == Some("Pipeline") && regarding.uid == pipeline.metadata.uid);
        let annotations = event.annotations().clone();
        let annotation =
            |key: &str| annotations.get(&format!("pipelines.weave.works/{key}")).cloned().unwrap_or_default();
        ensure!(
            annotation("environment") == "staging" && annotation("version") == "1.1.0",
            "{annotations:?}"
        );
        ensure!(annotation("promotion") == notified.name_any() && annotation("id") == uid, "{annotations:?}");
        // This is the same object in the older version of the API, which kubectl and Flux up to 2.9 read.
        let core: Api<CoreEvent> = Api::namespaced(fixture.place.client.clone(), n);
        let same = core.get(&event.name_any()).await?;
        ensure!(same.message.as_deref() == Some(&message) && same.reason.as_deref() == Some("Promote"));
        ensure!(
            same.involved_object.name.as_deref() == Some("notified") && same.annotations() == &annotations
        );
        ensure!(same.type_.as_deref() == Some("Normal"), "{same:?}");

        let sent: Vec<Value> = fixture.receiver.calls("/events").iter().map(ReceivedCall::json).collect();
        // The other events are about the progress of the Promotion.
        let sent: Vec<_> = sent.iter().filter(|e| e["involvedObject"]["kind"] == "Pipeline").collect();
        ensure!(sent.len() == 1, "{sent:?}");
        let sent = sent[0];
        ensure!(sent["metadata"] == json!(annotations) && sent["message"] == message, "{sent}");
        ensure!(sent["involvedObject"]["uid"] == json!(pipeline.metadata.uid), "{sent}");

        let calls = fixture.receiver.calls("/called");
        ensure!(calls.len() == 1, "{calls:?}");
        let (call, uid) = (&calls[0], called.metadata.uid.clone().unwrap_or_default());
        ensure!(call.header("idempotency-key") == uid && call.header("x-api-key") == API_KEY, "{call:?}");
        let signature = format!("sha256={}", hmac(TOKEN.as_bytes(), &call.body));
        ensure!(call.header("x-signature") == signature, "{call:?}");
        let body = call.json();
        ensure!(body["revision"]["text"] == "1.1.0" && body["replaces"] == "1.0.0", "{body}");
        ensure!(body["environment"]["name"] == "staging" && body["promotion"]["uid"] == uid, "{body}");
        ensure!(body["environment"]["targets"][0]["cluster"]["name"] == "staging", "{body}");
        ensure!(body["evidence"][0]["environment"] == "dev" && body["attempt"] == 1, "{body}");

        // Another program has deployed the revision.
        for name in ["notified", "called"] {
            fixture.runs(name, "staging", "1.1.0").await?;
            fixture.until_phase(name, "1.1.0 Succeeded").await?;
        }
        ensure!(
            fixture.announcements("notified").await?.len() == 1
                && fixture.announcements("called").await?.is_empty()
        );
        ensure!(fixture.receiver.events("notified") == (1, 1) && fixture.receiver.events("called") == (0, 0));
        ensure!(fixture.receiver.calls("/called").len() == 1);
        no_text_has_a_secret(&fixture).await
    })
}

#[test]
fn the_steps_of_a_promotion_are_events_of_it_and_what_needs_a_person_is_one_of_the_pipeline() -> Result<()> {
    run(async {
        let fixture = StrategyFixture::new(&[]).await?;
        fixture.application("steps", "{notification: {}}", "30m").await?;
        fixture.runs("steps", "dev", "1.1.0").await?;
        let promotion = fixture.until_phase("steps", "1.1.0 Delivered").await?.name_any();
        fixture.runs("steps", "staging", "1.1.0").await?;
        fixture.until_phase("steps", "1.1.0 Succeeded").await?;
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let expected = (set(&["Started", "Notified", "Succeeded"]), set(&["steps"]));
        eventually(SOON, || async {
            let found = fixture.events_for("Promotion", &promotion).await?;
            ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .await?;
        let (found, _) = fixture.events_for("Pipeline", "steps").await?;
        ensure!(found == set(&["Promote"]), "{found:?}");
        Ok(())
    })
}

/// Checks that no text that people can read contains a value of the Secret.
async fn no_text_has_a_secret(fixture: &StrategyFixture) -> Result<()> {
    let n = &fixture.place.namespace;
    let all = ListParams::default();
    let core: Api<CoreEvent> = Api::namespaced(fixture.place.client.clone(), n);
    let mut texts = serde_json::to_string(&core.list(&all).await?.items)?;
    texts += &serde_json::to_string(&fixture.place.pipelines().list(&all).await?.items)?;
    texts += &serde_json::to_string(&fixture.place.promotions().list(&all).await?.items)?;
    texts += &std::fs::read_to_string(fixture.controller.log())?;
    for secret in [TOKEN, API_KEY] {
        ensure!(!texts.contains(secret), "a text contains {secret}");
    }
    Ok(())
}

#[test]
fn the_receivers_answers_decide_whether_a_call_is_retried() -> Result<()> {
    run(async {
        let fixture = StrategyFixture::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        let refusal = "there is no job for s3cret-token-of-the-webhook\n";
        fixture.receiver.set_answers("/refuses", &[(404, refusal), (404, refusal)]);
        fixture.receiver.set_answers("/busy", &[(503, "later"), (500, "oops")]);
        fixture.application("refused", &fixture.webhook("/refuses"), "30m").await?;
        fixture.application("busy", &fixture.webhook("/busy"), "5s").await?;
        // The Secret of a repository may not be used for a webhook.
        let secret = "apiVersion: v1\nkind: Secret\nstringData: {username: sluice, password: hunter2, token: key}\nmetadata: \
                      {name: git, annotations: {pipelines.weave.works/used-by: commit}, namespace: ";
        fixture.place.apply(&format!("{secret}{}}}", fixture.place.namespace)).await?;
        let git = fixture.webhook("/git").replace("{name: hook}", "{name: git}");
        fixture.application("locked", &git, "30m").await?;
        for name in ["refused", "busy", "locked"] {
            fixture.runs(name, "dev", "1.1.0").await?;
        }
        let status = fixture.until_phase("locked", "1.1.0 Promoting").await?.status.unwrap_or_default();
        ensure!(status.reason == "SecretLocked", "{status:?}");
        ensure!(status.message.contains("add webhook to the annotation"), "{status:?}");
        ensure!(fixture.receiver.calls("/git").is_empty());
        // The owner of the Secret admits the webhook.
        let secrets: Api<Secret> = Api::namespaced(fixture.place.client.clone(), &fixture.place.namespace);
        let used_by = json!({"pipelines.weave.works/used-by": "commit, webhook"});
        let admit = Patch::Merge(json!({"metadata": {"annotations": used_by}}));
        secrets.patch("git", &PatchParams::default(), &admit).await?;
        fixture.until_phase("locked", "1.1.0 Delivered").await?;
        ensure!(fixture.receiver.calls("/git").len() == 1);
        // The receiver refuses two calls, and accepts the third one.
        let promotion = fixture.until_phase("refused", "1.1.0 Delivered").await?;
        let status = promotion.status.clone().unwrap_or_default();
        ensure!(status.attempts == 2 && status.reason == "Called", "{status:?}");
        let keys = |path: &str| -> Vec<String> {
            fixture.receiver.calls(path).iter().map(|c| c.header("idempotency-key")).collect()
        };
        let uid = promotion.metadata.uid.clone().unwrap_or_default();
        ensure!(keys("/refuses") == [uid.as_str(); 3], "{:?}", keys("/refuses"));

        // The call is retried until it is accepted, the promotion fails after its timeout, and a person retries
        // it.
        let promotion = fixture.until_phase("busy", "1.1.0 Failed").await?;
        ensure!(promotion.status.clone().unwrap_or_default().reason == "Unhealthy", "{promotion:?}");
        let uid = promotion.metadata.uid.clone().unwrap_or_default();
        ensure!(keys("/busy") == [uid.as_str(); 3], "{:?}", keys("/busy"));
        let attempts: Vec<Value> =
            fixture.receiver.calls("/busy").iter().map(|c| c.json()["attempt"].clone()).collect();
        ensure!(attempts == [1, 2, 3], "{attempts:?}");
        fixture.retry(&promotion, "2026-11-21T10:00:00Z").await?;
        let again = format!("{uid}.1");
        sluice_testkit::eventually(crate::place::SOON, || async {
            ensure!(keys("/busy")[3..] == [again.as_str()], "{:?}", keys("/busy"));
            Ok(())
        })
        .await?;
        fixture.runs("busy", "staging", "1.1.0").await?;
        fixture.until_phase("busy", "1.1.0 Succeeded").await?;
        no_text_has_a_secret(&fixture).await
    })
}

#[test]
fn without_the_flags_no_private_address_is_called() -> Result<()> {
    run(async {
        let mut fixture = StrategyFixture::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        fixture.controller = Controller::start(&fixture.place.shared.hub, &fixture.place.namespace, &[])?;
        fixture.application("inside", &fixture.webhook("/inside"), "30m").await?;
        fixture.runs("inside", "dev", "1.1.0").await?;
        let promotion = fixture.until_phase("inside", "1.1.0 Promoting").await?;
        let status = promotion.status.unwrap_or_default();
        ensure!(status.reason == "AddressRefused", "{status:?}");
        ensure!(status.message.contains("--insecure-webhook-private-addresses"), "{status:?}");
        ensure!(fixture.receiver.calls("/inside").is_empty());
        Ok(())
    })
}

/// Promotes 1.1.0 from dev with a controller that kills itself at a fault point and is restarted.
async fn promote_with_crash(fixture: &mut StrategyFixture, name: &str, point: &str) -> Result<Promotion> {
    fixture.controller.restart_to_die_at(point)?;
    fixture.runs(name, "dev", "1.1.0").await?;
    fixture.controller.dies(SOON).await.with_context(|| point.to_string())?;
    fixture.controller.restart(true)?;
    let promotion = fixture.until_phase(name, "1.1.0 Delivered").await.with_context(|| point.to_string())?;
    fixture.runs(name, "staging", "1.1.0").await?;
    fixture.until_phase(name, "1.1.0 Succeeded").await.with_context(|| point.to_string())?;
    Ok(promotion)
}

#[test]
fn a_webhook_is_repeated_only_with_the_same_key_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut fixture = StrategyFixture::new(&[WriteFault::Conflict]).await?;
        let points = [
            ("before-intent", 1),
            ("after-intent", 1),
            ("before-call", 1),
            ("after-call", 2),
            ("before-outcome", 2),
            ("after-outcome", 1),
        ];
        for (i, (point, expected)) in points.into_iter().enumerate() {
            let (name, path) = (format!("app-{i}"), format!("/app-{i}"));
            fixture.application(&name, &fixture.webhook(&path), "30m").await?;
            let promotion = promote_with_crash(&mut fixture, &name, point).await?;
            let calls = fixture.receiver.calls(&path);
            ensure!(calls.len() == expected, "{point}: {} calls", calls.len());
            let uid = promotion.uid().unwrap_or_default();
            ensure!(calls.iter().all(|c| c.header("idempotency-key") == uid), "{point}: {calls:?}");
        }
        Ok(())
    })
}

#[test]
fn a_notification_is_one_event_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut fixture = StrategyFixture::new(&[WriteFault::Conflict]).await?;
        let points = [
            "before-intent",
            "after-intent",
            "before-event",
            "after-event",
            "before-call",
            "after-call",
            "before-outcome",
            "after-outcome",
        ];
        for (i, point) in points.into_iter().enumerate() {
            let name = format!("app-{i}");
            fixture.application(&name, "{notification: {}}", "30m").await?;
            promote_with_crash(&mut fixture, &name, point).await?;
            let events = fixture.announcements(&name).await?;
            ensure!(events.len() == 1, "{point}: {events:?}");
            let (sent, new) = fixture.receiver.events(&name);
            let expected = if ["after-call", "before-outcome"].contains(&point) { 2 } else { 1 };
            ensure!(sent == expected && new == 1, "{point}: sent {sent} times, {new} of them new");
        }
        Ok(())
    })
}
