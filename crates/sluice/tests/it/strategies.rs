//! Promotions that others carry out, told by an event or by a call: told once, wherever the
//! controller dies, and followed until the targets run them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice_api::Promotion;
use sluice_testkit::fault_injection::{ConflictInjector, WriteFault};

use crate::place::{Place, SOON, revision};
use crate::process::Controller;
use crate::{releases, run};

const TOKEN: &str = "s3cret-token-of-the-webhook";
const API_KEY: &str = "api-key-of-the-webhook";

#[derive(Clone, Debug)]
struct Call {
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().into()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A status and what is said with it.
type Answer = (u16, &'static str);

/// Takes calls. Below `/events` as notification-controller does, which answers 429 to what it has had.
#[derive(Clone, Default)]
struct Receiver {
    host: String,
    book: Arc<Mutex<BTreeMap<String, Vec<Call>>>>,
    /// What paths answer, in turn; those that are not here answer 202.
    answers: Arc<Mutex<BTreeMap<String, Vec<Answer>>>>,
}

impl Receiver {
    async fn start() -> Result<Receiver> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Receiver { host: listener.local_addr()?.to_string(), ..Receiver::default() };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(receiver)
    }

    fn flags(&self) -> [String; 3] {
        [
            "--insecure-webhook-http".into(),
            "--insecure-webhook-private-addresses".into(),
            format!("--events-addr=http://{}/events", self.host),
        ]
    }

    fn calls(&self, path: &str) -> Vec<Call> {
        self.book.lock().unwrap().get(path).cloned().unwrap_or_default()
    }

    /// The events that came for a pipeline, and how many of them it took for new.
    fn events(&self, pipeline: &str) -> (usize, usize) {
        let all = self.calls("/events");
        let ours: Vec<Value> =
            all.iter().map(Call::json).filter(|e| e["involvedObject"]["name"] == pipeline).collect();
        let tokens: HashSet<String> =
            ours.iter().map(|e| e["metadata"]["pipelines.weave.works/token"].to_string()).collect();
        (ours.len(), tokens.len())
    }

    fn answers(&self, path: &str, answers: &[Answer]) {
        self.answers.lock().unwrap().insert(path.into(), answers.to_vec());
    }
}

async fn take(
    State(receiver): State<Receiver>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let path = uri.path().to_string();
    let call = Call { headers, body };
    let mut book = receiver.book.lock().unwrap();
    let calls = book.entry(path.clone()).or_default();
    let token = |call: &Call| call.json()["metadata"]["pipelines.weave.works/token"].to_string();
    let repeated = path == "/events" && calls.iter().any(|c| token(c) == token(&call));
    calls.push(call);
    if repeated {
        return (StatusCode::TOO_MANY_REQUESTS, "");
    }
    let mut answers = receiver.answers.lock().unwrap();
    let (status, text) = match answers.get_mut(&path) {
        Some(answers) if !answers.is_empty() => answers.remove(0),
        _ => (202, ""),
    };
    (StatusCode::from_u16(status).unwrap(), text)
}

pub fn hmac(key: &[u8], message: &[u8]) -> String {
    let pad = |with: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([&pad(0x36)[..], message].concat());
    let outer = Sha256::digest([&pad(0x5c)[..], &inner[..]].concat());
    outer.iter().map(|b| format!("{b:02x}")).collect()
}

/// The writes of its controller to the hub meet conflicts.
struct Scene {
    place: Place,
    receiver: Receiver,
    controller: Controller,
    _conflicts: ConflictInjector,
}

impl Scene {
    async fn new(each: &'static [WriteFault]) -> Result<Scene> {
        let place = Place::new("strategies").await?;
        let receiver = Receiver::start().await?;
        let headers = format!("X-Api-Key: {API_KEY}\n");
        place.secret("hook", &[("token", TOKEN), ("headers", &headers)]).await?;
        let flags = receiver.flags();
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        flags.push("--log-level=debug");
        let conflicts = ConflictInjector::in_front_of(&place.shared.hub, each)?;
        let controller = Controller::start_at(conflicts.kubeconfig_path(), &place.namespace, &flags, &[])?;
        Ok(Scene { place, receiver, controller, _conflicts: conflicts })
    }

    /// By a call of a path of the receiver.
    fn webhook(&self, path: &str) -> String {
        format!("{{webhook: {{url: \"http://{}{path}\", secretRef: {{name: hook}}}}}}", self.receiver.host)
    }

    /// An application at 1.0.0 in dev and staging, and a pipeline for it.
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

    async fn story(&self, name: &str, wanted: &str) -> Result<Promotion> {
        let found = self.place.until_story(name, "staging", &[wanted]).await;
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

    /// The events that announce promotions of a pipeline.
    async fn announced(&self, pipeline: &str) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let all = api.list(&ListParams::default()).await?.items;
        let of = |e: &Event| e.regarding.as_ref().and_then(|r| r.name.clone()).unwrap_or_default();
        Ok(all.into_iter().filter(|e| e.reason.as_deref() == Some("Promote") && of(e) == pipeline).collect())
    }
}

#[test]
fn one_pipeline_by_notification_and_one_by_webhook() -> Result<()> {
    run(async {
        let scene = Scene::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        scene.application("told", "{notification: {}}", "30m").await?;
        scene.application("called", &scene.webhook("/called"), "30m").await?;
        for name in ["told", "called"] {
            scene.runs(name, "dev", "1.1.0").await?;
        }
        let told = scene.story("told", "1.1.0 Delivered").await?;
        let called = scene.story("called", "1.1.0 Delivered").await?;
        ensure!(told.status.clone().unwrap_or_default().reason == "Notified", "{told:?}");
        ensure!(called.status.clone().unwrap_or_default().reason == "Called", "{called:?}");

        let events = scene.announced("told").await?;
        let [event] = &events[..] else { anyhow::bail!("not one event: {events:?}") };
        let uid = told.metadata.uid.clone().context("a uid")?;
        let n = &scene.place.namespace;
        let message = format!("Promote pipeline {n}/told to staging with version 1.1.0");
        ensure!(event.note.as_deref() == Some(&message), "{event:?}");
        let regarding = event.regarding.clone().context("regarding")?;
        let pipeline = scene.place.pipelines().get("told").await?;
        ensure!(regarding.kind.as_deref() == Some("Pipeline") && regarding.uid == pipeline.metadata.uid);
        let says = event.annotations().clone();
        let said = |key: &str| says.get(&format!("pipelines.weave.works/{key}")).cloned().unwrap_or_default();
        ensure!(said("environment") == "staging" && said("version") == "1.1.0", "{says:?}");
        ensure!(said("promotion") == told.name_any() && said("id") == uid, "{says:?}");
        // The same object as kubectl and Flux up to 2.9 read it.
        let core: Api<CoreEvent> = Api::namespaced(scene.place.client.clone(), n);
        let same = core.get(&event.name_any()).await?;
        ensure!(same.message.as_deref() == Some(&message) && same.reason.as_deref() == Some("Promote"));
        ensure!(same.involved_object.name.as_deref() == Some("told") && same.annotations() == &says);
        ensure!(same.type_.as_deref() == Some("Normal"), "{same:?}");

        let sent: Vec<Value> = scene.receiver.calls("/events").iter().map(Call::json).collect();
        // What is said of its progress is about the Promotion.
        let sent: Vec<_> = sent.iter().filter(|e| e["involvedObject"]["kind"] == "Pipeline").collect();
        ensure!(sent.len() == 1, "{sent:?}");
        let sent = sent[0];
        ensure!(sent["metadata"] == json!(says) && sent["message"] == message, "{sent}");
        ensure!(sent["involvedObject"]["uid"] == json!(pipeline.metadata.uid), "{sent}");

        let calls = scene.receiver.calls("/called");
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

        // Somebody has done it.
        for name in ["told", "called"] {
            scene.runs(name, "staging", "1.1.0").await?;
            scene.story(name, "1.1.0 Succeeded").await?;
        }
        ensure!(scene.announced("told").await?.len() == 1 && scene.announced("called").await?.is_empty());
        ensure!(scene.receiver.events("told") == (1, 1) && scene.receiver.events("called") == (0, 0));
        ensure!(scene.receiver.calls("/called").len() == 1);
        no_secret_is_told(&scene).await
    })
}

/// Nothing that people can read holds what is in the Secret.
async fn no_secret_is_told(scene: &Scene) -> Result<()> {
    let n = &scene.place.namespace;
    let all = ListParams::default();
    let core: Api<CoreEvent> = Api::namespaced(scene.place.client.clone(), n);
    let mut told = serde_json::to_string(&core.list(&all).await?.items)?;
    told += &serde_json::to_string(&scene.place.pipelines().list(&all).await?.items)?;
    told += &serde_json::to_string(&scene.place.promotions().list(&all).await?.items)?;
    told += &std::fs::read_to_string(scene.controller.log())?;
    for secret in [TOKEN, API_KEY] {
        ensure!(!told.contains(secret), "{secret} is told");
    }
    Ok(())
}

#[test]
fn what_the_other_side_answers_decides() -> Result<()> {
    run(async {
        let scene = Scene::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        let refusal = "there is no job for s3cret-token-of-the-webhook\n";
        scene.receiver.answers("/refuses", &[(404, refusal), (404, refusal)]);
        scene.receiver.answers("/busy", &[(503, "later"), (500, "oops")]);
        scene.application("refused", &scene.webhook("/refuses"), "30m").await?;
        scene.application("busy", &scene.webhook("/busy"), "5s").await?;
        // The password of a repository is not for those who are called.
        let secret = "apiVersion: v1\nkind: Secret\nstringData: {username: sluice, password: hunter2}\nmetadata: \
                      {name: git, annotations: {pipelines.weave.works/used-by: commit}, namespace: ";
        scene.place.apply(&format!("{secret}{}}}", scene.place.namespace)).await?;
        let git = scene.webhook("/git").replace("{name: hook}", "{name: git}");
        scene.application("locked", &git, "30m").await?;
        for name in ["refused", "busy", "locked"] {
            scene.runs(name, "dev", "1.1.0").await?;
        }
        let status = scene.story("locked", "1.1.0 Promoting").await?.status.unwrap_or_default();
        ensure!(status.reason == "SecretLocked", "{status:?}");
        ensure!(status.message.contains("add webhook to the annotation"), "{status:?}");
        ensure!(scene.receiver.calls("/git").is_empty());
        // It is deployed later: nobody has to say so.
        let promotion = scene.story("refused", "1.1.0 Delivered").await?;
        let status = promotion.status.clone().unwrap_or_default();
        ensure!(status.attempts == 2 && status.reason == "Called", "{status:?}");
        let keys = |path: &str| -> Vec<String> {
            scene.receiver.calls(path).iter().map(|c| c.header("idempotency-key")).collect()
        };
        let uid = promotion.metadata.uid.clone().unwrap_or_default();
        ensure!(keys("/refuses") == [uid.as_str(); 3], "{:?}", keys("/refuses"));

        // Tried again until it is taken; not done in time by anybody; begun anew by a person.
        let promotion = scene.story("busy", "1.1.0 Failed").await?;
        ensure!(promotion.status.clone().unwrap_or_default().reason == "Unhealthy", "{promotion:?}");
        let uid = promotion.metadata.uid.clone().unwrap_or_default();
        ensure!(keys("/busy") == [uid.as_str(); 3], "{:?}", keys("/busy"));
        let attempts: Vec<Value> =
            scene.receiver.calls("/busy").iter().map(|c| c.json()["attempt"].clone()).collect();
        ensure!(attempts == [1, 2, 3], "{attempts:?}");
        scene.retry(&promotion, "2026-11-21T10:00:00Z").await?;
        let again = format!("{uid}.1");
        sluice_testkit::eventually(crate::place::SOON, || async {
            ensure!(keys("/busy")[3..] == [again.as_str()], "{:?}", keys("/busy"));
            Ok(())
        })
        .await?;
        scene.runs("busy", "staging", "1.1.0").await?;
        scene.story("busy", "1.1.0 Succeeded").await?;
        no_secret_is_told(&scene).await
    })
}

#[test]
fn without_the_flags_nothing_inside_is_called() -> Result<()> {
    run(async {
        let mut scene = Scene::new(&[WriteFault::Conflict, WriteFault::Lost]).await?;
        scene.controller = Controller::start(&scene.place.shared.hub, &scene.place.namespace, &[])?;
        scene.application("inside", &scene.webhook("/inside"), "30m").await?;
        scene.runs("inside", "dev", "1.1.0").await?;
        let promotion = scene.story("inside", "1.1.0 Promoting").await?;
        let status = promotion.status.unwrap_or_default();
        ensure!(status.reason == "AddressRefused", "{status:?}");
        ensure!(status.message.contains("--insecure-webhook-private-addresses"), "{status:?}");
        ensure!(scene.receiver.calls("/inside").is_empty());
        Ok(())
    })
}

/// Lets dev run 1.1.0, has the controller die at the point and start again, and waits for the end.
async fn survives(scene: &mut Scene, name: &str, point: &str) -> Result<Promotion> {
    scene.controller.restart_to_die_at(point)?;
    scene.runs(name, "dev", "1.1.0").await?;
    scene.controller.dies(SOON).await.with_context(|| point.to_string())?;
    scene.controller.restart(true)?;
    let promotion = scene.story(name, "1.1.0 Delivered").await.with_context(|| point.to_string())?;
    scene.runs(name, "staging", "1.1.0").await?;
    scene.story(name, "1.1.0 Succeeded").await.with_context(|| point.to_string())?;
    Ok(promotion)
}

#[test]
fn a_webhook_is_repeated_only_with_its_key_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut scene = Scene::new(&[WriteFault::Conflict]).await?;
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
            scene.application(&name, &scene.webhook(&path), "30m").await?;
            let promotion = survives(&mut scene, &name, point).await?;
            let calls = scene.receiver.calls(&path);
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
        let mut scene = Scene::new(&[WriteFault::Conflict]).await?;
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
            scene.application(&name, "{notification: {}}", "30m").await?;
            survives(&mut scene, &name, point).await?;
            let events = scene.announced(&name).await?;
            ensure!(events.len() == 1, "{point}: {events:?}");
            let (sent, new) = scene.receiver.events(&name);
            let may = if ["after-call", "before-outcome"].contains(&point) { 2 } else { 1 };
            ensure!(sent == may && new == 1, "{point}: sent {sent} times, {new} of them new");
        }
        Ok(())
    })
}
