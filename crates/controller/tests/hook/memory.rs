//! How much memory calls take.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use axum::body::Body;
use axum::routing::get;
use axum::{Json, Router};
use hyper::body::Bytes;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_controller::hook::HookServer;
use sluice_testkit::{Scratch, WAIT_TIMEOUT};

use crate::server::{run, sign};
use crate::serving::serving;

/// How many promotions the pipeline has.
const PROMOTIONS: usize = 40;

/// A field of the status of this process, in MiB.
fn memory(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? >> 10)
}

async fn call(hook: &HookServer, path: &str, body: &Value) -> Result<u16> {
    let body = body.to_string();
    let request = http::Request::post(path).header("x-signature", sign("key", body.as_bytes()));
    let request = request.body(http_body_util::Full::new(Bytes::from(body)))?;
    Ok(hook.answer("203.0.113.9".parse()?, request).await.status().as_u16())
}

/// A list of promotions with 20,000 labels each, which is sent piece by piece.
fn list() -> Body {
    let labels: Vec<String> = (0..20_000).map(|n| format!(r#""a{n}":"""#)).collect();
    let labels = Bytes::from(labels.join(","));
    let spec = json!({"pipeline": "podinfo", "environment": "dev", "revision": "1", "facets": {}});
    let pieces = (0..PROMOTIONS).flat_map(move |n| {
        let comma = if n > 0 { "," } else { r#"{"metadata":{"resourceVersion":"7"},"items":["# };
        let head = format!(
            r#"{comma}{{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Promotion","metadata":{{"name":"p{n}","labels":{{"#
        );
        let tail = format!(r#"}}}},"spec":{spec}}}{}"#, if n + 1 == PROMOTIONS { "]}" } else { "" });
        [Bytes::from(head), labels.clone(), Bytes::from(tail)].map(Ok::<_, std::io::Error>)
    });
    Body::from_stream(futures::stream::iter(pieces))
}

/// Users may write any labels on Promotions.
#[test]
fn calls_about_promotions_with_many_labels_take_little_memory() -> Result<()> {
    run(async {
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u"},
            "spec": {"appRef": {"apiVersion": "any", "kind": "HelmRelease", "name": "podinfo"},
                "promotion": {"strategy": {"notification": {}, "secretRef": {"name": "hook"}}},
                "environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": "apps"},
            "data": {"trigger-key": "a2V5"}});
        let of_approvals = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook",
            "namespace": "apps"}, "data": {"approval-key": "a2V5"}});
        let base = "/apis/pipelines.weave.works/v1alpha1/namespaces/apps";
        let create = |Json(promotion): Json<Value>| async { (http::StatusCode::CREATED, Json(promotion)) };
        let trigger = json!({"revision": "6.1.8", "idempotencyKey": "build-1", "pipeline": "apps/podinfo"});
        let approval = json!({"pipeline": "apps/podinfo", "environment": "dev", "revision": "1",
            "at": jiff::Timestamp::now()});
        for (secret, path, body, expected) in [
            (secret, "/trigger/apps/podinfo", trigger, 202),
            // None of them waits for an approval.
            (of_approvals, "/approval/apps/podinfo/dev/1", approval, 422),
        ] {
            let answer = |body: Value| get(move || async move { Json(body.clone()) });
            let api = Router::new()
                .route("/api/v1/namespaces/apps/secrets/hook", answer(secret))
                .route(&format!("{base}/pipelines/podinfo"), answer(pipeline.clone()))
                .route(&format!("{base}/promotions"), get(|| async { list() }).post(create));
            let object: Pipeline = serde_json::from_value(pipeline.clone())?;
            let scratch = Scratch::new("hook-memory")?;
            let hook = serving(&scratch, [object], 0, api).await;
            // The most memory is measured from here on: proc(5), clear_refs.
            std::fs::write("/proc/self/clear_refs", "5")?;
            let before = memory("VmRSS:")?;
            let began = Instant::now();
            let mut status = call(&hook, path, &body).await?;
            // On a busy machine a list may take longer than a call waits for it. Senders repeat the call.
            while status == 503 && began.elapsed() < WAIT_TIMEOUT {
                status = call(&hook, path, &body).await?;
            }
            let taken = memory("VmHWM:")?.saturating_sub(before);
            println!("{path} is answered {status} and takes {taken} MiB");
            ensure!(taken < 100, "{path} takes {taken} MiB");
            ensure!(status == expected, "{path} is answered with {status}");
        }
        Ok(())
    })
}
