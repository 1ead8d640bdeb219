//! What starts a pipeline, asked by callers who may see different objects of the hub and different clusters.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluice_core::fleet::index::Index;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Kind};
use sluice_web::{Api, router};
use tower::ServiceExt;

use crate::described::differs_from_description;
use crate::fleet::remote;
use crate::starts::{begins_everywhere, podinfo_everywhere};

async fn ask(index: &Index, token: &str) -> (StatusCode, Value) {
    let path = "/api/v1/pipelines/apps/podinfo/triggers";
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    let api = Api::new(index.fleet(), begins_everywhere(), false);
    let answer = router(api).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status();
    let body = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let differs = differs_from_description(("get", path), status, &body);
    assert!(differs.is_empty(), "{differs:?}");
    (status, body)
}

/// Returns the triggers and what is missing, as lines.
async fn lines(index: &Index, token: &str) -> String {
    let (status, body) = ask(index, token).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let item = |item: &Value| {
        format!("{} [{}]: {}", text(&item["what"]), text(&item["cluster"]), text(&item["how"]))
    };
    let unread = body["unread"].as_array().into_iter().flatten().map(|why| format!("unread: {}", text(why)));
    body["items"].as_array().unwrap().iter().map(item).chain(unread).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn each_caller_sees_what_starts_a_pipeline_as_far_as_rbac_allows() {
    let index = podinfo_everywhere([("flux-system", "github".to_string())].into_iter());
    insta::assert_snapshot!(lines(&index, "admin").await, @"
    HelmRelease apps/podinfo []: installs chart podinfo of HelmRepository flux-system/charts (https://charts.example.com)
    HelmRelease apps/podinfo [fleet/eu]: installs chart podinfo of HelmRepository flux-system/charts (https://charts.example.com)
    HelmRelease apps/podinfo [fleet/us]: installs chart podinfo of HelmRepository flux-system/charts (https://charts.example.com)
    Receiver flux-system/github []: a webhook of github makes Flux look at HelmRepository flux-system/charts immediately (kubectl get receiver github -n flux-system shows its path)
    ");
    insta::assert_snapshot!(lines(&index, "tenant").await, @"
    HelmRelease apps/podinfo []: installs chart podinfo of HelmRepository flux-system/charts
    HelmRelease apps/podinfo [fleet/eu]: what Flux applies on cluster fleet/eu: sluice trace shows where it comes from, with the rights to see that cluster
    HelmRelease apps/podinfo [fleet/us]: what Flux applies on cluster fleet/us: sluice trace shows where it comes from, with the rights to see that cluster
    unread: of the objects on the hub, only those that you may get are shown
    ");
    insta::assert_snapshot!(lines(&index, "eu").await, @"
    HelmRelease apps/podinfo []: it is not on this cluster, or you may not read it
    HelmRelease apps/podinfo [fleet/eu]: installs chart podinfo of HelmRepository flux-system/charts (https://charts.example.com)
    HelmRelease apps/podinfo [fleet/us]: what Flux applies on cluster fleet/us: sluice trace shows where it comes from, with the rights to see that cluster
    unread: of the objects on the hub, only those that you may get are shown
    ");
    for token in ["shop", "nobody"] {
        assert_eq!(ask(&index, token).await.0, StatusCode::NOT_FOUND, "{token}");
    }
}

#[tokio::test]
async fn objects_that_a_caller_may_not_see_change_nothing_in_the_answer() {
    let few = podinfo_everywhere(std::iter::empty());
    let many = podinfo_everywhere((0..60).map(|number| ("evil", format!("r{number:02}"))));
    for token in ["tenant", "eu"] {
        assert_eq!(lines(&few, token).await, lines(&many, token).await, "{token}");
    }
    let all = lines(&many, "admin").await;
    assert_eq!(all.matches("Receiver evil/").count(), 50, "{all}");
    assert!(all.contains("unread: more than 50 receivers start it: only 50 are shown"), "{all}");
}

#[tokio::test]
async fn an_object_that_a_caller_may_get_by_name_shows_whatever_is_hidden_beside_it() {
    let named = || std::iter::once(("shared", "tenant".to_string()));
    let hidden = |many| (0..many).map(|number| ("shared", format!("r{number:02}")));
    for many in [0, 9, 10, 150] {
        let index = podinfo_everywhere(hidden(many).chain(named()));
        let shown = lines(&index, "tenant").await;
        let receivers: Vec<&str> = shown.lines().filter(|line| line.starts_with("Receiver")).collect();
        assert!(receivers.len() == 1 && receivers[0].contains("shared/tenant"), "beside {many}: {shown}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_said_to_those_who_may_see_it() {
    let mut index = podinfo_everywhere(std::iter::empty());
    let forbidden = "the hub forbids listing receivers";
    index.apply(&ClusterKey::Local, ClusterEvent::Unreadable(Kind::Receiver, None, forbidden.into()));
    index.apply(&remote("eu"), ClusterEvent::Lost("it refuses the connection".into()));
    for (token, receivers, eu) in [("admin", true, true), ("tenant", false, false), ("eu", false, true)] {
        let (_, body) = ask(&index, token).await;
        let body = body.to_string();
        assert_eq!(body.contains(forbidden), receivers, "{token}: {body}");
        assert_eq!(body.contains("it refuses the connection"), eu, "{token}: {body}");
    }
}
