//! The pages with lists: the strip of a long pipeline in a row, and what a real Chromium finds in the lists of each world.

use serde_json::json;

use super::Browser;
use super::chromium::Chromium;
use super::environment_graph::with_environments;
use super::every_page::{broken_world, empty_world, hostile_world, huge_world};
use super::fleet::index;
use super::world::{World, environment, pipeline, snapshot};

/// A pipeline with so many environments in a line, of which the last does not run the new revision.
fn long(name: &str, count: usize) -> sluice_api::snapshot::StoredPipeline {
    let names: Vec<String> = (1..=count).map(|number| format!("pre-production-{number}")).collect();
    let revision = |at: usize| if at + 1 == count { "6.1.8" } else { "6.2.0" };
    let environments: Vec<(&str, &[&str], &str, &str)> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), &[][..], revision(at), "Ready")).collect();
    with_environments(name, &environments)
}

#[tokio::test]
async fn environments_of_a_long_pipeline_that_are_up_to_date_share_a_cell() {
    for (count, cells, folded) in
        [(3, 3, None), (6, 6, None), (12, 3, Some("10 more")), (100, 3, Some("98 more"))]
    {
        let admin =
            Browser::new(&World::new(snapshot(vec![long("long", count)], vec![])), true, "admin").await;
        let list = admin.get("/").await.text;
        assert_eq!(list.matches("class=\"cell").count(), cells, "{count}: {list}");
        assert_eq!(
            list.contains(&format!(">{}<", folded.unwrap_or("1 more"))),
            folded.is_some(),
            "{count}: {list}"
        );
        for shown in [">pre-production-1<", &format!(">pre-production-{count}<")] {
            assert!(list.contains(shown), "{shown}");
        }
        let whole = admin.get("/pipelines/apps/long").await.text;
        assert!(!whole.contains(" more<"), "{whole}");
    }
}

#[tokio::test]
async fn no_strip_of_a_list_is_cut_at_1280_pixels() {
    let pipelines = [3, 4, 5, 6, 7, 40].map(|count| long(&format!("of-{count}"), count));
    let world = World::new(snapshot(pipelines.into(), vec![]));
    let chromium = Chromium::of_admin(&world).await;
    assert_eq!(chromium.faults_of(&[("strips", "/")]).await, Vec::<String>::new());
    chromium.browser.look(sluice_testkit::Look { width: 1280, dark: false }).await.unwrap();
    chromium.open("/").await;
    let cut = "return [...document.querySelectorAll('.strip')].filter((s) => s.scrollWidth > s.clientWidth).map((s) => s.innerText)";
    assert_eq!(chromium.browser.run(cut).await.unwrap(), json!([]));
}

/// Chromium opens the lists of each world, with content that is broken, long or hostile.
#[tokio::test]
async fn the_lists_of_every_world_are_accessible_and_fit_in_every_look() {
    let lists = ["promotions", "clusters", "charts", "images"];
    for (name, (fleet, world)) in [
        ("empty", empty_world()),
        ("broken", broken_world()),
        ("huge", huge_world()),
        ("hostile", hostile_world()),
    ] {
        let chromium = Chromium::of_admin_with(fleet.fleet(), &World::new(world)).await;
        let pages: Vec<(String, String)> =
            lists.iter().map(|list| (format!("{name}-{list}"), format!("/{list}"))).collect();
        let pages: Vec<(&str, &str)> =
            pages.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
        let faults = chromium.faults_of(&pages).await;
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[tokio::test]
async fn the_clusters_of_a_matrix_stand_below_their_environments() {
    let ready = || environment("6.7.1", "Ready", "");
    let mut stored = pipeline("fleet", "podinfo", [ready(), ready(), ready()]);
    let on = |cluster: &str| json!([{"namespace": "apps", "clusterRef": {"kind": "GitopsCluster", "name": cluster}}]);
    let environments =
        json!([{"name": "staging", "targets": on("us")}, {"name": "prod", "targets": on("eu")}]);
    std::sync::Arc::make_mut(&mut stored.object).spec.environments =
        serde_json::from_value(environments).unwrap();
    let world = World::new(snapshot(vec![stored], vec![]));
    let admin = Browser::over(index().fleet(), &world, true, "admin").await;
    let head = admin.get("/charts").await.text;
    let head = head.split("<thead>").nth(1).unwrap().split("</thead>").next().unwrap().to_owned();
    let at = |text: &str| head.find(text).unwrap_or_else(|| panic!("{text}: {head}"));
    assert!(at(">staging<") < at(">prod<") && at(">fleet/us<") < at(">fleet/eu<"), "{head}");
    assert!(at(">fleet/eu<") < at(">fleet/asia-pacific<"), "{head}");
}
