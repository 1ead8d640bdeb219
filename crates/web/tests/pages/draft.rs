//! The form for a Pipeline: who gets it, what it offers and to whom, and how it shows what is empty, wrong, huge and hostile.

use std::fmt::Write;
use std::time::Instant;

use axum::http::StatusCode;
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::{ClusterEvent, ClusterKey};
use sluice_core::value_check::is_unsafe;

use super::fleet;
use sluice_web::ChangeError;

use super::world::{World, every_state};
use super::{Answer, Browser};

pub const NEW: &str = "/pipelines/new";

/// A browser on a hub with a fleet.
pub async fn browser(token: &str) -> Browser {
    Browser::over(fleet::index().fleet(), &World::new(every_state()), false, token).await
}

/// Sends the form with these fields besides its token.
pub async fn sent(browser: &Browser, path: &str, fields: &[(&str, &str)]) -> Answer {
    let token = browser.get("/pipelines/new").await.field("token");
    browser.post(path, &[&[("token", token.as_str())], fields].concat()).await
}

/// What makes a valid pipeline.
const VALID: [(&str, &str); 15] = [
    ("namespace", "shop"),
    ("name", "podinfo"),
    ("kind", "HelmRelease"),
    ("app", "podinfo"),
    ("strategy", "pull-request"),
    ("forge", "gitea"),
    ("url", "https://git.example.com/team/fleet"),
    ("secret", "fleet-forge"),
    ("e0.name", "dev"),
    ("e0.t0.cluster", "fleet/eu"),
    ("e0.t0.namespace", "apps"),
    ("e1.name", "prod"),
    ("e1.approval", "yes"),
    ("e1.t0.namespace", "podinfo"),
    ("do", "check"),
];

/// The same fields with some replaced or added.
pub fn with<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = VALID.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    kept.chain(changes.iter().copied()).collect()
}

/// What is inside of `main`.
pub fn main_of(html: &str) -> &str {
    html.split("<main id=\"main\">").nth(1).unwrap().split("</main>").next().unwrap()
}

/// The text of the page without its tags, one line for each text.
pub fn text(html: &str) -> String {
    let mut text = String::new();
    let mut rest = main_of(html);
    while let Some((before, after)) = rest.split_once('<') {
        let before = before.trim_matches([' ', '\n']);
        if !before.is_empty() {
            writeln!(text, "{before}").unwrap();
        }
        rest = after.split_once('>').map_or("", |(_, rest)| rest);
    }
    text
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a page")]
async fn an_empty_form_asks_and_does_not_complain() {
    let page = browser("admin").await.get(NEW).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(!page.text.contains("aria-invalid") && !page.text.contains("Is required"), "{}", page.text);
    insta::assert_snapshot!(text(&page.text), @r#"
    Pipelines
    New pipeline
    Check
    First set-up
    Start from an application that runs
    Sluice copies its manifest for each environment, with the marker that promotions set. Paste the manifest here; or name an application on the cluster with Sluice below, and start from it there.
    Manifest of a HelmRelease or Kustomization
    The output of kubectl get helmrelease podinfo -n podinfo -o yaml. Its values are copied as they are: paste no passwords
    Start from this manifest
    Application
    Namespace of the pipeline
    On the cluster with Sluice, for example apps
    Name of the pipeline
    For example podinfo
    What Flux applies
    HelmRelease
    Kustomization
    Chosen by labels
    Its name, the same in every environment
    For example podinfo
    Environment 1: dev
    Name
    For example prod
    Cluster
    Empty for the cluster with Sluice
    Namespace
    Add a target
    Add an environment
    How a revision gets into the next environment
    Sluice will
    Open a change request
    Commit to the branch
    Send a notification
    Call a webhook
    Only show the environments
    Forge
    Choose
    GitHub
    GitLab
    Gitea
    Forgejo
    Bitbucket Cloud
    Bitbucket Data Center
    Azure DevOps
    Address
    As for git clone, for example https://git.example.com/team/fleet
    Branch
    Empty for main
    Secret with the credentials
    In the namespace of the pipeline. Write its name, not its content
    How many targets must run a revision healthily first
    For example 2 or 100%; empty for 1
    Check
    Download the YAML
    Still empty: 7 fields.
    Environments
    dev
    hub /
    YAML
    apiVersion: pipelines.weave.works/v1alpha1
    kind: Pipeline
    metadata: {}
    spec:
      appRef:
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
      environments:
      - name: dev
        targets:
        - {}
      promotion:
        strategy:
          pull-request: {}
    Sluice writes nothing to the cluster. These pages are read-only, so they cannot propose the file in git either. Commit this file to the repository that Flux applies to the cluster with Sluice, next to the other objects of namespace
    of the pipeline
    ; or apply it with kubectl.
    "#);
}

#[tokio::test]
async fn what_is_missing_and_wrong_is_next_to_its_field() {
    let admin = browser("admin").await;
    let wrong = [
        ("namespace", ""),
        ("name", "my app"),
        ("app", ""),
        ("url", "fleet"),
        ("ready", "many"),
        ("e1.name", "dev"),
        ("e1.after", "qa"),
        ("e0.t0.namespace", "Apps"),
    ];
    let page = sent(&admin, NEW, &with(&wrong)).await;
    assert_eq!(page.status, StatusCode::OK);
    for (field, why) in [
        ("namespace", "Is required"),
        ("name", "&quot;my app&quot; is no name"),
        ("app", "Is required"),
        ("url", "Write https://host/owner"),
        ("ready", "MinReadyTargets is a number"),
        ("e0.t0.namespace", "A namespace's name is made of"),
    ] {
        let below = page.text.split(&format!("id=\"{field}-why\">")).nth(1).unwrap();
        assert!(below.starts_with(&format!("<p class=\"wrong\">{why}")), "{field}: {below}");
        assert_eq!(page.text.matches(why).count(), if why == "Is required" { 2 } else { 1 }, "{why}");
    }
    // What is wrong with no field is listed with its path.
    for why in ["two environments have the same name", "after may only name earlier environments"] {
        assert!(
            page.text.contains(&format!("<span class=\"mono\">spec.environments</span>: {why}")),
            "{why}"
        );
    }
    // While a person types, fields that are still empty are no errors.
    let typing = sent(&admin, NEW, &with(&[("namespace", ""), ("do", "look")])).await;
    assert!(
        !typing.text.contains("Is required") && typing.text.contains("Still empty: 1 field."),
        "{}",
        typing.text
    );
}

#[tokio::test]
async fn a_valid_form_previews_and_downloads_the_pipeline() {
    let admin = browser("admin").await;
    let page = sent(&admin, NEW, &VALID).await;
    assert!(page.text.contains("Valid: an API server accepts this pipeline"), "{}", page.text);
    assert!(page.text.contains("id=\"env-prod\""), "no graph: {}", page.text);
    let file = sent(&admin, NEW, &with(&[("do", "download")])).await;
    assert_eq!(
        (file.status, file.headers["content-type"].to_str().unwrap()),
        (StatusCode::OK, "application/yaml")
    );
    assert_eq!(file.headers["content-disposition"], "attachment; filename=\"podinfo.yaml\"");
    assert_eq!(file.headers["cache-control"], "no-store");
    assert!(page.text.contains(&file.text), "the file is not what the page shows: {}", file.text);
    // A file that an API server refuses is not sent.
    let refused = sent(&admin, NEW, &with(&[("do", "download"), ("name", "my app")])).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("is no name"));
}

#[tokio::test]
async fn buttons_work_without_the_script() {
    let admin = browser("admin").await;
    for (step, there, gone) in [
        ("add-environment", "name=\"e2.name\" value=\"staging\"", "name=\"e3.name\""),
        ("add-target 1", "name=\"e1.t1.namespace\"", "name=\"e1.t2.namespace\""),
        ("remove-environment 0", "name=\"e0.name\" value=\"prod\"", "name=\"e1.name\""),
        ("add-place apps fleet/us", "name=\"e2.t0.cluster\" value=\"fleet/us\"", "name=\"e3.name\""),
    ] {
        let page = sent(&admin, NEW, &with(&[("do", step)])).await.text;
        assert!(page.contains(there) && !page.contains(gone), "{step}: {page}");
    }
    assert!(
        sent(&admin, NEW, &with(&[("do", "add-environment")]))
            .await
            .text
            .contains("name=\"e1.approval\" value=\"yes\" checked")
    );
}

#[tokio::test]
async fn only_what_the_person_may_see_is_offered() {
    let fields = with(&[("app", "podinfo"), ("e1.t0.cluster", "fleet/us")]);
    let page = sent(&browser("admin").await, NEW, &fields).await.text;
    for offered in [
        "<datalist id=\"clusters\"><option value=\"fleet/asia\"></option>",
        "<datalist id=\"apps\"><option value=\"podinfo\">",
        "<option value=\"apps\"></option>",
        "fleet/asia-pacific / apps",
        "value=\"add-place apps fleet/asia-pacific\"",
        "runs <span class=\"mono\">6.7.1</span>",
        "<datalist id=\"homes\"><option value=\"apps\"></option>",
    ] {
        assert!(page.contains(offered), "{offered}: {page}");
    }
    // The namespace of a cluster on which something runs is no hint for those who may not see the cluster.
    for token in ["shop", "nobody"] {
        let page = sent(&browser(token).await, NEW, &fields).await.text;
        for hidden in ["asia", "6.7.1", "6.6.0", "<option value=\"podinfo\"", "<option value=\"apps\""] {
            assert!(!page.contains(hidden), "{token} {hidden}: {page}");
        }
        assert!(page.contains("You see no HelmRelease podinfo there now"), "{page}");
    }
    let own = with(&[("app", "shop"), ("e0.t0.cluster", ""), ("e0.t0.namespace", "")]);
    let page = sent(&browser("shop").await, NEW, &own).await.text;
    assert!(page.contains("value=\"add-place shop \"") && page.contains("<option value=\"shop\">"), "{page}");
    assert!(!sent(&browser("nobody").await, NEW, &own).await.text.contains("add-place"));
}

#[tokio::test]
async fn a_cluster_is_known_by_any_of_its_names_and_named_if_there_is_none() {
    let admin = browser("admin").await;
    // The Pipeline is in the namespace of the cluster, which may be entered without it.
    for cluster in ["fleet/asia-pacific", "asia-pacific"] {
        let fields = with(&[("namespace", "fleet"), ("e0.t0.cluster", cluster)]);
        let page = sent(&admin, NEW, &fields).await.text;
        assert!(page.contains("runs <span class=\"mono\">6.7.1</span>"), "{cluster}: {page}");
        assert!(!page.contains("value=\"add-place apps asia-pacific\""), "it is taken: {page}");
        assert!(page.contains("Valid: an API server accepts this pipeline."), "{page}");
    }
    let page = sent(&admin, NEW, &with(&[("e0.t0.cluster", "fleet/mars")])).await.text;
    let why = "No such cluster: there is no GitopsCluster fleet/mars, or you may not get it.";
    assert_eq!(page.matches(why).count(), 2, "at the field and in the preview: {page}");
    assert!(!page.contains("Valid:"), "{page}");
}

#[tokio::test]
async fn of_the_hub_only_what_the_person_may_see_is_offered() {
    let mut index = fleet::index();
    for (key, fact) in fleet::release("bank", "ledger", "9.9.9") {
        index.apply(&ClusterKey::Local, ClusterEvent::Applied(key, fact));
    }
    let world = World::new(every_state());
    let fields = |app| with(&[("app", app), ("e0.t0.cluster", ""), ("e0.t0.namespace", "")]);
    for (token, sees) in [("admin", true), ("shop", false)] {
        let browser = Browser::over(index.fleet(), &world, false, token).await;
        let page =
            sent(&browser, NEW, &fields("")).await.text + &sent(&browser, NEW, &fields("ledger")).await.text;
        assert!(page.contains("<option value=\"shop\">"), "{token}: {page}");
        for other in ["<option value=\"bank\">", "<option value=\"ledger\">", "9.9.9"] {
            assert_eq!(page.contains(other), sees, "{token} {other}: {page}");
        }
    }
}

#[tokio::test]
async fn who_may_not_gets_a_sentence_and_no_link() {
    let link = "href=\"/pipelines/new\"";
    for (token, creates, edits) in [("admin", true, true), ("viewer", false, false), ("shop", true, true)] {
        let browser = browser(token).await;
        assert_eq!(browser.get("/").await.text.contains(link), creates, "{token}");
        let page = browser.get("/pipelines/shop/checkout").await.text;
        assert_eq!(page.contains("href=\"/pipelines/shop/checkout/edit\""), edits, "{token}");
        let page = sent(&browser, NEW, &with(&[("namespace", "shop")])).await.text;
        let why = "You may not create pipelines here: you do not have the right to create pipelines in namespace shop";
        assert_eq!(page.contains(why), !creates, "{token}: {page}");
        let page = browser.get("/pipelines/shop/checkout/edit").await.text;
        let why = "you do not have the right to update pipelines/checkout in namespace shop";
        assert_eq!(page.contains(why), !edits, "{token}: {page}");
    }
    let shop = browser("shop").await;
    let page = sent(&shop, NEW, &with(&[("namespace", "apps")])).await.text;
    assert!(page.contains("the right to create pipelines in namespace apps"), "{page}");
    // Who may not see a pipeline is not told whether it exists.
    for path in ["/pipelines/apps/podinfo/edit", "/pipelines/apps/absent/edit"] {
        assert_eq!(shop.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(sent(&shop, path, &VALID).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    // The first pipeline of all is offered to those who see none.
    assert!(browser("nobody").await.get("/").await.text.contains(link));
}

#[tokio::test]
async fn an_edit_keeps_name_and_namespace() {
    let admin = browser("admin").await;
    let path = "/pipelines/shop/checkout/edit";
    let page = admin.get(path).await.text;
    for field in
        ["name=\"e2.name\" value=\"prod\"", "name=\"e2.was\" value=\"2\"", "name=\"e0.t0.was\" value=\"0\""]
    {
        assert!(page.contains(field), "{field}: {page}");
    }
    assert!(page.contains("Valid: an API server accepts this pipeline"), "{page}");
    let file =
        sent(&admin, path, &with(&[("name", "other"), ("namespace", "apps"), ("do", "download")])).await;
    assert!(file.text.contains("metadata:\n  name: checkout\n  namespace: shop\n"), "{}", file.text);
    assert_eq!(file.headers["content-disposition"], "attachment; filename=\"checkout.yaml\"");
}

#[tokio::test]
async fn a_form_of_another_site_or_session_counts_as_nothing() {
    let admin = browser("admin").await;
    let token = admin.get(NEW).await.field("token");
    let fields = [&[("token", token.as_str())], &VALID[..]].concat();
    for path in [NEW, "/pipelines/shop/checkout/edit"] {
        let elsewhere = admin.post_from("https://evil.example", path, &fields).await;
        assert_eq!(elsewhere.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(admin.post(path, &VALID).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(browser("admin").await.post(path, &fields).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let signed_out = Browser::over(Fleet::default(), &World::new(every_state()), true, "stolen").await;
    assert_eq!(signed_out.get(NEW).await.location(), "/sign-in?to=/pipelines/new");
}

#[tokio::test]
async fn hostile_texts_stay_texts() {
    let evil = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}\u{1b}[2J";
    let fields: Vec<(&str, &str)> = VALID
        .into_iter()
        .map(|(name, value)| {
            (name, if matches!(name, "do" | "strategy" | "e1.approval") { value } else { evil })
        })
        .chain([
            ("e0.after", evil),
            ("e0.t0.name", evil),
            ("e1.t0.cluster", evil),
            ("branch", evil),
            ("ready", evil),
        ])
        .collect();
    let admin = browser("admin").await;
    for step in ["check", "look", "download", evil] {
        let fields: Vec<_> = fields.iter().map(|(n, v)| (*n, if *n == "do" { step } else { v })).collect();
        let page = sent(&admin, NEW, &fields).await.text;
        for bad in ["<script>alert", "<img", "onerror=alert(2)>\""] {
            assert!(!page.contains(bad), "{step}: {page}");
        }
        assert_eq!(page.chars().find(|c| !matches!(c, '\n' | '\t') && is_unsafe(*c)), None, "{page}");
    }
    let hostile = format!("{NEW}?namespace=%3Cscript%3Ealert(1)%3C/script%3E&kind=%22%3E%3Cimg&app=%3Cimg");
    let page = admin.get(&hostile).await.text;
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
    // Names of objects and clusters come from others.
    let page = admin.get("/pipelines/evil/evil/edit").await.text;
    assert!(!page.contains("<script>alert"), "{page}");
}

/// The clock stands still: on a busy machine, the sender would earn new requests while the first ones are answered.
#[tokio::test(start_paused = true)]
async fn a_huge_form_is_answered_and_costs_its_sender() {
    let names: Vec<(String, String)> = (0..3)
        .flat_map(|e| {
            (0..100).flat_map(move |t| {
                [
                    (format!("e{e}.t{t}.namespace"), format!("team-{t}")),
                    (format!("e{e}.t{t}.cluster"), "fleet/eu".into()),
                ]
            })
        })
        .collect();
    let extra: Vec<(&str, &str)> =
        names.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let admin = browser("admin").await;
    let began = Instant::now();
    let fields = with(&[&extra[..], &[("e2.name", "staging")]].concat());
    let page = sent(&admin, NEW, &fields).await;
    eprintln!("300 targets: {} bytes, {:?}", page.text.len(), began.elapsed());
    assert!(page.text.contains("Valid: an API server accepts this pipeline"));
    // All are sent before the first is answered.
    let all = (0..20).map(|_| sent(&admin, NEW, &fields));
    let answers = futures::future::join_all(all).await;
    let refused: Vec<_> =
        answers.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).collect();
    assert!((1..20).contains(&refused.len()), "{}", refused.len());
    assert!(refused.iter().all(|answer| answer.headers["retry-after"] == "1"));
    let large = "x".repeat(600 << 10);
    assert_eq!(
        sent(&browser("admin").await, NEW, &[("name", &large)]).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

/// The proposal of a valid pipeline, with these fields added.
pub async fn proposed(browser: &Browser, path: &str, changes: &[(&str, &str)]) -> Answer {
    sent(browser, path, &with(&[&[("do", "propose")], changes].concat())).await
}

#[tokio::test]
async fn a_file_is_proposed_after_its_change_was_shown() {
    let world = World::new(every_state());
    let admin = Browser::over(fleet::index().fleet(), &world, true, "admin").await;
    let form = sent(&admin, NEW, &VALID).await;
    assert!(form.text.contains("Propose in git"), "{}", form.text);
    let ask = proposed(&admin, NEW, &[]).await;
    assert!(
        ask.text.contains("Path of the pipeline's file")
            && ask.text.contains(r#"name="e1.name" value="prod""#)
    );
    assert_eq!(world.proposals(), []);

    let evil = "apps/<script>.yaml";
    let shown = proposed(&admin, NEW, &[("path", evil)]).await;
    assert_eq!((shown.status, shown.field("confirmed")), (StatusCode::OK, "seen".into()), "{}", shown.text);
    assert!(shown.text.contains("kind: Pipeline") && !shown.text.contains("<script>.yaml"), "{}", shown.text);
    let stale = proposed(&admin, NEW, &[("path", evil), ("confirmed", "other")]).await;
    assert!(stale.text.contains("differs from the one that you looked at"), "{}", stale.text);

    let done = proposed(&admin, NEW, &[("path", evil), ("confirmed", &shown.field("confirmed"))]).await;
    assert!(done.text.contains("#7") && done.text.contains("No &lt;b&gt;joe"), "{}", done.text);
    assert!(!done.text.contains("href=\"javascript"), "{}", done.text);
    let proposals = world.proposals();
    let confirmations: Vec<_> = proposals.iter().map(|p| p.confirmation.as_deref()).collect();
    assert_eq!(confirmations, [None, Some("other"), Some("seen")]);
    assert_eq!(proposals[2].object["metadata"]["namespace"], "shop");

    world.answer(Err(ChangeError::Refused("pipelines is forbidden".into())));
    let refused = proposed(&admin, NEW, &[("path", "a.yaml")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.text.contains("Pipelines is forbidden") && refused.text.contains("name=\"path\""));
}

#[tokio::test]
async fn who_may_not_or_looks_at_something_else_proposes_nothing() {
    let world = World::new(every_state());
    let over = async |actions: bool, token: &str| {
        Browser::over(fleet::index().fleet(), &world, actions, token).await
    };
    let confirmed = [("path", "a.yaml"), ("confirmed", "seen")];
    let read_only = proposed(&over(false, "admin").await, NEW, &confirmed).await;
    assert_eq!(read_only.status, StatusCode::FORBIDDEN);
    assert!(read_only.text.contains("--api-actions"), "{}", read_only.text);
    let page = sent(&over(false, "admin").await, NEW, &VALID).await;
    assert!(!page.text.contains("Propose in git") && page.text.contains("These pages are read-only"));
    let viewer = proposed(&over(true, "viewer").await, NEW, &confirmed).await;
    assert_eq!(viewer.status, StatusCode::FORBIDDEN);
    assert!(viewer.text.contains("the right to create pipelines"), "{}", viewer.text);

    let admin = over(true, "admin").await;
    let edit = "/pipelines/apps/podinfo/edit";
    for seen in ["", "pipeline-uid/2/"] {
        let outdated = proposed(&admin, edit, &[&confirmed[..], &[("seen", seen)]].concat()).await;
        assert_eq!(outdated.status, StatusCode::CONFLICT, "{}", outdated.text);
    }
    let mut fields = with(&[("do", "propose"), ("path", "a.yaml"), ("confirmed", "seen")]);
    fields.push(("token", "of another site"));
    let forged = admin.post(NEW, &fields).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let elsewhere = admin.post_from("https://evil.example", NEW, &fields).await;
    assert_eq!(elsewhere.status, StatusCode::FORBIDDEN);
    assert_eq!(world.proposals(), []);

    let seen = admin.get(edit).await.field("seen");
    let shown = proposed(&admin, edit, &[("path", "a.yaml"), ("seen", &seen)]).await;
    let change = text(&shown.text);
    let change = change.split_once("What changes").unwrap().1;
    for words in ["from line 1", "Removed\nkind: Old\n", "Added\napiVersion: pipelines"] {
        assert!(change.contains(words), "{words}: {change}");
    }
    let edited = proposed(&admin, edit, &[&confirmed[..], &[("seen", &seen)]].concat()).await;
    assert_eq!(edited.status, StatusCode::OK, "{}", edited.text);
    assert_eq!(world.proposals()[1].edited.as_ref().unwrap().metadata.name.as_deref(), Some("podinfo"));
}
