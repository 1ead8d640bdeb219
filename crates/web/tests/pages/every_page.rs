//! Every page in the empty, the broken, the huge and the hostile world: the elements of each with their texts, with equal lines
//! counted. A name that became a tag would be missing in a text. The fragments of the live updates are the same.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_core::fleet::index::Index;

use crate::draft::{main_of, proposed};
use crate::fleet::{flood, index, remote};
use crate::world::{World, environment, every_state, pipeline, promotion, snapshot};
use crate::{Answer, Browser, ChangeError, StatusCode, event};

/// The pages that every world has.
const LISTS: [&str; 11] = [
    "/",
    "/?group=application",
    "/?group=namespace",
    "/?group=health",
    "/?q=no-such&of=failed",
    "/promotions",
    "/clusters",
    "/charts",
    "/charts?cluster=fleet/asia",
    "/images",
    "/pipelines/new",
];
/// The pages of a pipeline, after its address.
const OF_PIPELINE: [&str; 6] =
    ["", "/history", "/history?environment=prod", "/objects", "/triggers", "/edit"];
/// The attributes that say what an element is.
const SHOWN: [&str; 9] =
    ["class", "href", "action", "method", "name", "role", "aria-label", "aria-current", "datetime"];

/// Returns the opening tags with what they are and the text that follows them, one line for each.
fn elements(main: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in main.split('<') {
        let (tag, text) = piece.split_once('>').unwrap_or(("/", piece));
        let line = match (tag.starts_with('/'), lines.last_mut()) {
            (true, Some(line)) => line,
            _ => {
                lines.push(element(tag));
                lines.last_mut().unwrap()
            }
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            line.push_str(&format!(" {text}"));
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Returns the name of an element with the attributes that say what it is.
fn element(tag: &str) -> String {
    let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
    let mut line = format!("<{name}");
    for shown in SHOWN {
        let start = format!(" {shown}=\"");
        if let Some((_, rest)) = format!(" {attributes}").split_once(&start) {
            line.push_str(&format!("{start}{}\"", rest.split('"').next().unwrap()));
        }
    }
    line + ">"
}

/// Returns the elements of a page: each line once, with how often it is there. Numbers and runs of one letter are shortened.
fn outline(html: &str) -> String {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for line in elements(main_of(html)).iter().map(|line| shortened(line)) {
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    let mut outline = String::new();
    for (line, count) in lines {
        let times = if count == 1 { String::new() } else { format!("{count} × ") };
        writeln!(outline, "{times}{line}").unwrap();
    }
    outline
}

fn shortened(line: &str) -> String {
    let letters: Vec<char> = line.chars().collect();
    let runs = letters.chunk_by(|a, b| a == b || a.is_ascii_digit() && b.is_ascii_digit());
    let run = |run: &[char]| match run {
        [digit, ..] if digit.is_ascii_digit() => "#".to_string(),
        [letter, rest @ ..] if rest.len() > 10 => format!("{letter}…{}", run.len()),
        run => run.iter().collect(),
    };
    runs.map(run).collect()
}

/// The pages that ask before a change, what would change, and where an object comes from.
fn of_promotion(namespace: &str, pipeline: &str) -> Vec<String> {
    let actions = ["approve", "reject", "retry", "change"];
    let promotion = format!("/promotions/{namespace}/{pipeline}-prod-1");
    let mut pages: Vec<String> = actions.map(|action| format!("{promotion}/{action}")).into();
    pages.extend(["suspend", "resume"].map(|action| format!("/pipelines/{namespace}/{pipeline}/{action}")));
    pages.push("/trace?cluster=fleet/eu&kind=HelmRelease&namespace=apps&name=podinfo".into());
    pages.insert(0, promotion);
    pages
}

async fn check(name: &str, (fleet, world): (Index, Snapshot), pages: impl Iterator<Item = String>) {
    let browser = Browser::over(fleet.fleet(), &World::new(world), true, "admin").await;
    let mut all = String::new();
    for page in pages {
        let answer = browser.get(&page).await;
        assert!(!answer.status.is_server_error(), "{page}: {}", answer.status);
        for bad in ["<script>alert", "<img", "href=\"javascript"] {
            assert!(!answer.text.contains(bad), "{page} contains {bad}");
        }
        check_live(&browser, &answer.text).await;
        let status =
            if answer.status == StatusCode::OK { String::new() } else { format!(" ({})", answer.status) };
        writeln!(all, "==== {}{status}\n{}", shortened(&page), outline(&answer.text)).unwrap();
    }
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, all);
    });
}

/// Checks that the fragments of the live updates are as the page, if the browser follows it.
async fn check_live(browser: &Browser, html: &str) {
    let Some(of) = html.split("data-live=\"").nth(1).and_then(|rest| rest.split('"').next()) else { return };
    let address = of.replace("&amp;", "&").replace('%', "%25").replace('&', "%26");
    let mut live = browser.live(&address).await;
    let mut sent = event(&mut live).await;
    while !sent.ends_with("\n\n") {
        sent.push_str(&event(&mut live).await);
    }
    let lines = sent.lines().filter_map(|line| line.strip_prefix("data:"));
    let fragment: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(sent.starts_with("event: main\n"), "{of}: {}", sent.chars().take(100).collect::<String>());
    assert_eq!(elements(&fragment.join("\n")), elements(main_of(html)), "{of}");
}

fn lists() -> impl Iterator<Item = String> {
    LISTS.into_iter().map(String::from)
}

fn of_pipeline(namespace: &str, name: &str) -> impl Iterator<Item = String> {
    OF_PIPELINE.into_iter().map(move |page| format!("/pipelines/{namespace}/{name}{page}"))
}

/// Nothing at all.
pub fn empty_world() -> (Index, Snapshot) {
    (Index::default(), snapshot(vec![], vec![]))
}

#[tokio::test]
async fn pages_of_the_empty_world() {
    check("empty", empty_world(), lists()).await;
}

/// A pipeline with a target that crashes and one whose cluster is away, whose promotion finds no marker; one that Sluice has not
/// looked at; one whose strategy is wrong; and clusters that are lost or only partly readable.
pub fn broken_world() -> (Index, Snapshot) {
    let ready = || environment("6.2.0", "Ready", "");
    let crash = environment("6.2.0", "Failed", "Deployment podinfo: CrashLoopBackOff, 3 of 5 pods");
    let away = environment("6.1.8", "Unknown", "cluster fleet/asia: it refuses the connection: start it");
    let failing = json!({"phase": "Promoting", "reason": "NoMarker", "attempts": 4,
        "nextAttempt": "2026-11-22T10:09:00Z",
        "times": {"Pending": "2026-11-22T10:00:00Z", "Promoting": "2026-11-22T10:00:05Z"},
        "message": "no marker of apps:broken:prod in clusters/prod; add one to the file with the version"});
    let failed = json!({"phase": "Failed", "reason": "Unhealthy", "message": "not healthy in time: prod: Helm upgrade failed",
        "times": {"Delivered": "2026-11-22T09:00:00Z", "Failed": "2026-11-22T09:30:00Z"}});
    let mut unread = pipeline("apps", "unread", [ready(), ready(), ready()]);
    unread.status = None;
    let mut wrong = pipeline("apps", "wrong", [ready(), ready(), ready()]);
    let condition = json!({"type": "Ready", "status": "False", "reason": "InvalidSpec", "lastTransitionTime": "2026-11-22T09:00:00Z",
        "message": "spec.promotion.strategy: write one of pull-request, commit, notification and webhook"});
    let status = json!({"observedGeneration": 1, "environments": {}, "conditions": [condition]});
    wrong.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    let pipelines = vec![pipeline("apps", "broken", [ready(), crash, away]), unread, wrong];
    let promotions =
        vec![promotion("apps", "broken", "6.2.0", failing), promotion("apps", "wrong", "6.2.0", failed)];
    (index(), snapshot(pipelines, promotions))
}

#[tokio::test]
async fn pages_of_the_broken_world() {
    let named = ["broken", "unread", "wrong"].into_iter().flat_map(|name| of_pipeline("apps", name));
    let told = ["broken", "wrong"].into_iter().flat_map(|name| of_promotion("apps", name));
    check("broken", broken_world(), lists().chain(named).chain(told)).await;
}

/// A pipeline with 300 targets in prod, of which one has failed. Its status is summarized.
fn with_many_targets(name: &str) -> StoredPipeline {
    let target = |number: usize| json!({"name": format!("t{number}"), "namespace": format!("n{number}")});
    let status = |number: usize| {
        let health = if number == 7 { "Failed" } else { "Ready" };
        json!({"name": format!("t{number}"), "namespace": format!("n{number}"), "health": health, "revision": "1",
            "ready": health == "Ready", "clusterAppRef": {"kind": "HelmRelease", "name": "podinfo"},
            "workloads": [{"kind": "HelmRelease", "name": "podinfo", "version": "1", "health": health}]})
    };
    let statuses: Vec<Value> = (0..300).map(status).collect();
    let ready = || environment("1", "Ready", "");
    let mut many = pipeline("apps", name, [ready(), ready(), json!({"revision": "1", "targets": statuses})]);
    let targets: Vec<Value> = (0..300).map(target).collect();
    let environments = &mut Arc::make_mut(&mut many.object).spec.environments;
    environments[2].targets = serde_json::from_value(json!(targets)).unwrap();
    let mut status: Value = serde_json::from_str(many.status.unwrap().get()).unwrap();
    let summarized = json!({"type": "Summarized", "status": "True", "reason": "TooLarge", "lastTransitionTime": "2026-11-22T09:00:00Z",
        "message": "the status of 302 targets is too large for one object: left out are the ends of long messages; split the pipeline"});
    status["conditions"].as_array_mut().unwrap().push(summarized);
    many.status = Some(serde_json::value::to_raw_value(&status).unwrap().into());
    many
}

/// The name of a pipeline of the huge world.
fn huge_name(number: usize) -> String {
    format!("{}{number:03}", "x".repeat(197))
}

/// 1,000 pipelines and 100 clusters with names of 200 characters.
pub fn huge_world() -> (Index, Snapshot) {
    let name = huge_name;
    let waits = json!({"phase": "Pending", "message": "waits for approval", "times": {}});
    let many = (1..1000).map(|number| {
        pipeline("apps", &name(number), [(); 3].map(|()| environment(&"1".repeat(200), "Ready", "")))
    });
    let pipelines = [with_many_targets(&name(0))].into_iter().chain(many).collect();
    let promotions = (0..1000).map(|number| promotion("apps", &name(number), "2", waits.clone())).collect();
    let mut fleet = index();
    flood(&mut fleet, "eu", 2000);
    for number in 0..100 {
        let objects = crate::fleet::release("apps", &"y".repeat(200), "6.7.1");
        crate::fleet::observe(&mut fleet, &remote(&format!("{}{number:03}", "z".repeat(197))), &objects);
    }
    (fleet, snapshot(pipelines, promotions))
}

#[tokio::test]
async fn pages_of_the_huge_world() {
    // The form has at most 16 environments with 128 targets each.
    let of_pipeline =
        of_pipeline("apps", &huge_name(0)).filter(|page| !page.ends_with("/edit")).collect::<Vec<_>>();
    let edit = format!("/pipelines/apps/{}/edit", huge_name(1));
    let pages = lists().chain(of_pipeline).chain([edit]).chain(of_promotion("apps", &huge_name(0)));
    check("huge", huge_world(), pages).await;
}

/// Names that are HTML.
pub fn hostile_world() -> (Index, Snapshot) {
    let mut fleet = index();
    let evil = "<script>alert(5)</script>\"'><img src=x onerror=alert(6)>";
    crate::fleet::observe(&mut fleet, &remote(evil), &crate::fleet::release("apps", evil, evil));
    (fleet, every_state())
}

#[tokio::test]
async fn pages_of_the_hostile_world() {
    let pages = lists().chain(of_pipeline("evil", "evil")).chain(of_promotion("evil", "evil"));
    check("hostile", hostile_world(), pages).await;
}

/// Pages that answer a form have no address of their own.
#[tokio::test]
async fn pages_of_the_sign_in_and_of_a_proposal() {
    let world = World::new(every_state());
    let stranger = Browser::over(index().fleet(), &world, true, "").await;
    let admin = Browser::over(index().fleet(), &world, true, "admin").await;
    let (form, path) = ("/pipelines/new", ("path", "apps/podinfo.yaml"));
    let mut answers = vec![
        ("sign-in", stranger.get("/sign-in").await),
        ("sign-in that leads back", stranger.get("/sign-in?to=/charts").await),
        ("sign-in after a sign-out", stranger.get("/sign-in?out=true").await),
        ("sign-in with a wrong token", stranger.post("/sign-in", &[("token", "stolen")]).await),
        ("sign-in while the hub is down", stranger.post("/sign-in", &[("token", "down")]).await),
        ("proposal without a path", proposed(&admin, form, &[]).await),
        ("proposal with its change", proposed(&admin, form, &[path]).await),
        ("proposal that is made", proposed(&admin, form, &[path, ("confirmed", "seen")]).await),
        (
            "proposal of a change that nobody saw",
            proposed(&admin, form, &[path, ("confirmed", "other")]).await,
        ),
    ];
    world.answer(Err(ChangeError::Refused("pipelines is forbidden".into())));
    answers.push(("proposal that the hub refuses", proposed(&admin, form, &[path]).await));
    let page = |(name, answer): &(&str, Answer)| {
        format!("==== {name} ({})\n{}", answer.status, outline(&answer.text))
    };
    let all: Vec<String> = answers.iter().map(page).collect();
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("sign-in-and-proposal", all.join("\n"));
    });
}
