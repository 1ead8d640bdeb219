//! The stream of changes, read by callers with different rights.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use serde_json::Value;
use sluice_api::snapshot::StoredPipeline;
use sluice_core::fleet::index::Fleet;
use sluice_testkit::json_schema::differences;
use sluice_web::{Api, router};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::world::{World, environment, every_state, pipeline, snapshot};

/// An open stream.
struct Reader {
    body: BodyDataStream,
    text: String,
}

/// An event: its type, its data and its id.
type Received = (String, Value, String);

impl Reader {
    async fn open(api: &Api<World>, token: &str, query: &str, last: &str) -> (StatusCode, Reader) {
        let request = Request::get(format!("/api/v1/changes{query}"))
            .header("authorization", format!("Bearer {token}"))
            .header("last-event-id", last);
        let answer = router(api.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        (answer.status(), Reader { body: answer.into_body().into_data_stream(), text: String::new() })
    }

    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_string(), rest.to_string());
                self.text = rest;
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    lines.collect::<String>()
                };
                if let Ok(data) = serde_json::from_str(&field("data")) {
                    let kind = field("event");
                    let differs = differs_from_description(&kind, &data);
                    assert!(differs.is_empty(), "{kind}: {differs:?}");
                    return Some((kind, data, field("id")));
                }
                continue;
            }
            let more = timeout(Duration::from_secs(30), self.body.next()).await.unwrap();
            self.text.push_str(std::str::from_utf8(&more?.unwrap()).unwrap());
        }
    }

    /// Returns the names of all pipelines up to the event `listed`, and the id of that.
    async fn listed(&mut self) -> (Vec<String>, String) {
        let mut names = Vec::new();
        loop {
            let (event, data, id) = self.next().await.unwrap();
            match event.as_str() {
                "pipeline" => names.push(name(&data)),
                "listed" => return (names, id),
                other => panic!("{other} {data}"),
            }
        }
    }
}

/// Returns how the data of an event differs from the type that the description of the stream names for it.
fn differs_from_description(event: &str, data: &Value) -> Vec<String> {
    let document = sluice_web::document();
    let answer = &document["paths"]["/api/v1/changes"]["get"]["responses"]["200"];
    let text = answer["description"].as_str().unwrap();
    let Some((_, named)) = text.split_once(&format!("`{event}` has a ")) else {
        return vec!["the event is not described".into()];
    };
    let kind: String = named.chars().take_while(char::is_ascii_alphanumeric).collect();
    let mut found = Vec::new();
    differences(&document, &document["components"]["schemas"][&kind], data, &kind, &mut found);
    if !document["components"]["schemas"][&kind].is_object() {
        found.push(format!("there is no schema {kind}"));
    }
    found
}

fn name(data: &Value) -> String {
    format!("{}/{}", data["namespace"].as_str().unwrap(), data["name"].as_str().unwrap())
}

fn api(world: &World) -> Api<World> {
    Api::new(Fleet::default(), world.clone(), false)
}

#[tokio::test]
async fn each_caller_gets_the_pipelines_that_rbac_allows() {
    let api = api(&World::new(every_state()));
    for (token, query, expected) in [
        ("admin", "", &["apps/podinfo", "evil/evil", "shop/checkout", "shop/mailer"][..]),
        ("admin", "?namespace=apps", &["apps/podinfo"]),
        ("shop", "", &["shop/checkout", "shop/mailer"]),
        ("shop", "?namespace=apps", &[]),
        ("nobody", "", &[]),
    ] {
        let (status, mut reader) = Reader::open(&api, token, query, "").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(reader.listed().await.0, expected, "{token} {query}");
    }
    for (token, query, expected) in [
        ("stolen", "", StatusCode::UNAUTHORIZED),
        ("down", "", StatusCode::SERVICE_UNAVAILABLE),
        ("admin", "?nonsense=1", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(Reader::open(&api, token, query, "").await.0, expected, "{token} {query}");
    }
}

#[tokio::test]
async fn a_change_is_sent_once_and_a_reader_that_comes_back_gets_only_what_it_has_missed() {
    let stored = |name: &str, revision: &str| {
        let states = [revision, "1.0.0", "1.0.0"].map(|revision| environment(revision, "Ready", ""));
        pipeline("apps", name, states)
    };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| stored(name, "1.0.0"));
    let (newer_a, newer_b) = (stored("a", "1.2.0"), stored("b", "1.1.0"));
    let of = |pipelines: &[&StoredPipeline]| {
        snapshot(pipelines.iter().map(|stored| (*stored).clone()).collect(), Vec::new())
    };
    let world = World::new(of(&[&a, &b, &c]));
    let api = api(&world);
    let (_, mut reader) = Reader::open(&api, "admin", "", "").await;
    let (names, _) = reader.listed().await;
    assert_eq!(names, ["apps/a", "apps/b", "apps/c"]);

    world.set(of(&[&a, &newer_b]));
    let (event, data, id) = reader.next().await.unwrap();
    assert_eq!((event.as_str(), name(&data), id.as_str()), ("gone", "apps/c".into(), ""));
    let (event, data, id) = reader.next().await.unwrap();
    assert_eq!((event.as_str(), name(&data)), ("pipeline", "apps/b".into()));
    drop(reader);

    // Meanwhile one changes, and one is created.
    world.set(of(&[&newer_a, &newer_b, &d]));
    let (_, mut back) = Reader::open(&api, "admin", "", &id).await;
    assert_eq!(back.listed().await.0, ["apps/a", "apps/d"]);
    // Another process does not know the id.
    for unknown in ["0123456789abcdef-3", "x", "-", &format!("{id}9z")] {
        let (_, mut reader) = Reader::open(&api, "admin", "", unknown).await;
        assert_eq!(reader.listed().await.0.len(), 3, "{unknown}");
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_not_accepted_any_more() {
    let world = World::new(every_state());
    let api = api(&world);
    let (_, mut reader) = Reader::open(&api, "viewer", "", "").await;
    reader.listed().await;
    world.revoke("viewer");
    world.set(snapshot(Vec::new(), Vec::new()));
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn a_slow_reader_gets_the_newest_state_only() {
    let at = |n: u32| {
        let statuses = ["1.0.0", "1.0.0", "1.0.0"].map(|_| environment(&format!("1.0.{n}"), "Ready", ""));
        snapshot(vec![pipeline("apps", "a", statuses)], Vec::new())
    };
    let world = World::new(at(0));
    let (_, mut reader) = Reader::open(&api(&world), "admin", "", "").await;
    reader.listed().await;
    for n in 1..=100 {
        world.set(at(n));
    }
    let (_, data, _) = reader.next().await.unwrap();
    assert!(data.to_string().contains("1.0.100"), "{data}");
}

#[tokio::test]
async fn one_caller_has_a_limited_number_of_streams() {
    let world = World::new(every_state());
    let api = api(&world);
    let mut open = Vec::new();
    for _ in 0..30 {
        open.push(Reader::open(&api, "viewer", "", "").await);
    }
    let refused = open.iter().filter(|(status, _)| *status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(refused, 10);
    assert_eq!(Reader::open(&api, "admin", "", "").await.0, StatusCode::OK);
    drop(open);
    assert_eq!(Reader::open(&api, "viewer", "", "").await.0, StatusCode::OK);
}
