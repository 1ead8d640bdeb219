//! The requests of CI systems: which revisions fit a pipeline, what a repeated key means, and the promotions on a
//! real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::promotion::{Phase, Promotion};
use sluice_controller::hook::secret_names::trigger_secret;
use sluice_controller::hook::trigger_rules::{
    TriggerRequest, check, check_names_pipeline, requested_revision, revision_shape, too_many,
};
use sluice_core::Revision;
use sluice_testkit::{Scratch, eventually};
use tokio::sync::Barrier;

use crate::server::{HookFixture, run, serve, sign};
use crate::serving::serving;

fn pipeline(app: Option<&str>, tracks: Value, status: Value) -> Pipeline {
    let app = app.map(|kind| json!({"apiVersion": "any", "kind": kind, "name": "podinfo"}));
    let key = |name: &str| json!({"strategy": {"notification": {}, "secretRef": {"name": name}}});
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u"},
        "spec": {"appRef": app, "tracks": tracks, "promotion": key("all"), "environments": [
            {"name": "dev", "targets": [{"namespace": "podinfo", "name": "d"}], "promotion": key("dev")},
            {"name": "prod", "targets": [{"namespace": "podinfo"}]}]},
        "status": status});
    serde_json::from_value(object).unwrap()
}

fn proven(facets: Value) -> Value {
    json!({"environments": {"dev": {"targets": [{"name": "d", "namespace": "podinfo", "verified": [
        {"facets": facets, "arrival": 1, "at": "2026-11-21T10:00:00Z"}]}]}}})
}

fn request(mut body: Value) -> TriggerRequest {
    body["idempotencyKey"] = json!("build-1");
    serde_json::from_value(body).unwrap()
}

fn release(tracks: Value) -> Pipeline {
    pipeline(Some("HelmRelease"), tracks, json!({}))
}

fn found(pipeline: &Pipeline, body: &Value) -> Result<String, String> {
    revision_shape(pipeline)
        .and_then(|shape| requested_revision(&shape, &request(body.clone())))
        .map(|revision| revision.to_string())
}

/// A revision has a value for each of the objects that have proven one, and a call for each of 128 targets adds it.
#[test]
fn long_revisions_and_too_many_of_them_are_refused() {
    let members = |count: usize| -> Value {
        (0..count).map(|n| (format!("HelmRelease/app-{n}-{}:chart", "x".repeat(200)), json!("1"))).collect()
    };
    let one = json!({"revision": "1.2.3"});
    let text = |count: usize| found(&pipeline(None, json!([]), proven(members(count))), &one);
    assert_eq!(text(100), Ok("1.2.3".into()));
    let why = text(200).unwrap_err();
    assert!(
        why.starts_with("the revision is too long: 200 objects") && why.contains("fewer objects"),
        "{why}"
    );

    let facets: BTreeMap<String, String> = serde_json::from_value(members(100)).unwrap();
    let revision = Revision::from_strings(&facets).unwrap();
    let one = facets.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    assert_eq!(too_many(500 * one, 128, &revision), None);
    let why = too_many(700 * one, 128, &revision).unwrap();
    assert!(why.contains("wait until earlier promotions have ended"), "{why}");
}

#[test]
fn a_revision_fits_what_the_pipeline_tracks() {
    let image = "Kustomization/podinfo:image:ghcr.io/org/app";
    let applied = |tracks, status| pipeline(Some("Kustomization"), tracks, status);
    let one = json!({"revision": "2"});
    let table = [
        // The spec decides before any revision has run.
        (release(json!([])), one.clone(), "2"),
        (release(json!([])), json!({"chart": "6.1.9"}), "6.1.9"),
        (release(json!(["chart", "app"])), json!({"chart": "1", "app": "2"}), "chart=1 app=2"),
        (release(json!(["image:a/b"])), json!({"images": {"a/b": "7"}}), "7"),
        (applied(json!(["tag"]), json!({})), one.clone(), "2"),
        // The proven revision decides afterwards.
        (pipeline(None, json!([]), proven(json!({"HelmRelease/podinfo:chart": "1"}))), one.clone(), "2"),
        (applied(json!([]), proven(json!({image: "1"}))), one, "2"),
        (
            applied(json!(["images"]), proven(json!({image: "1"}))),
            json!({"images": {"ghcr.io/org/app": "2"}}),
            "2",
        ),
    ];
    for (pipeline, body, shown) in table {
        assert_eq!(found(&pipeline, &body).as_deref(), Ok(shown), "{body}");
    }
}

#[test]
fn the_body_must_name_the_pipeline_if_several_accept_the_key() {
    let (pipeline, plain) = (release(json!([])), request(json!({"revision": "2"})));
    assert_eq!(check_names_pipeline(&pipeline, &plain, 0), Ok(()));
    let why = check_names_pipeline(&pipeline, &plain, 2).unwrap_err();
    assert!(why.contains("(2)") && why.ends_with(r#"add "pipeline": "apps/podinfo""#), "{why}");
    assert_eq!(
        check_names_pipeline(&pipeline, &request(json!({"revision": "2", "pipeline": "apps/podinfo"})), 2),
        Ok(())
    );
}

#[test]
fn a_revision_that_does_not_fit_is_answered_with_what_to_write() {
    let one = json!({"revision": "2"});
    let table = [
        (pipeline(None, json!([]), json!({})), one.clone(), "are not known yet"),
        (pipeline(Some("Kustomization"), json!([]), json!({})), one, "spec.tracks"),
        (
            release(json!(["chart", "app"])),
            json!({"revision": "1"}),
            r#"several parts: write "chart": "..." and "app": "...""#,
        ),
        (release(json!([])), json!({"app": "1"}), r#"write "chart": "...""#),
        (release(json!([])), json!({"chart": "1", "app": "1"}), r#"write "chart": "...""#),
        (release(json!([])), json!({"chart": "1", "revision": "1"}), "excludes other values"),
        (release(json!([])), json!({}), r#"write "chart": "...""#),
        (release(json!([])), json!({"chart": "1.2.3+4"}), "write 1.2.3"),
        (release(json!([])), json!({"chart": "../../etc"}), "the value of chart cannot be used"),
        (release(json!([])), json!({"chart": ""}), "the value of chart must be"),
        (release(json!([])), json!({"chart": "1 # evil"}), "the value of chart must be"),
        (release(json!(["image:a/b"])), json!({"images": {"a/c": "7"}}), r#""images": {"a/b": "..."}"#),
    ];
    for (pipeline, body, part) in table {
        let why = found(&pipeline, &body).unwrap_err();
        assert!(why.contains(part), "{body}: {why}");
    }
}

#[test]
fn a_request_must_have_a_valid_key_and_name_no_other_pipeline() {
    let of = pipeline(Some("HelmRelease"), json!([]), json!({}));
    assert_eq!(trigger_secret(&of), Some("dev"));
    let good = request(json!({"pipeline": "apps/podinfo"}));
    check(&of, &good, None).unwrap();
    check(&of, &good, Some(b"build-1")).unwrap();
    assert!(check(&of, &good, Some(b"build-2")).unwrap_err().contains("differs from idempotencyKey build-1"));
    assert!(
        check(&of, &request(json!({"pipeline": "apps/other"})), None)
            .unwrap_err()
            .contains("in pipeline apps/other")
    );
    for key in ["", " ", "a b", "é", &"k".repeat(129)] {
        let request = TriggerRequest { idempotency_key: key.into(), ..TriggerRequest::default() };
        assert!(
            check(&of, &request, Some(key.as_bytes())).unwrap_err().contains("idempotencyKey must be up to"),
            "{key:?}"
        );
    }
}

impl HookFixture {
    async fn trigger(&self, body: &Value) -> Result<(u16, Option<String>, String)> {
        self.trigger_of("podinfo", body).await
    }

    /// Sends a request that names its pipeline, and returns the status, `Location` and text of the answer.
    async fn trigger_of(&self, pipeline: &str, body: &Value) -> Result<(u16, Option<String>, String)> {
        let mut body = body.clone();
        body["pipeline"] = json!(format!("apps/{pipeline}"));
        let body = body.to_string();
        let signature = sign("test-trigger-key", body.as_bytes());
        let path = format!("/trigger/apps/{pipeline}");
        let answer = self.answer(&path, body.as_bytes(), Some(&signature)).await?;
        let place = answer.headers().get("location").map(|l| l.to_str().unwrap().to_string());
        Ok((answer.status().as_u16(), place, answer.text().await?))
    }
}

async fn refuses_what_is_wrong(fixture: &HookFixture) -> Result<()> {
    for (body, wanted, part) in [
        (json!({"revision": "6.1.9"}), 422, "idempotencyKey"),
        (json!({"revison": "6.1.9", "idempotencyKey": "b"}), 422, "unknown field `revison`"),
        (json!({"app": "6.1.9", "idempotencyKey": "b"}), 422, "chart"),
    ] {
        let (status, _, text) = fixture.trigger(&body).await?;
        ensure!(status == wanted && text.contains(part), "{body}: {status}: {text}");
    }
    let unnamed = br#"{"revision": "6.1.9", "idempotencyKey": "b"}"#;
    let signature = sign("test-trigger-key", unnamed);
    let answer = fixture.answer("/trigger/apps/podinfo", unnamed, Some(&signature)).await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 422 && text.contains("the body must name its pipeline"), "{status}: {text}");
    let signature = sign("test-trigger-key", b"{");
    ensure!(fixture.status("/trigger/apps/podinfo", b"{", Some(&signature)).await? == 400);
    Ok(())
}

async fn each_target_has_a_promotion_of_its_own(fixture: &HookFixture) -> Result<()> {
    let first = json!({"revision": "6.1.8", "idempotencyKey": "build-1"});
    let (status, place, text) = fixture.trigger_of("each", &first).await?;
    ensure!(status == 202, "{status}: {text}");
    ensure!(place.is_some_and(|at| at.ends_with("/namespaces/apps/pipelines/each")));
    let body: Value = serde_json::from_str(&text)?;
    ensure!(body["watch"] == "sluice get promotions --pipeline each -n apps --watch", "{body}");
    let promotions: Api<Promotion> = Api::namespaced(fixture.cluster.client().await?, "apps");
    for (n, target) in ["eu", "us"].into_iter().enumerate() {
        let one = &body["promotions"][n];
        ensure!(one["target"] == target, "{body}");
        let record = promotions.get(one["name"].as_str().unwrap_or_default()).await?;
        ensure!(record.spec.place() == format!("dev/{target}") && record.spec.sequence == 1, "{record:?}");
    }
    ensure!(fixture.trigger_of("each", &first).await?.0 == 200);
    let other = json!({"revision": "6.1.9", "idempotencyKey": "build-1"});
    ensure!(fixture.trigger_of("each", &other).await?.0 == 409);
    // A missing promotion, as after an error between the first and the second, is recorded by the next call.
    let lost = body["promotions"][1]["name"].as_str().unwrap_or_default();
    promotions.delete(lost, &Default::default()).await?;
    eventually(Duration::from_secs(60), async || {
        ensure!(promotions.get_opt(lost).await?.is_none(), "{lost} is still there");
        Ok(())
    })
    .await?;
    ensure!(
        fixture.trigger_of("each", &other).await?.0 == 409,
        "a target has accepted a revision that conflicts at another target"
    );
    ensure!(promotions.get_opt(lost).await?.is_none());
    let before = promotions.list(&Default::default()).await?.items.len();
    let (status, _, again) = fixture.trigger_of("each", &first).await?;
    ensure!(
        status == 202 && serde_json::from_str::<Value>(&again)?["promotions"][1]["name"] == lost,
        "{again}"
    );
    let second = json!({"revision": "6.2.0", "idempotencyKey": "build-2"});
    ensure!(fixture.trigger_of("each", &second).await?.0 == 202);
    let count = async || anyhow::Ok(promotions.list(&Default::default()).await?.items.len());
    ensure!(count().await? == before + 3);
    let change = async |per: &str, targets: Value| {
        let pipelines: Api<Pipeline> = Api::namespaced(fixture.cluster.client().await?, "apps");
        let strategy = json!({"strategy": {"pull-request": {"per": per}}});
        let spec = json!({"promotion": strategy, "environments": [{"name": "dev", "targets": targets}]});
        pipelines.patch("each", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        anyhow::Ok(())
    };
    // A new target does not get a revision of an old request, and a key asks for nothing more when `per` is
    // changed.
    let (eu, us) = (json!({"namespace": "a", "name": "eu"}), json!({"namespace": "b", "name": "us"}));
    let ap = json!({"namespace": "c", "name": "ap"});
    for (per, targets) in [("Target", json!([eu, us, ap])), ("Environment", json!([eu, us]))] {
        change(per, targets).await?;
        let (status, _, text) = fixture.trigger_of("each", &first).await?;
        ensure!(status == 200 && count().await? == before + 3, "{per}: {status} {text}");
        ensure!(fixture.trigger_of("each", &other).await?.0 == 409, "{per}");
    }
    Ok(())
}

#[test]
fn a_repeated_key_is_the_same_promotion_and_a_later_request_supersedes_it() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let first = json!({"revision": "6.1.8", "idempotencyKey": "build-1"});
        // An unsigned request is refused, even if the pipeline allows other unsigned calls.
        for path in
            ["/trigger/apps/podinfo", "/trigger/apps/open", "/trigger/apps/none", "/trigger/apps/keyless"]
        {
            ensure!(fixture.status(path, first.to_string().as_bytes(), None).await? == 401, "{path}");
        }
        let (status, location, text) = fixture.trigger(&first).await?;
        ensure!(status == 202, "{status}: {text}");
        let body: Value = serde_json::from_str(&text)?;
        let name = body["name"].as_str().unwrap_or_default().to_string();
        ensure!(
            location.as_deref()
                == Some(&*format!("/apis/pipelines.weave.works/v1alpha1/namespaces/apps/promotions/{name}"))
        );
        ensure!(body["watch"] == format!("sluice get promotions {name} -n apps --watch"), "{body}");
        let (status, again, _) = fixture.trigger(&first).await?;
        ensure!((status, &again) == (200, &location));
        let (status, _, text) =
            fixture.trigger(&json!({"revision": "6.1.9", "idempotencyKey": "build-1"})).await?;
        ensure!(status == 409 && text.contains("another revision before, 6.1.8"), "{status}: {text}");
        refuses_what_is_wrong(&fixture).await?;
        each_target_has_a_promotion_of_its_own(&fixture).await?;

        // The targets of dev cannot be read here, so the promotion that was asked for last stays pending.
        let second = json!({"chart": "6.2.0", "idempotencyKey": "build-2", "pipeline": "apps/podinfo"});
        let together =
            tokio::join!(fixture.trigger(&second), fixture.trigger(&second), fixture.trigger(&second));
        let mut all = [together.0?.0, together.1?.0, together.2?.0];
        all.sort_unstable();
        ensure!(all == [200, 200, 202], "{all:?}");
        let promotions: Api<Promotion> = Api::namespaced(fixture.cluster.client().await?, "apps");
        eventually(Duration::from_secs(60), async || {
            let mut found: Vec<_> = promotions
                .list(&Default::default())
                .await?
                .items
                .into_iter()
                .filter(|p| p.spec.pipeline == "podinfo")
                .map(|p| (p.spec.revision, p.spec.environment, p.status.unwrap_or_default().phase))
                .collect();
            found.sort();
            let wanted = [("6.1.8", "dev", Phase::Superseded), ("6.2.0", "dev", Phase::Pending)];
            ensure!(found == wanted.map(|(r, e, p)| (r.into(), e.into(), p)), "{found:?}");
            Ok(())
        })
        .await?;
        let record = promotions.get(&name).await?;
        ensure!(record.spec.trigger.is_some_and(|t| t.key == "build-1"), "the promotion has no trigger");

        fixture.cluster.stop();
        eventually(Duration::from_secs(60), async || {
            let body = br#"{"revision": "7.0.0", "idempotencyKey": "build-3"}"#;
            let signature = sign("test-trigger-key", body);
            let answer = fixture.post("/trigger/apps/podinfo", body, Some(&signature)).send().await?;
            ensure!(answer.status() == 503, "{answer:?}");
            Ok(())
        })
        .await
    })
}

/// An API server with a pipeline, its Secret, and no promotions. Each create of a promotion is answered when
/// `together` of them have arrived. The server counts the creates, and how many wait at most at a time.
fn api_that_creates_together(pipeline: &Pipeline, together: usize, counts: &Arc<Counts>) -> Router {
    let base = "/apis/pipelines.weave.works/v1alpha1/namespaces/apps";
    let json = |body: Value| get(move || async move { Json(body.clone()) });
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dev", "namespace": "apps"},
        "data": {"trigger-key": "a2V5"}});
    let none = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "PromotionList", "metadata": {"resourceVersion": "7"}, "items": []});
    let (barrier, counts) = (Arc::new(Barrier::new(together)), counts.clone());
    let create = move |Json(promotion): Json<Value>| async move {
        counts.created.fetch_add(1, Ordering::Relaxed);
        counts.most.fetch_max(counts.waiting.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        barrier.wait().await;
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
        (StatusCode::CREATED, Json(promotion))
    };
    Router::new()
        .route("/api/v1/namespaces/apps/secrets/dev", json(secret))
        .route(&format!("{base}/pipelines/podinfo"), json(json!(pipeline)))
        .route(&format!("{base}/promotions"), json(none).post(create))
}

#[derive(Default)]
struct Counts {
    created: AtomicUsize,
    waiting: AtomicUsize,
    most: AtomicUsize,
}

#[test]
fn the_promotions_of_128_targets_are_created_16_at_a_time() {
    let mut pipeline = release(json!([]));
    let first = &mut pipeline.spec.environments[0];
    first.targets = (0..128)
        .map(|nth| {
            serde_json::from_value(json!({"namespace": "podinfo", "name": format!("t{nth}")})).unwrap()
        })
        .collect();
    let pull_request = json!({"type": "gitea", "url": "https://git.example.com/a/b", "per": "Target",
        "secretRef": {"name": "git"}});
    let strategy = json!({"strategy": {"pull-request": pull_request, "secretRef": {"name": "dev"}}});
    first.promotion = Some(serde_json::from_value(strategy).unwrap());
    let scratch = Scratch::new("together").unwrap();
    let counts = Arc::new(Counts::default());
    let api = api_that_creates_together(&pipeline, 16, &counts);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let hook = serving(&scratch, [pipeline], 0, api).await;
        let body = json!({"revision": "6.1.8", "idempotencyKey": "build-1"}).to_string();
        let request = http::Request::post("/trigger/apps/podinfo")
            .header("x-signature", sign("key", body.as_bytes()))
            .body(http_body_util::Full::new(hyper::body::Bytes::from(body)))
            .unwrap();
        let answer = hook.answer(std::net::Ipv4Addr::LOCALHOST.into(), request).await;
        // If the promotions were created one after the other, the first would wait for the others.
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
    });
    assert_eq!((counts.created.load(Ordering::Relaxed), counts.most.load(Ordering::Relaxed)), (128, 16));
}
