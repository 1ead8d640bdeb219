//! Tokens of call-backs, the ways in which forges show a key, and both on a real API server.

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
use sluice_controller::hook::callback::{TokenClaim, TokenSubject, Word, after, is_minted, mint, read};
use sluice_controller::hook::forge::Proof;
use sluice_controller::hook::signature::{Mismatch, verify};
use sluice_controller::hook::status_change::Change;
use sluice_controller::key::PipelineKey;
use sluice_testkit::eventually;

use crate::push::event;
use crate::server::{Served, run, serve, sign};

#[test]
fn a_token_is_good_for_one_round_of_one_promotion() {
    let (own, other) = (key("apps", "podinfo"), key("apps", "other"));
    let subject = TokenSubject { pipeline: &own, promotion: "podinfo-prod-1" };
    let made_for = TokenClaim { uid: "7f1c-2a52", round: 3, environment: "prod" };
    let token = mint(b"key", subject, made_for);
    let (claim, tag) = read(&token).unwrap();
    assert_eq!(claim, made_for);
    assert!(is_minted(subject, claim, tag, &[b"new", b"key"]), "either key is good while it is rotated");
    for (subject, claim, keys) in [
        (subject, claim, &[&b"new"[..]][..]),
        (subject, claim, &[]),
        (subject, TokenClaim { round: 4, ..claim }, &[b"key"]),
        (subject, TokenClaim { uid: "7f1c-2a53", ..claim }, &[b"key"]),
        (subject, TokenClaim { environment: "dev", ..claim }, &[b"key"]),
        (TokenSubject { promotion: "podinfo-prod-2", ..subject }, claim, &[b"key"]),
        (TokenSubject { pipeline: &other, ..subject }, claim, &[b"key"]),
    ] {
        assert!(!is_minted(subject, claim, tag, keys), "{subject:?} {claim:?}");
    }
    // No signature with the key is a token, and no token is a signature.
    let said = "sluice callback\napps/podinfo\npodinfo-prod-1\nprod\n7f1c-2a52\n3";
    let signed = sign("key", said.as_bytes());
    assert!(!is_minted(subject, claim, signed.strip_prefix("sha256=").unwrap(), &[b"key"]));
    let header = format!("sha256={tag}");
    assert_eq!(
        verify(Some(header.as_bytes()), said.as_bytes(), [&b"key"[..]]),
        Err(Mismatch::Wrong),
        "the token signs a body"
    );
    // White space around a key does not count, and a key of nothing else is none.
    assert!(is_minted(subject, claim, tag, &[b"key\n"]));
    let of_nothing = mint(b"", subject, made_for);
    let (claim, tag) = read(&of_nothing).unwrap();
    assert!(!is_minted(subject, claim, tag, &[b"", b" \n"]));
    for wrong in
        ["", ".", "a.1.b", "a.1.b.c.d", ".1.b.c", "a.01.b.c", "a.-1.b.c", "a.+1.b.c", "a.4294967296.b.c"]
    {
        assert!(read(wrong).is_none(), "{wrong}");
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> PipelineKey {
    PipelineKey { namespace: namespace.into(), name: name.into() }
}

#[test]
fn a_later_state_takes_the_place_of_an_earlier_one() {
    let promotion = |phase: &str, said: Value| -> Promotion {
        serde_json::from_value(
            json!({"apiVersion": "v1", "kind": "Promotion", "metadata": {"name": "p", "uid": "u"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}},
            "status": {"phase": phase, "round": 2, "callback": said}}),
        )
        .unwrap()
    };
    let (own, other) = (key("apps", "podinfo"), key("apps", "other"));
    let subject = TokenSubject { pipeline: &own, promotion: "p" };
    let claim = TokenClaim { uid: "u", round: 2, environment: "prod" };
    let word = |state: &str| serde_json::from_value::<Word>(json!({"state": state})).unwrap();
    let before = |state: &str, round: u32| json!({"round": round, "state": state, "message": "", "at": "2026-11-21T10:00:00Z"});
    for (phase, said, next, written) in [
        ("Delivered", Value::Null, "accepted", true),
        ("Pending", Value::Null, "failed", true),
        ("Delivered", before("accepted", 2), "done", true),
        ("Delivered", before("done", 2), "failed", true),
        ("Delivered", before("accepted", 2), "accepted", false),
        ("Delivered", before("done", 2), "accepted", false),
        ("Delivered", before("failed", 2), "accepted", false),
        ("Delivered", before("failed", 2), "failed", false),
        // The receiver has tried again.
        ("Delivered", before("failed", 2), "done", true),
        ("Failed", before("failed", 2), "done", true),
        ("Delivered", before("failed", 1), "accepted", true),
    ] {
        let change = after(&promotion(phase, said.clone()), subject, claim, &word(next), Timestamp::now());
        assert_eq!(matches!(change, Change::Write(_)), written, "{phase} {said} {next}: {change:?}");
        assert!(written || change == Change::Nothing);
    }
    for (object, claim) in [
        (promotion("Succeeded", Value::Null), claim),
        (promotion("Failed", before("accepted", 2)), claim),
        (promotion("Superseded", before("failed", 2)), claim),
        (promotion("Delivered", Value::Null), TokenClaim { round: 1, ..claim }),
        (promotion("Delivered", Value::Null), TokenClaim { uid: "v", ..claim }),
    ] {
        let change = after(&object, subject, claim, &word("done"), Timestamp::now());
        assert!(matches!(change, Change::Refused(_)), "{change:?}");
    }
    // Whoever has the key of another pipeline, or of another environment, can make a token that names it.
    for (subject, claim) in [
        (TokenSubject { pipeline: &other, ..subject }, claim),
        (subject, TokenClaim { environment: "dev", ..claim }),
    ] {
        let object = promotion("Delivered", Value::Null);
        assert_eq!(after(&object, subject, claim, &word("failed"), Timestamp::now()), Change::NotTheirs);
    }
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let one = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    all.iter().map(one).collect()
}

/// By each forge's own rule: what it signs, and with which header.
pub(crate) fn shown_by_forges(body: &[u8], key: &str) -> Vec<(&'static str, String)> {
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
fn each_forge_shows_the_key_in_its_own_way_and_no_other_counts() {
    let body = br#"{"action": "closed"}"#;
    for (name, value) in shown_by_forges(body, "key") {
        let proof = Proof::of(&headers(&[(name, &value)])).unwrap();
        assert!(proof.is_good(body, &[b"other", b"key\n"]), "{name}");
        assert!(!proof.is_good(body, &[b"other", b"", b" "]), "{name}");
        assert!(!proof.is_good(body, &[]), "{name}");
        if matches!(proof, Proof::Signature(_)) {
            assert!(!proof.is_good(b"another body", &[b"key"]), "{name}");
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
        let proof = Proof::of(&headers(&[(name, &value)])).unwrap();
        assert!(!proof.is_good(body, &[b"key", b""]), "{name}: {value}");
    }
    for (name, value) in
        [("authorization", "Bearer key"), ("authorization", "Basic key"), ("x-signature", "key")]
    {
        assert_eq!(Proof::of(&headers(&[(name, value)])), None, "{name}: {value}");
    }
}

#[test]
fn a_forge_has_change_requests_looked_at() -> Result<()> {
    run(async {
        let served = serve(|_, _| {}).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(served.cluster.client().await?, "apps");
        served.cluster.apply_yaml(PROPOSING).await?;
        let body = br#"{"eventType": "git.pullrequest.merged"}"#;
        let post =
            |path: &str, name: &str, value: &str| served.post(path, body, None).header(name, value).send();
        // It is known to the hook server a moment after it was made.
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
        // All at once, as for the checks of one commit: whoever waits its turn notes it for the others.
        let shown = shown_by_forges(body, "test-forge-key");
        let calls = shown.iter().map(|(name, value)| post("/forge/apps/proposing", name, value));
        for answer in futures::future::try_join_all(calls).await? {
            ensure!(answer.status() == 202, "{answer:?}");
        }
        let last = called().await?;
        ensure!(last.is_some() && last != first, "not kept");
        for (path, name, value) in [
            ("/forge/apps/proposing", "x-gitlab-token", "other"),
            ("/forge/apps/none", "x-gitlab-token", "test-forge-key"),
            // Nothing is proposed there.
            ("/forge/apps/podinfo", "x-gitlab-token", "test-forge-key"),
            ("/forge/apps/proposing", "x-signature", &sign("test-forge-key", body)),
        ] {
            ensure!(post(path, name, value).await?.status() == 401, "{path} {name}");
        }
        let push = served.post("/forge/apps/proposing", body, None).header("x-github-event", "push");
        let push = push.header("x-gitlab-token", "test-forge-key").send().await?;
        ensure!(push.status() == 200 && called().await? == last, "{push:?}");
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

/// Somebody who is called, and keeps what is said.
async fn receiver() -> Result<(String, Arc<Mutex<Vec<Value>>>)> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let keeps = heard.clone();
    let app = Router::new().fallback(move |body: String| {
        keeps.lock().unwrap().push(serde_json::from_str(&body).unwrap());
        async { "" }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/promote", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, heard))
}

impl Served {
    async fn calls_back(&self, message: &Value, token: &str, body: &Value) -> Result<u16> {
        let url = message["callback"].as_str().context("no callback")?;
        let path = url.strip_prefix("https://sluice.example.com").context("not at --hook-url")?;
        let call = self.post(path, body.to_string().as_bytes(), None);
        Ok(call.header("authorization", format!("Bearer {token}")).send().await?.status().as_u16())
    }
}

#[test]
fn who_was_called_reports_what_became_of_it() -> Result<()> {
    run(async {
        let served = serve(|_, _| {}).await?;
        let (url, heard) = receiver().await?;
        served.cluster.apply_yaml(&called(&url)).await?;
        ensure!(served.says("prod", &event("us", "UpgradeSucceeded", "6.1.0", 90)).await? == 202);
        ensure!(served.says("dev", &event("eu", "UpgradeSucceeded", "6.1.8", 60)).await? == 202);
        let heard = async |count: usize| {
            eventually(Duration::from_secs(60), async || {
                let all = heard.lock().unwrap().clone();
                ensure!(all.len() == count, "{all:?}");
                all.last().cloned().context("nothing was said")
            })
            .await
        };
        let message = heard(1).await?;
        let token = message["callbackToken"].as_str().context("no token")?.to_string();
        let promotions: Api<Promotion> = Api::namespaced(served.cluster.client().await?, "apps");
        let name = message["promotion"]["name"].as_str().context("no name")?;
        let becomes = async |phase: Phase, words: &str| {
            eventually(Duration::from_secs(60), async || {
                let status = promotions.get(name).await?.status.unwrap_or_default();
                ensure!(status.phase == phase && status.message.contains(words), "{status:?}");
                Ok(())
            })
            .await
        };
        becomes(Phase::Delivered, "").await?;
        let done = json!({"state": "done"});
        for wrong in ["", "x", &token.replace(".0.", ".1."), &token[..token.len() - 1], "test-callback-key"] {
            ensure!(served.calls_back(&message, wrong, &done).await? == 401, "{wrong}");
        }
        ensure!(served.calls_back(&message, &token, &json!({"state": "maybe"})).await? == 422);
        let accepted = json!({"state": "accepted", "message": "job 7"});
        ensure!(served.calls_back(&message, &token, &accepted).await? == 202);
        becomes(Phase::Delivered, "has accepted it: job 7").await?;
        ensure!(served.calls_back(&message, &token, &accepted).await? == 200);
        ensure!(served.calls_back(&message, &token, &done).await? == 202);
        becomes(Phase::Delivered, "reports that it is done").await?;
        ensure!(
            served.calls_back(&message, &token, &json!({"state": "failed", "message": "disk full"})).await?
                == 202
        );
        becomes(Phase::Failed, "has failed: disk full").await?;
        // The receiver has made room, and tried again.
        ensure!(served.calls_back(&message, &token, &done).await? == 202);
        becomes(Phase::Delivered, "reports that it is done").await?;
        ensure!(served.calls_back(&message, &token, &done).await? == 200);
        ensure!(served.calls_back(&message, &token, &json!({"state": "failed"})).await? == 202);
        becomes(Phase::Failed, "has failed").await?;

        // Another try is another round, with a token of its own.
        let retry = Patch::Merge(json!({"spec": {"retry": "2026-11-21T10:00:00Z"}}));
        promotions.patch(name, &PatchParams::default(), &retry).await?;
        let again = heard(2).await?;
        ensure!(again["callbackToken"] != message["callbackToken"] && again["id"] != message["id"]);
        becomes(Phase::Delivered, "").await?;
        ensure!(served.calls_back(&message, &token, &done).await? == 409);
        ensure!(served.says("prod", &event("us", "UpgradeSucceeded", "6.1.8", 10)).await? == 202);
        becomes(Phase::Succeeded, "").await
    })
}
