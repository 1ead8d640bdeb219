//! The list of pipelines in groups: as HTML, as live updates, and in a real Chromium.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_api::snapshot::StoredPipeline;
use tower::ServiceExt;

use super::chromium::Chromium;
use super::world::{World, environment, pipeline, promotion, snapshot};
use super::{Browser, event};

fn ready(revision: &str) -> Value {
    environment(revision, "Ready", "")
}

/// A pipeline of an application, whose staging has this health.
fn of(namespace: &str, name: &str, application: Option<(&str, &str)>, health: &str) -> StoredPipeline {
    let error = if health == "Failed" { "Deployment: CrashLoopBackOff, 3 of 5 pods" } else { "" };
    let staging = environment("6.2.0", health, error);
    let mut stored = pipeline(namespace, name, [ready("6.2.0"), staging, ready("6.2.0")]);
    let spec = &mut Arc::make_mut(&mut stored.object).spec;
    spec.app_ref = application.map(|(kind, name)| {
        let group = "helm.toolkit.fluxcd.io/v2";
        serde_json::from_value(json!({"apiVersion": group, "kind": kind, "name": name})).unwrap()
    });
    stored
}

fn few() -> Vec<StoredPipeline> {
    let (podinfo, checkout) = (Some(("HelmRelease", "podinfo")), Some(("Kustomization", "checkout")));
    vec![
        of("shop", "checkout", checkout, "Failed"),
        of("shop", "podinfo", podinfo, "Ready"),
        of("apps", "podinfo", podinfo, "Ready"),
        of("apps", "by-labels", None, "Unknown"),
        of("bank", "ledger", Some(("Kustomization", "podinfo")), "Ready"),
    ]
}

fn waits() -> Value {
    json!({"phase": "Pending", "message": "waits for approval", "times": {},
        "gates": [{"name": "Approval", "open": false, "message": "waits for approval"}]})
}

fn world() -> World {
    World::new(snapshot(few(), vec![promotion("apps", "podinfo", "6.3.0", waits())]))
}

/// The headings of a page, in order, each in one line.
fn headings(html: &str) -> Vec<String> {
    let parts = html.split("<summary").skip(1).map(|part| part.split("</summary>").next().unwrap());
    let words = |part: &str| -> String {
        let texts = part.split('>').skip(1).filter_map(|text| text.split('<').next());
        texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    parts.map(words).collect()
}

#[tokio::test]
async fn pipelines_are_grouped_by_what_the_address_names() {
    let admin = Browser::new(&world(), true, "admin").await;
    for (query, expected) in [
        ("", &[][..]),
        ("group=cluster", &[]),
        (
            "group=namespace",
            &[
                "apps 2 pipelines 1 Unknown 1 needs a person",
                "bank 1 pipeline Ready",
                "shop 2 pipelines 1 Failed 1 needs a person",
            ],
        ),
        (
            "group=application",
            &[
                "checkout · Kustomization 1 pipeline Failed 1 needs a person",
                "podinfo · HelmRelease 2 pipelines Ready 1 needs a person",
                "podinfo · Kustomization 1 pipeline Ready",
                "Chosen by labels 1 pipeline Unknown",
            ],
        ),
        (
            "group=health",
            &[
                "Failed 1 pipeline 1 needs a person",
                "Unknown 1 pipeline",
                "Ready 3 pipelines 1 needs a person",
            ],
        ),
        ("q=podinfo&of=person&group=namespace", &["apps 1 pipeline Ready 1 needs a person"]),
        ("q=podinfo&group=health", &["Ready 3 pipelines 1 needs a person"]),
    ] {
        let page = admin.get(&format!("/?{query}")).await.text;
        assert_eq!(headings(&page), expected, "{query}");
        let rows = if query.starts_with("q=podinfo&of") {
            1
        } else if query.starts_with("q=") {
            3
        } else {
            5
        };
        assert_eq!(page.matches("class=\"row\"").count(), rows, "{query}");
        assert_eq!(
            page.matches("<details class=\"fold\" open").count(),
            expected.len(),
            "{query}: all are open"
        );
    }
}

#[tokio::test]
async fn filters_and_grouping_are_in_each_address() {
    let admin = Browser::new(&world(), true, "admin").await;
    let page = admin.get("/?q=no%20such&of=person&group=health").await.text;
    for said in [
        "href=\"/?q=no%20such&amp;group=health\"",
        "href=\"/?q=no%20such&amp;of=failed&amp;group=health\"",
        "href=\"/?q=no%20such&amp;of=person&amp;group=namespace\"",
        "href=\"/?q=no%20such&amp;of=person\"",
        "<input type=\"hidden\" name=\"group\" value=\"health\">",
        "<input type=\"hidden\" name=\"of\" value=\"person\">",
        "No pipeline matches. <a href=\"/?group=health\">",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let page = admin.get("/?group=health").await.text;
    assert!(page.contains("5 of 5 pipelines in 3 groups"), "{page}");
    assert!(page.contains("<a href=\"/\">none</a>"), "{page}");
}

#[tokio::test]
async fn a_live_update_of_a_group_is_its_heading_and_the_row_that_changed() {
    let world = world();
    let admin = Browser::new(&world, true, "admin").await;
    let mut by_namespace = admin.live("/?group=namespace").await;
    let mut by_health = admin.live("/?group=health").await;
    for live in [&mut by_namespace, &mut by_health] {
        assert!(event(live).await.contains("event: main"));
    }
    let mut changed = few();
    changed[4] = of("bank", "ledger", Some(("Kustomization", "podinfo")), "Progressing");
    world.set(snapshot(changed, vec![promotion("apps", "podinfo", "6.3.0", waits())]));
    let mut parts = [event(&mut by_namespace).await, event(&mut by_namespace).await];
    parts.sort();
    assert!(parts.iter().all(|part| part.starts_with("event: part")), "{parts:?}");
    assert!(parts.iter().any(|part| part.contains("<summary id=\"group:namespace::bank\">")), "{parts:?}");
    assert!(parts.iter().any(|part| part.contains("id=\"pipeline:bank/ledger\"")), "{parts:?}");
    // The row is in another group now. Rows that have not changed are not sent again.
    let moved = event(&mut by_health).await;
    assert!(
        moved.contains("event: main") && moved.contains("<div class=\"row\" id=\"pipeline:bank/ledger\">"),
        "{moved}"
    );
    assert!(moved.contains("<div id=\"pipeline:apps/podinfo\" data-kept></div>"), "{moved}");
    assert!(!moved.contains("/pipelines/apps/podinfo\""), "{moved}");
}

#[tokio::test]
async fn a_row_that_goes_to_another_group_does_not_send_the_other_thousand_again() {
    let world = World::new(snapshot(many(1000), vec![]));
    let admin = Browser::new(&world, true, "admin").await;
    let mut live = admin.live("/?group=health").await;
    let whole = event(&mut live).await.len();
    world.set(snapshot(many_with_third_failed(1000), vec![]));
    let moved = event(&mut live).await.len();
    assert!(moved < whole / 10, "{moved} bytes of {whole}");
}

/// Pipelines of 40 namespaces, of which every fiftieth has failed, each with an application of its own.
fn many(count: usize) -> Vec<StoredPipeline> {
    let one = |n: usize| {
        let name = format!("application-{n:04}");
        let health = if n % 50 == 7 { "Failed" } else { "Ready" };
        let error = if health == "Failed" { "Deployment: CrashLoopBackOff, 3 of 5 pods" } else { "" };
        let staging = environment("6.2.0", health, error);
        let mut stored =
            pipeline(&format!("team-{:02}", n % 40), &name, [ready("6.2.0"), staging, ready("6.1.8")]);
        if let Some(app) = &mut Arc::make_mut(&mut stored.object).spec.app_ref {
            app.name = name;
        }
        stored
    };
    (0..count).map(one).collect()
}

fn many_with_third_failed(count: usize) -> Vec<StoredPipeline> {
    let mut stored = many(count);
    let name = "application-0003";
    stored[3] = of("team-03", name, Some(("HelmRelease", name)), "Failed");
    stored
}

#[tokio::test]
async fn a_page_with_a_thousand_pipelines_is_small_in_each_grouping() {
    let world = World::new(snapshot(many(1000), vec![]));
    let admin = Browser::new(&world, true, "admin").await;
    for (path, folds) in
        [("/", 0), ("/?group=namespace", 40), ("/?group=application", 1000), ("/?group=health", 2)]
    {
        let whole = admin.get(path).await;
        assert_eq!(whole.text.matches("class=\"row\"").count(), 1000);
        assert_eq!(whole.text.matches("<details class=\"fold\"").count(), folds, "{path}");
        let began = Instant::now();
        let request = Request::get(path).header("cookie", &admin.cookie).header("accept-encoding", "gzip");
        let answer = admin.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let (length, took) = (whole.text.len(), began.elapsed());
        eprintln!("1,000 pipelines at {path}: {length} bytes, {} compressed, {took:?}", bytes.len());
        assert!(bytes.len() <= 60_000, "{path}: {} bytes", bytes.len());
    }
}

#[tokio::test]
async fn a_long_list_folds_the_groups_in_which_everything_is_fine() {
    let world = World::new(snapshot(many(60), vec![]));
    let admin = Browser::new(&world, true, "admin").await;
    let page = admin.get("/?group=health").await.text;
    assert_eq!(headings(&page), ["Failed 2 pipelines 2 need a person", "Ready 58 pipelines"]);
    assert_eq!(page.matches("<details class=\"fold\" open").count(), 1, "{page}");
    // What a search has found is not hidden.
    let page = admin.get("/?q=team-01&group=namespace").await.text;
    assert_eq!(page.matches("<details class=\"fold\" open").count(), 1, "{page}");
}

#[tokio::test]
async fn groups_are_used_with_the_keyboard_and_fit_in_every_look() {
    let world =
        World::new(snapshot(many(60), vec![promotion("team-05", "application-0005", "6.3.0", waits())]));
    let chromium = Chromium::of_admin(&world).await;
    let browser = &chromium.browser;
    chromium.open("/?group=health").await;
    let at = "return document.querySelector('.row.at')?.id ?? document.activeElement.textContent";
    for expected in ["pipeline:team-07/application-0007", "pipeline:team-17/application-0057"] {
        browser.press("j").await.unwrap();
        assert_eq!(browser.run(at).await.unwrap(), expected);
    }
    // The rows of a folded group are left out, until somebody opens it.
    let open = "return [...document.querySelectorAll('details.fold')].map((fold) => fold.open)";
    assert_eq!(browser.run(open).await.unwrap(), json!([true, false]));
    browser.press("j").await.unwrap();
    assert_eq!(browser.run(at).await.unwrap(), "pipeline:team-17/application-0057");
    browser.run("document.querySelectorAll('details.fold summary')[1].focus()").await.unwrap();
    browser.press("\u{e007}").await.unwrap();
    assert_eq!(browser.run(open).await.unwrap(), json!([true, true]));
    // A fold stays as it is when the list changes.
    browser.run("document.querySelectorAll('details.fold summary')[0].click()").await.unwrap();
    world.set(snapshot(many(61), vec![]));
    browser.until_text("61 of 61 pipelines in 2 groups").await.unwrap();
    assert_eq!(browser.run(open).await.unwrap(), json!([false, true]));
    // And when the person comes back, unless the page shows what was found.
    chromium.open("/?group=health").await;
    assert_eq!(browser.run(open).await.unwrap(), json!([false, true]));
    chromium.open("/?group=health&q=team-20").await;
    assert_eq!(browser.run(open).await.unwrap(), json!([true]));
    chromium.open("/?group=health").await;
    // The typed filter keeps the grouping.
    browser.write("main input[type=search]", "team-20").await.unwrap();
    browser.until_text("2 of 61 pipelines in 1 group").await.unwrap();
    assert!(browser.address().await.unwrap().ends_with("/?q=team-20&group=health"));
    world.set(snapshot(many(60), vec![promotion("team-05", "application-0005", "6.3.0", waits())]));
    let pages = [
        ("list-by-namespace", "/?group=namespace"),
        ("list-by-application", "/?group=application&q=team-05"),
        ("list-by-health", "/?group=health"),
    ];
    let faults = chromium.faults_of(&pages).await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn a_list_that_was_followed_live_is_as_one_that_is_loaded_again() {
    let world = World::new(snapshot(many(60), vec![]));
    let chromium = Chromium::of_admin(&world).await;
    let rows =
        "return [...document.querySelectorAll('main [id]')].map((part) => part.id + ' ' + part.textContent)";
    for path in ["/?group=health", "/"] {
        world.set(snapshot(many(60), vec![]));
        chromium.open(path).await;
        for (stored, shown) in [
            (many_with_third_failed(60), "Needs a person 3"),
            (many_with_third_failed(61), "61 of 61 pipelines"),
            (many(59), "59 of 59 pipelines"),
        ] {
            world.set(snapshot(stored, vec![]));
            chromium.browser.until_text(shown).await.unwrap();
            let followed = chromium.browser.run(rows).await.unwrap();
            chromium.open(path).await;
            assert_eq!(followed, chromium.browser.run(rows).await.unwrap(), "{path}: {shown}");
        }
    }
}
