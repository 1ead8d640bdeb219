//! The tokens of callbacks, the headers in which forges show a key, and both with a real API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use base64::Engine;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use ring::hmac;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::promotion::{Phase, Promotion};
use sluice_controller::hook::callback::{
    CallbackReport, TokenClaim, TokenSubject, is_minted, mint, parse_token, status_change,
};
use sluice_controller::hook::forge_proof::ForgeProof;
use sluice_controller::hook::signature::is_signed;
use sluice_controller::hook::status_change::StatusChange;
use sluice_controller::pipeline_key::PipelineKey;
use sluice_testkit::eventually;

use crate::push::event;
use crate::server::{HookFixture, run, serve, sign};

#[test]
fn a_token_is_valid_for_one_try_of_one_promotion() {
    let (own, other) = (key("apps", "podinfo"), key("apps", "other"));
    let subject = TokenSubject { pipeline: &own, promotion: "podinfo-prod-1" };
    let made_for = TokenClaim { uid: "7f1c-2a52", round: 3, retries: Some(5), environment: "prod" };
    let token = mint(b"key", subject, made_for);
    let (claim, tag) = parse_token(&token).unwrap();
    assert_eq!(claim, made_for);
    assert!(is_minted(subject, claim, tag, &[b"new", b"key"]), "a key is not accepted during a rotation");
    for (subject, claim, keys) in [
        (subject, claim, &[&b"new"[..]][..]),
        (subject, claim, &[]),
        (subject, TokenClaim { round: 4, ..claim }, &[b"key"]),
        (subject, TokenClaim { retries: Some(6), ..claim }, &[b"key"]),
        (subject, TokenClaim { retries: None, ..claim }, &[b"key"]),
        (subject, TokenClaim { uid: "7f1c-2a53", ..claim }, &[b"key"]),
        (subject, TokenClaim { environment: "dev", ..claim }, &[b"key"]),
        (TokenSubject { promotion: "podinfo-prod-2", ..subject }, claim, &[b"key"]),
        (TokenSubject { pipeline: &other, ..subject }, claim, &[b"key"]),
    ] {
        assert!(!is_minted(subject, claim, tag, keys), "{subject:?} {claim:?}");
    }
    // No signature with the key is a token, and no token is a signature.
    let text = "sluice callback\napps/podinfo\npodinfo-prod-1\nprod\n7f1c-2a52\n3\n5";
    let signed = sign("key", text.as_bytes());
    assert!(!is_minted(subject, claim, signed.strip_prefix("sha256=").unwrap(), &[b"key"]));
    let header = format!("sha256={tag}");
    assert!(!is_signed(header.as_bytes(), text.as_bytes(), [&b"key"[..]]), "the token signs a body");
    // White space around a key is ignored, and so is a key of white space.
    assert!(is_minted(subject, claim, tag, &[b"key\n"]));
    let with_empty_key = mint(b"", subject, made_for);
    let (claim, tag) = parse_token(&with_empty_key).unwrap();
    assert!(!is_minted(subject, claim, tag, &[b"", b" \n"]));
    // A token of an earlier version does not say its try.
    let earlier = mint(b"key", subject, TokenClaim { retries: None, ..made_for });
    let (claim, tag) = parse_token(&earlier).unwrap();
    assert_eq!((earlier.matches('.').count(), claim.retries), (3, None));
    assert!(is_minted(subject, claim, tag, &[b"key"]));
    assert!(!is_minted(subject, TokenClaim { retries: Some(5), ..claim }, tag, &[b"key"]));
    for invalid in [
        "",
        ".",
        "a.1.b",
        "a.1.b.c.d",
        "a.1.01.b.c",
        "a.1.2.b.c.d",
        ".1.b.c",
        "a.01.b.c",
        "a.-1.b.c",
        "a.+1.b.c",
        "a.4294967296.b.c",
    ] {
        assert!(parse_token(invalid).is_none(), "{invalid}");
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> PipelineKey {
    PipelineKey { namespace: namespace.into(), name: name.into() }
}

/// Returns a promotion of the pipeline podinfo into prod.
fn promotion(status: &Value) -> Promotion {
    serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Promotion", "metadata": {"name": "p", "uid": "u"},
        "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}}, "status": status}),
    )
    .unwrap()
}

fn report(state: &str, message: &str) -> CallbackReport {
    serde_json::from_value(json!({"state": state, "message": message})).unwrap()
}

/// A token of the sixth try, in the third round.
const CLAIM: TokenClaim<'static> = TokenClaim { uid: "u", round: 2, retries: Some(5), environment: "prod" };

/// Returns the change of a promotion whose strategy calls a receiver.
fn change_of(object: &Promotion, claim: TokenClaim<'_>, report: &CallbackReport) -> StatusChange {
    let own = key("apps", "podinfo");
    let subject = TokenSubject { pipeline: &own, promotion: "p" };
    status_change(object, true, (subject, claim), report, Timestamp::now())
}

#[test]
fn a_later_state_replaces_an_earlier_one() {
    let promotion = |phase: &str, callback: Value| {
        promotion(&json!({"phase": phase, "round": 2, "retries": 5, "callback": callback}))
    };
    let before = |state: &str, round: u32| json!({"round": round, "retries": 5, "state": state, "message": "", "at": "2026-11-21T10:00:00Z"});
    for (phase, stored, next, written) in [
        ("Delivered", Value::Null, "accepted", true),
        ("Pending", Value::Null, "failed", true),
        ("Delivered", before("accepted", 2), "done", true),
        ("Delivered", before("done", 2), "failed", true),
        ("Delivered", before("accepted", 2), "accepted", false),
        ("Delivered", before("done", 2), "accepted", false),
        ("Delivered", before("failed", 2), "accepted", false),
        ("Delivered", before("failed", 2), "failed", false),
        // The receiver has tried again and succeeded.
        ("Delivered", before("failed", 2), "done", true),
        ("Failed", before("failed", 2), "done", true),
        ("Delivered", before("failed", 1), "accepted", true),
    ] {
        let change = change_of(&promotion(phase, stored.clone()), CLAIM, &report(next, ""));
        assert_eq!(matches!(change, StatusChange::Write(_)), written, "{phase} {stored} {next}: {change:?}");
        assert!(written || change == StatusChange::Unchanged);
    }
    for (object, claim) in [
        (promotion("Succeeded", Value::Null), CLAIM),
        (promotion("Failed", before("accepted", 2)), CLAIM),
        (promotion("Superseded", before("failed", 2)), CLAIM),
        (promotion("Delivered", Value::Null), TokenClaim { round: 1, ..CLAIM }),
        (promotion("Delivered", Value::Null), TokenClaim { retries: Some(4), ..CLAIM }),
        (promotion("Delivered", Value::Null), TokenClaim { uid: "v", ..CLAIM }),
    ] {
        let change = change_of(&object, claim, &report("done", ""));
        assert!(matches!(change, StatusChange::Rejected(_)), "{change:?}");
    }
}

#[test]
fn the_message_of_a_report_is_stored_without_characters_that_nobody_sees() {
    let report = report("failed", "failed:\n\u{1b}[2J\u{202e}gnp\u{200b}.exe");
    let delivered = promotion(&json!({"phase": "Delivered", "round": 2, "retries": 5}));
    match change_of(&delivered, CLAIM, &report) {
        StatusChange::Write(written) => assert_eq!(written["callback"]["message"], "failed:\n[2Jgnp.exe"),
        change => panic!("{change:?}"),
    }
}

#[test]
fn a_token_that_names_the_promotion_of_another_pipeline_or_environment_is_foreign() {
    let (own, other) = (key("apps", "podinfo"), key("apps", "other"));
    let subject = TokenSubject { pipeline: &own, promotion: "p" };
    let delivered = promotion(&json!({"phase": "Delivered", "round": 2, "retries": 5}));
    // The holder of the key of another pipeline or environment can make such a token.
    for (subject, claim) in [
        (TokenSubject { pipeline: &other, ..subject }, CLAIM),
        (subject, TokenClaim { environment: "dev", ..CLAIM }),
    ] {
        let report = report("failed", "");
        let change = status_change(&delivered, true, (subject, claim), &report, Timestamp::now());
        assert_eq!(change, StatusChange::Foreign);
    }
}

#[test]
fn a_report_counts_only_if_a_receiver_may_have_been_called_in_this_try() {
    let own = key("apps", "podinfo");
    let subject = TokenSubject { pipeline: &own, promotion: "p" };
    let change = |status: Value, retries: Option<u32>, calls_receiver: bool| {
        let claim = TokenClaim { round: 0, retries, ..CLAIM };
        let report = report("accepted", "");
        status_change(&promotion(&status), calls_receiver, (subject, claim), &report, Timestamp::now())
    };
    let is_refused = |change: StatusChange, why: &str| match &change {
        StatusChange::Rejected(said) => assert!(said.contains(why), "{said} and not {why}"),
        _ => panic!("{change:?} and not {why}"),
    };
    let gate = |open: bool| json!([{"name": "Approval", "open": open}]);
    let delivered =
        json!({"phase": "Delivered", "retries": 1, "times": {"Delivered": "2026-11-21T10:00:00Z"}});
    for (status, retries) in [
        (delivered.clone(), Some(1)),
        (json!({"phase": "Promoting", "retries": 1, "gates": gate(true)}), Some(1)),
        // The call may be in flight.
        (json!({"phase": "Pending", "retries": 1, "gates": gate(true)}), Some(1)),
        // A token from before an upgrade.
        (delivered.clone(), None),
    ] {
        let StatusChange::Write(written) = change(status.clone(), retries, true) else { panic!("{status}") };
        assert_eq!(written["callback"]["retries"], 1);
        is_refused(change(status.clone(), retries, false), "calls no receiver");
        is_refused(change(status, Some(0), true), "an earlier try");
    }
    for phase in ["Pending", "Promoting"] {
        let waits = json!({"phase": phase, "gates": gate(false)});
        is_refused(change(waits, Some(0), true), "the promotion waits (gate Approval)");
    }
    is_refused(change(json!({"phase": "Proposed"}), Some(0), true), "a change request");
    for phase in ["Pending", "Promoting"] {
        is_refused(change(json!({"phase": phase}), None, true), "an earlier try");
    }
    // The report of an earlier try neither counts as one of this try, nor keeps one from being stored.
    let mut retried = delivered;
    retried["callback"] = json!({"round": 0, "retries": 0, "state": "failed", "at": "2026-11-21T10:00:00Z"});
    assert!(matches!(change(retried, Some(1), true), StatusChange::Write(_)));
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let one = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    all.iter().map(one).collect()
}

/// Returns the header in which each kind of forge shows a key with a body.
pub(crate) fn key_headers_of_forges(body: &[u8], key: &str) -> Vec<(&'static str, String)> {
    let signed = sign(key, body);
    let bare = signed.strip_prefix("sha256=").unwrap().to_string();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("anyone:{key}"));
    vec![
        ("x-hub-signature-256", signed.clone()),
        ("x-hub-signature", signed),
        ("x-gitea-signature", bare.clone()),
        ("x-forgejo-signature", bare),
        ("x-gitlab-token", key.into()),
        ("authorization", format!("Basic {basic}")),
    ]
}

#[test]
fn a_key_is_accepted_in_the_header_of_each_forge() {
    let body = br#"{"action": "closed"}"#;
    for (name, value) in key_headers_of_forges(body, "key") {
        let proof = ForgeProof::from_headers(&headers(&[(name, &value)])).unwrap();
        assert!(proof.verifies(body, &[b"other", b"key\n"]), "{name}");
        assert!(!proof.verifies(body, &[b"other", b"", b" "]), "{name}");
        assert!(!proof.verifies(body, &[]), "{name}");
        if matches!(proof, ForgeProof::Signature(_)) {
            assert!(!proof.verifies(b"another body", &[b"key"]), "{name}");
        }
    }
    let sha1 = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"key"), body);
    let sha1: String = sha1.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    for (name, value) in [
        ("x-hub-signature", format!("sha1={sha1}")),
        ("x-gitlab-token", String::new()),
        ("x-gitea-signature", String::new()),
        ("authorization", "Basic Og==".into()),
    ] {
        let proof = ForgeProof::from_headers(&headers(&[(name, &value)])).unwrap();
        assert!(!proof.verifies(body, &[b"key", b""]), "{name}: {value}");
    }
    for (name, value) in
        [("authorization", "Bearer key"), ("authorization", "Basic key"), ("x-signature", "key")]
    {
        assert_eq!(ForgeProof::from_headers(&headers(&[(name, value)])), None, "{name}: {value}");
    }
}

#[test]
fn a_call_of_a_forge_is_recorded_for_its_pipeline_only() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(fixture.cluster.client().await?, "apps");
        fixture.cluster.apply_yaml(PROPOSING).await?;
        let body = br#"{"eventType": "git.pullrequest.merged"}"#;
        let post =
            |path: &str, name: &str, value: &str| fixture.post(path, body, None).header(name, value).send();
        // The hook server finds a new pipeline after a moment.
        eventually(Duration::from_secs(60), async || {
            let answer = post("/forge/apps/proposing", "x-gitlab-token", "test-forge-key").await?;
            ensure!(answer.status() == 202, "{answer:?}");
            Ok(())
        })
        .await?;
        let called = async || {
            Ok::<_, anyhow::Error>(pipelines.get("proposing").await?.status.and_then(|s| s.forge_called))
        };
        let first = called().await?;
        // At the same time, as for the checks of one commit, so that several calls share a write.
        let shown = key_headers_of_forges(body, "test-forge-key");
        let calls = shown.iter().map(|(name, value)| post("/forge/apps/proposing", name, value));
        for answer in futures::future::try_join_all(calls).await? {
            ensure!(answer.status() == 202, "{answer:?}");
        }
        let last = called().await?;
        ensure!(last.is_some() && last != first, "the time of the call was not recorded");
        for (path, name, value) in [
            ("/forge/apps/proposing", "x-gitlab-token", "other"),
            ("/forge/apps/none", "x-gitlab-token", "test-forge-key"),
            // A pipeline that writes to no repository.
            ("/forge/apps/push", "x-gitlab-token", "test-forge-key"),
            ("/forge/apps/proposing", "x-signature", &sign("test-forge-key", body)),
        ] {
            ensure!(post(path, name, value).await?.status() == 401, "{path} {name}");
        }
        let event = async |name: &str| {
            let call = fixture.post("/forge/apps/proposing", body, None).header("x-github-event", name);
            call.header("x-gitlab-token", "test-forge-key").send().await
        };
        let created = event("create").await?;
        ensure!(created.status() == 200 && called().await? == last, "{created:?}");
        let pushed = event("push").await?;
        ensure!(pushed.status() == 202 && called().await? != last, "{pushed:?}");
        Ok(())
    })
}

const PROPOSING: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: proposing, namespace: apps}
spec:
  promotion:
    strategy:
      pull-request: {type: gitlab, url: 'https://gitlab.example.com/org/fleet.git', secretRef: {name: forge}}
      secretRef: {name: hook}
  environments: [{name: dev, targets: [{namespace: podinfo}]}]
";

fn called(url: &str) -> String {
    format!(
        "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: push, namespace: apps}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}
  promotion: {{strategy: {{webhook: {{url: '{url}'}}, secretRef: {{name: hook}}}}}}
  environments:
  - {{name: dev, targets: [{{namespace: podinfo, observe: Push, clusterRef: {{kind: GitopsCluster, name: eu}}}}]}}
  - {{name: prod, targets: [{{namespace: podinfo, observe: Push, clusterRef: {{kind: GitopsCluster, name: us}}}}]}}
"
    )
}

/// Starts a receiver of webhooks. Returns its URL, and the messages that it has received.
async fn receiver() -> Result<(String, Arc<Mutex<Vec<Value>>>)> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let stored = received.clone();
    let app = Router::new().fallback(move |body: String| {
        stored.lock().unwrap().push(serde_json::from_str(&body).unwrap());
        async { "" }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/promote", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, received))
}

impl HookFixture {
    async fn call_back(&self, message: &Value, token: &str, body: &Value) -> Result<u16> {
        let url = message["callback"].as_str().context("no callback")?;
        let path = url.strip_prefix("https://sluice.example.com").context("not at --hook-url")?;
        let call = self.post(path, body.to_string().as_bytes(), None);
        Ok(call.header("authorization", format!("Bearer {token}")).send().await?.status().as_u16())
    }
}

#[test]
fn the_receiver_of_a_webhook_reports_the_result_of_a_promotion() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let (url, received) = receiver().await?;
        fixture.cluster.apply_yaml(&called(&url)).await?;
        ensure!(fixture.send_event("prod", &event("us", "UpgradeSucceeded", "6.1.0", 90)).await? == 202);
        ensure!(fixture.send_event("dev", &event("eu", "UpgradeSucceeded", "6.1.8", 60)).await? == 202);
        let messages = async |count: usize| {
            eventually(Duration::from_secs(60), async || {
                let all = received.lock().unwrap().clone();
                ensure!(all.len() == count, "{all:?}");
                all.last().cloned().context("no message was received")
            })
            .await
        };
        let message = messages(1).await?;
        let token = message["callbackToken"].as_str().context("no token")?.to_string();
        let promotions: Api<Promotion> = Api::namespaced(fixture.cluster.client().await?, "apps");
        let name = message["promotion"]["name"].as_str().context("no name")?;
        let wait_for = async |phase: Phase, part: &str| {
            eventually(Duration::from_secs(60), async || {
                let status = promotions.get(name).await?.status.unwrap_or_default();
                ensure!(status.phase == phase && status.message.contains(part), "{status:?}");
                Ok(())
            })
            .await
        };
        wait_for(Phase::Delivered, "").await?;
        let done = json!({"state": "done"});
        for wrong in ["", "x", &token.replace(".0.", ".1."), &token[..token.len() - 1], "test-callback-key"] {
            ensure!(fixture.call_back(&message, wrong, &done).await? == 401, "{wrong}");
        }
        ensure!(fixture.call_back(&message, &token, &json!({"state": "maybe"})).await? == 422);
        let accepted = json!({"state": "accepted", "message": "job 7"});
        ensure!(fixture.call_back(&message, &token, &accepted).await? == 202);
        wait_for(Phase::Delivered, "has accepted it: job 7").await?;
        ensure!(fixture.call_back(&message, &token, &accepted).await? == 200);
        ensure!(fixture.call_back(&message, &token, &done).await? == 202);
        wait_for(Phase::Delivered, "reports that it is done").await?;
        ensure!(
            fixture.call_back(&message, &token, &json!({"state": "failed", "message": "disk full"})).await?
                == 202
        );
        wait_for(Phase::Failed, "has failed: disk full").await?;
        // The receiver has fixed the cause, and tried again.
        ensure!(fixture.call_back(&message, &token, &done).await? == 202);
        wait_for(Phase::Delivered, "reports that it is done").await?;
        ensure!(fixture.call_back(&message, &token, &done).await? == 200);
        ensure!(fixture.call_back(&message, &token, &json!({"state": "failed"})).await? == 202);
        wait_for(Phase::Failed, "has failed").await?;

        // A retry is another round, with another token.
        let retry = Patch::Merge(json!({"spec": {"retry": "2026-11-21T10:00:00Z"}}));
        promotions.patch(name, &PatchParams::default(), &retry).await?;
        let again = messages(2).await?;
        ensure!(again["callbackToken"] != message["callbackToken"] && again["id"] != message["id"]);
        wait_for(Phase::Delivered, "").await?;
        ensure!(fixture.call_back(&message, &token, &done).await? == 409);
        ensure!(fixture.send_event("prod", &event("us", "UpgradeSucceeded", "6.1.8", 10)).await? == 202);
        wait_for(Phase::Succeeded, "").await
    })
}

#[test]
fn a_report_does_not_replace_an_approval() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let (url, received) = receiver().await?;
        let prod = "- {name: prod, promotion: {manual: true, strategy: {webhook: {url: '$url'}, secretRef: {name: hook}}}, ";
        let pipeline = called(&url).replace("- {name: prod, ", &prod.replace("$url", &url));
        fixture.cluster.apply_yaml(&pipeline).await?;
        ensure!(fixture.send_event("prod", &event("us", "UpgradeSucceeded", "6.1.0", 90)).await? == 202);
        ensure!(fixture.send_event("dev", &event("eu", "UpgradeSucceeded", "6.1.8", 60)).await? == 202);
        let promotions: Api<Promotion> = Api::namespaced(fixture.cluster.client().await?, "apps");
        let waiting = eventually(Duration::from_secs(60), async || {
            let all = promotions.list(&Default::default()).await?.items;
            let waits = |p: &Promotion| p.status.as_ref().is_some_and(|s| s.reason == "WaitingForGate");
            all.into_iter().find(waits).context("no promotion waits")
        })
        .await?;
        let (name, uid) =
            (waiting.metadata.name.unwrap_or_default(), waiting.metadata.uid.unwrap_or_default());
        let of = key("apps", "push");
        let subject = TokenSubject { pipeline: &of, promotion: &name };
        // Made with the key alone: no message has contained it.
        let claim = TokenClaim { uid: &uid, round: 0, retries: Some(0), environment: "prod" };
        let token = mint(b"test-callback-key", subject, claim);
        let message = json!({"callback": format!("https://sluice.example.com/callback/apps/push/{name}")});
        for state in ["accepted", "done", "failed"] {
            let status = fixture.call_back(&message, &token, &json!({"state": state})).await?;
            let now = promotions.get(&name).await?.status.unwrap_or_default();
            ensure!(status == 409 && now.phase == Phase::Pending, "{state}: {status} {now:?}");
        }
        ensure!(received.lock().unwrap().is_empty());
        Ok(())
    })
}
