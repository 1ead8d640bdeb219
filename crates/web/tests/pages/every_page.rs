//! Every page in the empty, the huge and the hostile world: the text of each, with equal lines counted. A name that became
//! a tag would be missing in the text.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_core::fleet::index::Index;

use crate::draft::text;
use crate::fleet::{flood, index, remote};
use crate::world::{World, environment, every_state, pipeline, promotion, snapshot};
use crate::{Browser, StatusCode};

/// The pages that every world has.
const LISTS: [&str; 7] =
    ["/", "/?group=application", "/promotions", "/clusters", "/charts", "/images", "/pipelines/new"];
/// The pages of a pipeline, after its address.
const OF_PIPELINE: [&str; 5] = ["", "/history", "/objects", "/triggers", "/edit"];

/// Returns the text of a page: each line once, with how often it is there. Numbers and runs of one letter are shortened.
fn outline(html: &str) -> String {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for line in text(html).lines().map(shortened) {
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

async fn check(name: &str, fleet: &Index, world: Snapshot, pages: impl Iterator<Item = String>) {
    let browser = Browser::over(fleet.fleet(), &World::new(world), true, "admin").await;
    let mut all = String::new();
    for page in pages {
        let answer = browser.get(&page).await;
        assert!(!answer.status.is_server_error(), "{page}: {}", answer.status);
        for bad in ["<script>alert", "<img", "href=\"javascript"] {
            assert!(!answer.text.contains(bad), "{page} contains {bad}");
        }
        let status =
            if answer.status == StatusCode::OK { String::new() } else { format!(" ({})", answer.status) };
        writeln!(all, "==== {}{status}\n{}", shortened(&page), outline(&answer.text)).unwrap();
    }
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, all);
    });
}

fn lists() -> impl Iterator<Item = String> {
    LISTS.into_iter().map(String::from)
}

fn of_pipeline(namespace: &str, name: &str) -> impl Iterator<Item = String> {
    OF_PIPELINE.into_iter().map(move |page| format!("/pipelines/{namespace}/{name}{page}"))
}

#[tokio::test]
async fn pages_of_the_empty_world() {
    check("empty", &Index::default(), snapshot(vec![], vec![]), lists()).await;
}

/// A pipeline with 300 targets in prod, of which one has failed.
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
    many
}

#[tokio::test]
async fn pages_of_the_huge_world() {
    let name = |number: usize| format!("{}{number:03}", "x".repeat(197));
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
    // The form has at most 16 environments with 128 targets each.
    let of_pipeline =
        of_pipeline("apps", &name(0)).filter(|page| !page.ends_with("/edit")).collect::<Vec<_>>();
    let edit = format!("/pipelines/apps/{}/edit", name(1));
    let pages = lists().chain(of_pipeline).chain([edit]).chain(of_promotion("apps", &name(0)));
    check("huge", &fleet, snapshot(pipelines, promotions), pages).await;
}

#[tokio::test]
async fn pages_of_the_hostile_world() {
    let pages = lists().chain(of_pipeline("evil", "evil")).chain(of_promotion("evil", "evil"));
    check("hostile", &index(), every_state(), pages).await;
}
