//! The condition of a Pipeline whose Secret with hook keys is missing or incomplete.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::Api;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_controller::hook::hmac_keys::{HookKeys, NoKeys};
use sluice_controller::hook::secret_condition::{CONDITION, HookSecretProblem, SecretKeys, find_problem};
use sluice_testkit::eventually;

use crate::keys::target;
use crate::rights::grant;
use crate::server::{keys, run, serve, set_keys, sign};

fn pipeline(strategy: &Value) -> Pipeline {
    let object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"strategy": strategy},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "podinfo"}]},
                {"name": "edge", "targets": [target("edge-1", None, "Push"), target("edge-2", Some("fleet"), "Push")]}]}});
    serde_json::from_value(object).unwrap()
}

fn known(keys: &[&str]) -> Result<Arc<HookKeys>, NoKeys> {
    let data = keys.iter().map(|key| {
        let (name, value) = key.split_once('=').unwrap_or((key, key));
        (name.to_string(), value.as_bytes().to_vec())
    });
    Ok(Arc::new(HookKeys::of(&data.collect())))
}

#[test]
fn the_condition_has_the_reason_and_says_what_to_add() {
    let called = json!({"webhook": {"url": "https://ci.example.com"}, "secretRef": {"name": "keys"}});
    let plain = json!({"notification": {}, "secretRef": {"name": "keys"}});
    let clusters = ["report-key.edge-1", "report-key.fleet_edge-2"];
    let and = |more: &[&str]| known(&[&clusters[..], more].concat());
    let long_key = format!("report-key.long={}", "x".repeat(64 << 10));
    let problems = [
        (&plain, Err(NoKeys::Missing), "SecretNotFound", "there is no Secret keys"),
        (&plain, Err(NoKeys::Forbidden), "SecretForbidden", "answered 503; grant it get on that Secret"),
        (&plain, Err(NoKeys::Locked("locked for hooks".into())), "SecretLocked", "locked for hooks"),
        (&plain, known(&[]), "KeysMissing", "add one of hmac-key, trigger-key"),
        (&plain, known(&["hmac-key"]), "KeysMissing", "has no report-key.edge-1, report-key.fleet_edge-2"),
        (&plain, known(&["hmac-key", "report-key.edge-1"]), "KeysMissing", "has no report-key.fleet_edge-2,"),
        (
            &plain,
            and(&["hmac-key=a\nb"]),
            "KeyInvalid",
            "keys with a line break inside are not accepted: hmac-key;",
        ),
        (
            &plain,
            and(&["hmac-key=a", "trigger-key=a"]),
            "KeysShared",
            "hmac-key and trigger-key have the same value",
        ),
        (
            &plain,
            and(&["hmac-key", long_key.as_str()]),
            "TooManyKeys",
            "Secret keys has more keys than are read, or longer ones: 1 are not accepted",
        ),
        (&called, and(&["hmac-key"]), "KeysMissing", "add callback-key with any random text"),
    ];
    for (strategy, keys, reason, part) in problems {
        let secrets = SecretKeys::from([("keys".to_string(), keys)]);
        let problem = find_problem(&pipeline(strategy), &secrets, true);
        let Some(HookSecretProblem { reason: found, message }) = problem else {
            panic!("no problem was found: {part}");
        };
        assert!(found.name() == reason && message.contains(part), "{found:?}: {message}");
    }
    for (strategy, keys, callbacks) in [
        (&plain, and(&["hmac-key"]), true),
        (&plain, and(&["trigger-key"]), true),
        (&called, and(&["hmac-key", "callback-key"]), true),
        (&called, and(&["hmac-key"]), false),
        (&called, and(&["trigger-key"]), true),
        // The Secret could not be read, so its keys are not known.
        (&plain, Err(NoKeys::Unread), true),
    ] {
        let secrets = SecretKeys::from([("keys".to_string(), keys)]);
        assert_eq!(find_problem(&pipeline(strategy), &secrets, callbacks), None, "{secrets:?}");
    }
}

/// The Secrets of a pipeline can have tens of thousands of keys, and the message is kept and logged for each pipeline.
#[test]
fn the_message_about_thousands_of_keys_is_short() {
    let names: Vec<String> = (0..4000).map(|n| format!("report-key.{}-{n}", "x".repeat(200))).collect();
    let keys = |value: &str| -> Vec<String> { names.iter().map(|name| format!("{name}={value}")).collect() };
    let plain = json!({"notification": {}, "secretRef": {"name": "keys-0"}});
    for (value, begins) in
        [("same", "in Secret keys-0, report-key.xxx"), ("a\nb", "in Secret keys-0, keys with a")]
    {
        let keys = keys(value);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let secrets: SecretKeys = (0..16).map(|n| (format!("keys-{n}"), known(&keys))).collect();
        let message = find_problem(&pipeline(&plain), &secrets, true).unwrap().message;
        assert!(message.len() < 5_000 && message.starts_with(begins), "{} bytes: {message}", message.len());
        assert!(message.contains(" more"), "{message}");
    }
}

#[test]
fn a_pipeline_has_the_condition_until_its_secret_is_complete() -> Result<()> {
    run(async {
        let mut fixture = serve(|_, _| {}).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(fixture.cluster.client().await?, "apps");
        let condition = async || {
            let status = pipelines.get("push").await?.status.context("no status")?;
            Ok::<_, anyhow::Error>(status.conditions.into_iter().find(|c| c.type_ == CONDITION))
        };
        set_keys(&fixture.cluster, &json!({"hmac-key": "one for all"})).await?;
        // A change of the spec has the Secret checked immediately.
        let change_timeout = async |timeout: &str| {
            let patch = json!({"spec": {"promotion": {"timeout": timeout}}});
            let merge = kube::api::Patch::Merge(patch);
            pipelines.patch("push", &Default::default(), &merge).await
        };
        change_timeout("40m").await?;
        eventually(Duration::from_secs(60), async || {
            let condition = condition().await?.context("no condition")?;
            ensure!(condition.status == "True" && condition.reason == "KeysMissing", "{condition:?}");
            ensure!(
                condition.message.contains("has no report-key.ap, report-key.eu, report-key.us"),
                "{condition:?}"
            );
            Ok(())
        })
        .await?;
        let before = condition().await?;
        fixture.restart().await?;
        ensure!(
            condition().await? == before,
            "a restart has removed the condition before the Secret was read"
        );
        set_keys(&fixture.cluster, &keys()).await?;
        change_timeout("41m").await?;
        eventually(Duration::from_secs(60), async || {
            let condition = condition().await?;
            ensure!(condition.is_none(), "{condition:?}");
            Ok(())
        })
        .await
    })
}

#[test]
fn without_the_right_to_read_secrets_senders_repeat_and_strangers_learn_nothing() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(fixture.cluster.client().await?, "apps");
        // The condition of the pipelines with keys. Neither a change of a spec nor a restart has Secrets checked.
        let wait_for = async |reason: Option<&str>| {
            eventually(Duration::from_secs(90), async || {
                for name in ["podinfo", "push", "each"] {
                    let status = pipelines.get(name).await?.status.context("no status")?;
                    let found = status.conditions.into_iter().find(|c| c.type_ == CONDITION);
                    let found = found.map(|condition| condition.reason);
                    ensure!(found.as_deref() == reason, "{name}: {found:?}");
                }
                Ok(())
            })
            .await
        };
        let body =
            json!({"revision": "6.1.8", "idempotencyKey": "a", "pipeline": "apps/podinfo"}).to_string();
        let answers = async |key: &str| {
            let signature = sign(key, body.as_bytes());
            let mut answers = Vec::new();
            for pipeline in ["none", "keyless", "podinfo", "none"] {
                let path = format!("/trigger/apps/{pipeline}");
                let answer = fixture.post(&path, body.as_bytes(), Some(&signature)).send().await?;
                let mut headers = answer.headers().clone();
                headers.remove("date");
                answers.push((answer.status().as_u16(), headers, answer.text().await?));
            }
            Ok::<_, anyhow::Error>(answers)
        };
        // All answers are the same, and have this status.
        let wait_for_answers = async |key: &str, status: u16| {
            eventually(Duration::from_secs(30), async || {
                let all = answers(key).await?;
                ensure!(all.iter().all(|answer| *answer == all[0] && answer.0 == status), "{all:?}");
                Ok(())
            })
            .await
        };
        wait_for(None).await?;
        wait_for_answers("no key", 401).await?;
        grant(&fixture.cluster, &["list"]).await?;
        for key in ["no key", "test-trigger-key"] {
            wait_for_answers(key, 503).await?;
        }
        wait_for(Some("SecretForbidden")).await?;
        grant(&fixture.cluster, &["get"]).await?;
        wait_for_answers("no key", 401).await?;
        let statuses: Vec<u16> = answers("test-trigger-key").await?.iter().map(|answer| answer.0).collect();
        ensure!(statuses == [401, 401, 202, 401], "{statuses:?}");
        wait_for(None).await
    })
}
