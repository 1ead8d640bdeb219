//! Requests of pages, as a browser sends them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say it by failing")]

mod answers;
mod attacks;
mod chromium;
mod design_system;
mod draft;
mod draft_first_setup;
mod environment_graph;
mod every_page;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../api/fleet.rs"]
mod fleet;
mod list_pages;
mod pipeline_groups;
#[allow(dead_code, reason = "the tests of the API use the rest")]
#[path = "../support/starts.rs"]
mod starts;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::{ClusterEvent, ClusterKey};
use sluice_core::planned_change::{PlannedChange, PlannedValue};
use sluice_core::value_check::is_unsafe;
use sluice_web::{Api, ChangeError, ChangedKind, SeenObject, router};
use starts::{begins_everywhere, podinfo_everywhere};
use tower::ServiceExt;
use world::{World, environment, every_state, pipeline, promotion, snapshot};

/// The browser of one person.
struct Browser {
    router: axum::Router,
    cookie: String,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    /// Returns the value of a hidden field.
    fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let after =
            self.text.split(&start).nth(1).unwrap_or_else(|| panic!("no field {name}: {}", self.text));
        after.split('"').next().unwrap().into()
    }

    fn location(&self) -> &str {
        self.headers.get("location").map_or("", |value| value.to_str().unwrap())
    }
}

impl Browser {
    async fn new(world: &World, actions: bool, token: &str) -> Browser {
        Browser::over(Fleet::default(), world, actions, token).await
    }

    async fn over(fleet: Fleet, world: &World, actions: bool, token: &str) -> Browser {
        let router = router(Api::new(fleet, world.clone(), actions));
        let mut browser = Browser { router, cookie: String::new() };
        let answer = browser.post("/sign-in", &[("token", token)]).await;
        let cookie = answer.headers.get("set-cookie").map(|value| value.to_str().unwrap().to_string());
        browser.cookie = cookie.unwrap_or_default().split(';').next().unwrap().into();
        browser
    }

    async fn send(&self, request: axum::http::request::Builder, body: Body) -> Answer {
        let request =
            request.header("cookie", &self.cookie).header("host", "127.0.0.1:8083").body(body).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path), Body::empty()).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.post_from("http://127.0.0.1:8083", path, fields).await
    }

    async fn post_from(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", origin);
        self.send(request, Body::from(pairs.join("&"))).await
    }

    /// Opens the live updates of a page.
    async fn live(&self, path: &str) -> BodyDataStream {
        let request = Request::get(format!("/live?of={path}")).header("cookie", &self.cookie);
        let answer = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body().into_data_stream()
    }
}

/// Returns the next event of a stream.
async fn event(stream: &mut BodyDataStream) -> String {
    let next = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap();
    String::from_utf8(next.unwrap().unwrap().to_vec()).unwrap()
}

const PAGES: [&str; 15] = [
    "/",
    "/pipelines/apps/podinfo",
    "/pipelines/apps/podinfo/history?environment=prod",
    "/pipelines/apps/podinfo/objects",
    "/pipelines/apps/podinfo/triggers",
    "/promotions",
    "/promotions/apps/podinfo-prod-1",
    "/clusters",
    "/charts",
    "/images",
    "/?q=podinfo&of=person",
    "/?group=health",
    "/charts?cluster=fleet/eu",
    "/pipelines/new",
    "/pipelines/apps/podinfo/edit",
];

#[tokio::test]
async fn without_a_session_every_page_leads_to_the_sign_in() {
    let browser = Browser::new(&World::new(every_state()), true, "stolen").await;
    assert_eq!(browser.cookie, "");
    for page in PAGES {
        let answer = browser.get(page).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{page}");
        assert!(answer.location().starts_with("/sign-in"), "{page}");
    }
    assert_eq!(browser.get("/live?of=/").await.status, StatusCode::UNAUTHORIZED);
    let answer = browser.get("/promotions/apps/podinfo-prod-1/approve").await;
    assert_eq!(answer.location(), "/sign-in?to=/promotions/apps/podinfo-prod-1/approve");
}

#[tokio::test]
async fn every_page_shows_only_what_the_person_may_see() {
    let world = World::new(every_state());
    let admin = Browser::new(&world, true, "admin").await;
    for page in PAGES {
        let answer = admin.get(page).await;
        assert_eq!(answer.status, StatusCode::OK, "{page} {}", answer.text);
    }
    assert!(admin.get("/").await.text.contains("checkout"));
    let shop = Browser::new(&world, true, "shop").await;
    let list = shop.get("/").await.text;
    assert!(list.contains("checkout") && !list.contains("apps/podinfo"), "{list}");
    let promotions = shop.get("/promotions").await.text;
    assert!(!promotions.contains("apps/podinfo"), "{promotions}");
    let nobody = Browser::new(&world, true, "nobody").await;
    for page in [
        "/pipelines/apps/podinfo",
        "/pipelines/apps/podinfo/history",
        "/pipelines/apps/podinfo/objects",
        "/pipelines/apps/podinfo/triggers",
        "/promotions/apps/podinfo-prod-1",
        "/pipelines/apps/absent",
    ] {
        assert_eq!(nobody.get(page).await.status, StatusCode::NOT_FOUND, "{page}");
        assert_eq!(shop.get(page).await.status, StatusCode::NOT_FOUND, "{page}");
    }
    assert!(nobody.get("/").await.text.contains("There is no pipeline that you may see"));
}

#[tokio::test]
async fn no_page_allows_foreign_scripts_or_frames() {
    let browser = Browser::new(&World::new(every_state()), true, "admin").await;
    for page in PAGES.into_iter().chain([
        "/pipelines/evil/evil",
        "/pipelines/evil/evil/objects",
        "/pipelines/evil/evil/triggers",
        "/promotions/evil/evil-prod-1",
        "/absent",
    ]) {
        let answer = browser.get(page).await;
        for bad in ["<script>alert", "<img", "href=\"javascript", "onerror=alert(2)>\"", " style="] {
            assert!(!answer.text.contains(bad), "{page} contains {bad}: {}", answer.text);
        }
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
}

#[tokio::test]
async fn a_sign_in_link_works_once_and_a_preview_does_not_use_it_up() {
    let api = Api::new(Fleet::default(), World::new(every_state()), true);
    let router = router(api.with_sign_in_link("code".into(), "admin".into()));
    let ask = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8083");
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        (answer.status(), answer.headers().contains_key("set-cookie"))
    };
    for (method, path, wanted) in [
        ("GET", "/sign-in/link/other", (StatusCode::FORBIDDEN, false)),
        ("HEAD", "/sign-in/link/code", (StatusCode::FORBIDDEN, false)),
        ("GET", "/sign-in/link/code", (StatusCode::OK, true)),
        ("GET", "/sign-in/link/code", (StatusCode::FORBIDDEN, false)),
    ] {
        assert_eq!(ask(method, path).await, wanted, "{method} {path}");
    }
}

#[tokio::test]
async fn the_history_shows_all_records_or_those_of_one_environment() {
    let admin = Browser::new(&World::new(every_state()), true, "admin").await;
    let link = "href=\"/promotions/apps/podinfo-prod-1\"";
    for (query, has_prod) in [("", true), ("?environment=prod", true), ("?environment=staging", false)] {
        let page = admin.get(&format!("/pipelines/apps/podinfo/history{query}")).await.text;
        assert_eq!(page.contains(link), has_prod, "{query} {page}");
        assert!(page.contains("git log --grep &quot;Sluice-Pipeline: apps/podinfo&quot;"), "{page}");
        let chosen = query.trim_start_matches("?environment=");
        let chosen = if chosen.is_empty() { "All environments" } else { chosen };
        assert!(page.contains(&format!("aria-current=\"true\">{chosen}</a>")), "{page}");
    }
}

#[tokio::test]
async fn no_page_shows_characters_that_reorder_or_hide_a_text() {
    let hostile = "\u{202e}gnp\u{200b}.exe\u{1b}[2J\u{9b}1A";
    let odd = |prod: &str| {
        let mut odd = pipeline("apps", "odd", [(); 3].map(|()| environment("1", "Failed", hostile)));
        let object = Arc::make_mut(&mut odd.object);
        object.spec.app_ref.as_mut().unwrap().kind = format!("{prod}{hostile}");
        odd
    };
    let world = World::new(snapshot(vec![odd("a")], vec![]));
    let browser = Browser::new(&world, true, "admin").await;
    let check = |text: &str| {
        assert!(text.contains("gnp.exe"), "{text}");
        let found = text.chars().find(|c| !matches!(c, '\n' | '\t') && is_unsafe(*c));
        assert_eq!(found, None, "{text}");
    };
    for page in ["/", "/pipelines/apps/odd", "/pipelines/apps/odd/objects"] {
        check(&browser.get(page).await.text);
        let mut live = browser.live(page).await;
        check(&event(&mut live).await);
    }
    let mut live = browser.live("/").await;
    check(&event(&mut live).await);
    world.set(snapshot(vec![odd("b")], vec![]));
    check(&event(&mut live).await);
}

/// Returns the page of a promotion with this change request.
async fn page_of_proposed(request: &Value) -> String {
    let status = json!({"phase": "Proposed", "times": {}, "changeRequest": request});
    let ready = |revision: &str| environment(revision, "Ready", "");
    let podinfo = pipeline("apps", "podinfo", [ready("6.2.0"), ready("6.2.0"), ready("6.1.8")]);
    let world = World::new(snapshot(vec![podinfo], vec![promotion("apps", "podinfo", "6.2.0", status)]));
    let admin = Browser::new(&world, true, "admin").await;
    admin.get("/promotions/apps/podinfo-prod-1").await.text
}

#[tokio::test]
async fn a_change_request_is_shown_with_the_state_of_the_status() {
    // The last state is from another version of Sluice.
    for state in ["open", "handed over", "waits in a queue"] {
        let request = json!({"number": 7, "url": "https://git.example.com/7", "state": state, "branch": "sluice/prod",
            "headCommit": "c"});
        let page = page_of_proposed(&request).await;
        assert!(page.contains(&format!("#7</a> {state}, branch ")), "{page}");
    }
}

#[tokio::test]
async fn the_checks_of_a_change_request_are_listed_with_their_pages() {
    let checks = json!({"commit": "c", "since": "2026-11-22T10:00:00Z", "failed": 1, "passed": 30, "items": [
        {"name": "ci/build", "result": "failed", "required": true, "url": "https://ci.example.com/7"},
        {"name": "lint", "result": "passed"}]});
    let request = json!({"number": 7, "url": "https://git.example.com/7", "state": "open", "branch": "b", "headCommit": "c",
        "checks": checks});
    let page = page_of_proposed(&request).await;
    for said in [
        "Checks of #7<span class=\"quieter\"> · 1 failed, 30 passed</span>",
        "<a href=\"https://ci.example.com/7\" rel=\"noreferrer\">ci/build</a>",
        " · required</span>",
        "<span class=\"wraps\">lint</span>",
        "and 29 more",
        "Last change <time datetime=\"2026-11-22T10:00:00Z\"",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
}

#[tokio::test]
async fn a_page_shows_what_a_promotion_waits_for_and_a_button_that_leads_to_a_confirmation() {
    let world = World::new(every_state());
    let admin = Browser::new(&world, true, "admin").await;
    let page = admin.get("/pipelines/apps/podinfo").await.text;
    assert!(page.contains("waits for approval"), "{page}");
    let button = "href=\"/promotions/apps/podinfo-prod-1/approve\"";
    assert!(page.contains(button), "{page}");
    let confirmation = admin.get("/promotions/apps/podinfo-prod-1/approve").await;
    for said in
        ["Approve 6.2.0 into prod", "6.1.8", "a change request to main (https://git.example.com/acme/fleet)"]
    {
        assert!(confirmation.text.contains(said), "{said}: {}", confirmation.text);
    }
    // A person who may not approve sees which right is missing.
    let viewer = Browser::new(&world, true, "viewer").await;
    let page = viewer.get("/pipelines/apps/podinfo").await.text;
    assert!(!page.contains(button));
    assert!(
        page.contains(
            "You may not approve it here: you do not have the right to patch promotions/podinfo-prod-1"
        ),
        "{page}"
    );
    let refused = viewer.get("/promotions/apps/podinfo-prod-1/approve").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // Without actions, the page shows the command instead of the button.
    let read_only = Browser::new(&world, false, "admin").await;
    let page = read_only.get("/pipelines/apps/podinfo").await.text;
    assert!(!page.contains(button) && page.contains("sluice approve podinfo-prod-1 -n apps"), "{page}");
    assert_eq!(read_only.get("/promotions/apps/podinfo-prod-1/approve").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_confirmation_shows_the_changes_of_the_delivery() {
    let world = World::new(every_state());
    let viewer = Browser::new(&world, true, "viewer").await;
    let admin = Browser::new(&world, true, "admin").await;
    let path = "/promotions/apps/podinfo-prod-1/change";
    assert!(viewer.get("/promotions/apps/podinfo-prod-1").await.text.contains(&format!("href=\"{path}\"")));
    let value = |line: u32, old: Option<&str>| PlannedValue {
        path: "apps/<prod>/release.yaml".into(),
        line,
        old: old.map(str::to_string),
        new: "6.2.0".into(),
    };
    let many = |n: u32| PlannedChange {
        values: (1..=n).map(|n| value(n, None)).collect(),
        ..PlannedChange::default()
    };
    for (planned, said) in [
        (
            Ok(Some(PlannedChange {
                values: vec![value(12, Some("6.1.8"))],
                commit: "0123456789abcdef".into(),
                ..many(0)
            })),
            &[
                "apps/&lt;prod&gt;/release.yaml",
                "line 12",
                "<del><bdi>6.1.8</bdi></del> → <ins><bdi>6.2.0</bdi></ins>",
                ">0123456789<",
            ][..],
        ),
        (Ok(Some(many(0))), &["Nothing changes: every value is set already"]),
        (Ok(Some(many(201))), &["another value", "line 200", "And 1 more values"]),
        (Ok(None), &["It changes no files"]),
        (Err("the host does not answer".into()), &["What it changes is not known: the host does not answer"]),
    ] {
        world.plan(planned.map(|change| change.map(Arc::new)));
        for page in [viewer.get(path).await, admin.get("/promotions/apps/podinfo-prod-1/approve").await] {
            assert_eq!(page.status, StatusCode::OK);
            for said in said {
                assert!(page.text.contains(said), "{said}: {}", page.text);
            }
        }
    }
    // A rejection delivers nothing. There is no page with changes for a promotion that has made no commit, or that the
    // person may not see.
    assert!(
        admin.get("/promotions/apps/podinfo-prod-1/reject").await.text.contains("What then does not change")
    );
    assert_eq!(admin.get("/promotions/evil/evil-prod-1/change").await.status, StatusCode::CONFLICT);
    let shop = Browser::new(&world, true, "shop").await;
    assert_eq!(shop.get(path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn requests_that_are_too_large_or_of_another_site_are_refused() {
    let admin = Browser::new(&World::new(every_state()), true, "admin").await;
    for page in ["/", "/promotions"] {
        let answer = admin.get(&format!("{page}?q={}", "a+".repeat(101))).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{page}");
        assert!(answer.text.contains("search for less"), "{}", answer.text);
    }
    let large = "x".repeat(16 << 10);
    assert_eq!(admin.post("/sign-in", &[("token", &large)]).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let other = admin.post_from("https://evil.example", "/sign-out", &[]).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);
    assert!(!other.headers.contains_key("set-cookie"));
}

#[tokio::test]
async fn an_action_uses_the_token_of_the_person_and_the_version_that_the_form_showed() {
    let world = World::new(every_state());
    let admin = Browser::new(&world, true, "admin").await;
    let path = "/promotions/apps/podinfo-prod-1/approve";
    let form = admin.get(path).await;
    let names = ["token", "seen"];
    let values = names.map(|name| form.field(name));
    let fields: Vec<(&str, &str)> = names.into_iter().zip(values.iter().map(String::as_str)).collect();

    // The action is refused from another site, in another session, without the token of the form, and for another
    // version of the promotion.
    assert_eq!(admin.post_from("https://evil.example", path, &fields).await.status, StatusCode::FORBIDDEN);
    let other = Browser::new(&world, true, "admin").await;
    assert_eq!(other.post(path, &fields).await.status, StatusCode::FORBIDDEN);
    assert_eq!(admin.post(path, &fields[1..]).await.status, StatusCode::FORBIDDEN);
    let earlier = values[1].replace("/3/", "/2/");
    for other in [earlier.as_str(), ""] {
        let changed = [fields[0], ("seen", other)];
        assert_eq!(admin.post(path, &changed).await.status, StatusCode::CONFLICT, "{other:?}");
    }
    assert!(world.changes().is_empty());

    let answer = admin.post(path, &fields).await;
    assert_eq!(
        (answer.status, answer.location()),
        (StatusCode::SEE_OTHER, "/promotions/apps/podinfo-prod-1")
    );
    let (by, change) = world.changes().pop().unwrap();
    let seen = SeenObject { uid: "promotion-uid".into(), generation: 3 };
    assert_eq!((by.as_str(), change.kind, change.seen), ("admin", ChangedKind::Promotion, seen));
    let approval = json!({"by": "admin", "revision": "6.2.0", "retries": 0, "at": null});
    assert_eq!(change.spec, json!({"approval": approval}));

    world.answer(Err(ChangeError::Refused("you may not approve: ask jane".into())));
    let answer = admin.post(path, &fields).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("You may not approve: ask jane"), "{}", answer.text);
}

#[tokio::test]
async fn a_rejection_needs_a_reason_and_a_pipeline_is_suspended() {
    let world = World::new(every_state());
    let admin = Browser::new(&world, true, "admin").await;
    let path = "/promotions/apps/podinfo-prod-1/reject";
    let form = admin.get(path).await;
    let (token, seen) = (form.field("token"), form.field("seen"));
    let without_reason = [("token", token.as_str()), ("seen", &seen)];
    assert_eq!(admin.post(path, &without_reason).await.status, StatusCode::BAD_REQUEST);
    let with_reason = [&without_reason[..], &[("reason", "error rate doubled")]].concat();
    assert_eq!(admin.post(path, &with_reason).await.status, StatusCode::SEE_OTHER);
    assert_eq!(world.changes()[0].1.spec["rejection"]["reason"], "error rate doubled");

    let form = admin.get("/pipelines/apps/podinfo/suspend").await;
    let fields = [("token", form.field("token")), ("seen", form.field("seen"))];
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(admin.post("/pipelines/apps/podinfo/suspend", &fields).await.status, StatusCode::SEE_OTHER);
    let change = world.changes().pop().unwrap().1;
    assert_eq!((change.kind, change.spec), (ChangedKind::Pipeline, json!({"suspend": true})));
    // There is no page for an object that does not exist, or for an action of another kind.
    for path in
        ["/pipelines/apps/podinfo/approve", "/promotions/apps/podinfo-prod-1/suspend", "/x/y/z/approve"]
    {
        assert_eq!(admin.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn a_live_update_contains_only_the_part_that_changed() {
    let ready = |revision: &str| environment(revision, "Ready", "");
    let podinfo = |prod: &str| pipeline("apps", "podinfo", [ready("6.2.0"), ready("6.2.0"), ready(prod)]);
    let mailer = || pipeline("shop", "mailer", [ready("1"), ready("1"), ready("1")]);
    let world = World::new(snapshot(vec![podinfo("6.1.8"), mailer()], vec![]));
    let admin = Browser::new(&world, true, "admin").await;
    let mut live = admin.live("/").await;
    assert!(event(&mut live).await.contains("event: main"), "the browser shows nothing yet");
    world.set(snapshot(vec![podinfo("6.2.0"), mailer()], vec![]));
    let changed = event(&mut live).await;
    assert!(changed.contains("event: part") && changed.contains("pipeline:apps/podinfo"), "{changed}");
    assert!(!changed.contains("mailer"), "{changed}");
    // A new row comes with the whole list.
    world.set(snapshot(
        vec![podinfo("6.2.0")],
        vec![promotion("apps", "podinfo", "6.2.0", json!({"phase": "Succeeded"}))],
    ));
    let changed = event(&mut live).await;
    assert!(changed.contains("event: main") && !changed.contains("mailer"), "{changed}");

    let shop = Browser::new(&world, true, "shop").await;
    let mut live = shop.live("/").await;
    assert!(
        !event(&mut live).await.contains("apps/podinfo"),
        "live updates show what the person may not see"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_cluster_is_shown_within_a_second_on_each_page_about_clusters() {
    let trace = "/trace?cluster=fleet/eu%26kind=HelmRelease%26namespace=apps%26name=podinfo";
    for path in ["/clusters", "/charts", "/images", trace, "/pipelines/apps/podinfo/triggers"] {
        let (mut index, world) = (fleet::index(), World::new(every_state()));
        let admin = Browser::over(index.fleet(), &world, true, "admin").await;
        let mut live = admin.live(path).await;
        assert!(event(&mut live).await.contains("event: main"), "{path}");
        let begun = tokio::time::Instant::now();
        // The targets of the pipeline are in the namespace podinfo of the hub.
        for (cluster, namespace) in [(ClusterKey::Local, "podinfo"), (fleet::remote("eu"), "apps")] {
            fleet::observe(&mut index, &cluster, &fleet::release(namespace, "podinfo", "6.8.0"));
        }
        index.apply(&fleet::remote("us"), ClusterEvent::Lost("it refuses the connection".into()));
        world.note_change();
        let changed = event(&mut live).await;
        assert!(changed.starts_with("event: "), "{path}: {changed}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{path}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn the_page_of_triggers_shows_only_what_the_person_may_see() {
    let index = podinfo_everywhere([("flux-system", "github".to_string())].into_iter());
    let world = begins_everywhere();
    let page = "/pipelines/apps/podinfo/triggers";
    let charts = "https://charts.example.com";
    for (token, sees_hub, sees_eu) in [("admin", true, true), ("tenant", false, false), ("eu", false, true)] {
        let text = Browser::over(index.fleet(), &world, true, token).await.get(page).await.text;
        assert_eq!(text.contains("Receiver flux-system/github"), sees_hub, "{token}: {text}");
        assert_eq!(text.contains(charts), sees_eu, "{token}: {text}");
        assert_eq!(text.contains("Not complete: of the objects on the hub"), !sees_hub, "{token}: {text}");
    }
}

#[tokio::test]
async fn a_tree_of_many_targets_folds_those_that_are_ready() {
    let target = |number: usize| json!({"name": format!("t{number}"), "namespace": format!("n{number}")});
    let status = |number: usize| {
        let health = if number == 7 { "Failed" } else { "Ready" };
        json!({"name": format!("t{number}"), "namespace": format!("n{number}"), "health": health,
            "ready": health == "Ready", "clusterAppRef": {"kind": "HelmRelease", "name": "podinfo"},
            "workloads": [
                {"kind": "HelmRelease", "name": "podinfo", "version": "1", "health": health},
                {"kind": "Deployment", "name": "web", "health": health, "images": ["ghcr.io/web:1"]}]})
    };
    let targets: Vec<_> = (0..300).map(status).collect();
    let prod = json!({"revision": "1", "targets": targets});
    let ready = || environment("1", "Ready", "");
    let mut many = pipeline("apps", "many", [ready(), ready(), prod]);
    let targets = json!((0..300).map(target).collect::<Vec<_>>());
    Arc::make_mut(&mut many.object).spec.environments[2].targets = serde_json::from_value(targets).unwrap();
    let world = World::new(snapshot(vec![many], vec![]));
    let text = Browser::new(&world, true, "admin").await.get("/pipelines/apps/many/objects").await.text;
    assert!(text.contains("299 of 300 targets ready"), "{text}");
    let prod = text.split("id=\"objects-prod\"").nth(1).unwrap();
    let open = "<details id=\"objects-of-prod/t7\" open>";
    assert_eq!(
        (prod.matches(open).count(), prod.matches("\" open>").count(), prod.matches("<details").count()),
        (1, 1, 300)
    );
    let web = "<a href=\"/trace?cluster=&amp;kind=HelmRelease&amp;namespace=n7&amp;name=podinfo\"";
    assert!(prod.contains(web) && prod.contains("ghcr.io/web<wbr><span class=\"tag\">:1</span>"), "{prod}");
}
