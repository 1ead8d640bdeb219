//! What a Pipeline says of a Secret with hook keys that is missing or incomplete.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::Api;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_controller::hook::condition::{CONDITION, Findings, HookSecretProblem, problem};
use sluice_controller::hook::hmac_keys::{HookKeys, NoKeys};
use sluice_testkit::eventually;

use crate::keys::target;
use crate::server::{run, serve, set_keys};

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

fn known(keys: &[&str]) -> Result<HookKeys, NoKeys> {
    let data = keys.iter().map(|key| {
        let (name, value) = key.split_once('=').unwrap_or((key, key));
        (name.to_string(), value.as_bytes().to_vec())
    });
    Ok(HookKeys::of(&data.collect()))
}

#[test]
fn what_is_wrong_with_a_secret_is_said_with_what_to_add() {
    let called = json!({"webhook": {"url": "https://ci.example.com"}, "secretRef": {"name": "keys"}});
    let plain = json!({"notification": {}, "secretRef": {"name": "keys"}});
    let clusters = ["report-key.edge-1", "report-key.fleet_edge-2"];
    let and = |more: &[&'static str]| known(&[&clusters[..], more].concat());
    let wrong = [
        (&plain, Err(NoKeys::Missing), "SecretNotFound", "there is no Secret keys"),
        (&plain, Err(NoKeys::Forbidden), "SecretForbidden", "answered 503; grant it get on that Secret"),
        (&plain, Err(NoKeys::Locked("locked for hooks".into())), "SecretLocked", "locked for hooks"),
        (&plain, known(&[]), "KeysMissing", "add one of hmac-key, trigger-key"),
        (&plain, known(&["hmac-key"]), "KeysMissing", "has no report-key.edge-1, report-key.fleet_edge-2"),
        (&plain, known(&["hmac-key", "report-key.edge-1"]), "KeysMissing", "has no report-key.fleet_edge-2,"),
        (
            &plain,
            and(&["hmac-key=a", "trigger-key=a"]),
            "KeysShared",
            "hmac-key and trigger-key have the same value",
        ),
        (&called, and(&["hmac-key"]), "KeysMissing", "add callback-key with any random text"),
    ];
    for (strategy, keys, reason, says) in wrong {
        let found = Findings::from([("keys".to_string(), keys)]);
        let Some(HookSecretProblem { reason: given, message }) = problem(&pipeline(strategy), &found, true)
        else {
            panic!("nothing is wrong: {says}");
        };
        assert!(given == reason && message.contains(says), "{given}: {message}");
    }
    for (strategy, keys, callbacks) in [
        (&plain, and(&["hmac-key"]), true),
        (&plain, and(&["trigger-key"]), true),
        (&called, and(&["hmac-key", "callback-key"]), true),
        (&called, and(&["hmac-key"]), false),
        (&called, and(&["trigger-key"]), true),
        // It is not known.
        (&plain, Err(NoKeys::Unread), true),
    ] {
        let found = Findings::from([("keys".to_string(), keys)]);
        assert_eq!(problem(&pipeline(strategy), &found, callbacks), None, "{found:?}");
    }
}

#[test]
fn a_pipeline_tells_of_its_incomplete_secret_until_it_is_complete() -> Result<()> {
    run(async {
        let mut served = serve(|_, _| {}).await?;
        let pipelines: Api<Pipeline> = Api::namespaced(served.cluster.client().await?, "apps");
        let says = async || {
            let status = pipelines.get("push").await?.status.context("no status")?;
            Ok::<_, anyhow::Error>(status.conditions.into_iter().find(|c| c.type_ == CONDITION))
        };
        set_keys(&served.cluster, &json!({"hmac-key": "one for all"})).await?;
        // A new generation is looked at again.
        let look = async |description: &str| {
            let patch = json!({"spec": {"promotion": {"timeout": description}}});
            let merge = kube::api::Patch::Merge(patch);
            pipelines.patch("push", &Default::default(), &merge).await
        };
        look("40m").await?;
        eventually(Duration::from_secs(60), async || {
            let condition = says().await?.context("no condition")?;
            ensure!(condition.status == "True" && condition.reason == "KeysMissing", "{condition:?}");
            ensure!(
                condition.message.contains("has no report-key.ap, report-key.eu, report-key.us"),
                "{condition:?}"
            );
            Ok(())
        })
        .await?;
        let before = says().await?;
        served.restart().await?;
        ensure!(says().await? == before, "a restart takes it away until the Secret was read");
        set_keys(&served.cluster, &crate::server::keys()).await?;
        look("41m").await?;
        eventually(Duration::from_secs(60), async || {
            let condition = says().await?;
            ensure!(condition.is_none(), "{condition:?}");
            Ok(())
        })
        .await
    })
}
