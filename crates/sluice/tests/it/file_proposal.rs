//! The file of a Pipeline that people propose in git from the form, with rights of RBAC on a real API server and a change
//! request at a real forge.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::json;
use sluice_testkit::{eventually, shared_gitea};

use crate::page::{Person, hidden, rule};
use crate::place::{SOON, TestNamespace};
use crate::process::Controller;
use crate::run;

const FILE: &str = "apps/pipelines.yaml";

#[test]
fn who_may_write_a_pipeline_proposes_its_file_and_nobody_else() -> Result<()> {
    run(async {
        let place = TestNamespace::new("proposal").await?;
        let n = place.namespace.as_str();
        let repo =
            shared_gitea().await?.create_repo(n, &[("README.md", "x"), ("taken.yaml", "a: 1\n")]).await?;
        place.forge_secret().await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let flags = [&format!("--api-addr={address}"), "--api-actions"];
        let controller = Controller::start(&place.shared.hub, n, &flags)?;
        let base = format!("http://{address}");
        let signed_in = async |name: &str, verbs: &[&str]| {
            let rules = json!([rule("pipelines", verbs), rule("promotions", &["get"])]);
            Person::new(&place, &base, name, rules).await
        };
        eventually(SOON, || async {
            ensure!(Person::signed_out(&base)?.get("/sign-in").await?.0 == StatusCode::OK);
            Ok(())
        })
        .await
        .with_context(|| controller.tail())?;
        let editor = signed_in("editor", &["get", "create", "update"]).await?;
        let viewer = signed_in("viewer", &["get"]).await?;

        let fields = |name: &str, path: &str| {
            format!(
                "do=propose&namespace={n}&name={name}&kind=HelmRelease&app=app&strategy=pull-request&forge=gitea&url={}\
                 &secret=forge&e0.name=dev&e0.t0.namespace={n}&e1.name=prod&e1.t0.namespace={n}-prod&path={path}",
                repo.url()
            )
        };
        let (status, page) = viewer.post("/pipelines/new", &fields("app", FILE)).await?;
        ensure!(status == StatusCode::FORBIDDEN && page.contains("create pipelines"), "{status} {page}");

        let (status, page) = editor.post("/pipelines/new", &fields("app", FILE)).await?;
        ensure!(status == StatusCode::OK && page.contains("(new file)"), "{status} {page}");
        ensure!(repo.pulls("all").await?.is_empty(), "opened without a confirmation");
        let confirmed = hidden(&page, "confirmed").context("nothing to confirm")?;
        let confirmed = format!("{}&confirmed={confirmed}", fields("app", FILE));
        let (status, page) = editor.post("/pipelines/new", &confirmed).await?;
        ensure!(
            status == StatusCode::OK && page.contains("is open"),
            "{status} {page} {}",
            controller.tail()
        );
        // A second click finds it.
        let (status, page) = editor.post("/pipelines/new", &confirmed).await?;
        ensure!(status == StatusCode::OK && page.contains("is open"), "{status} {page}");
        let pulls = repo.pulls("all").await?;
        ensure!(pulls.len() == 1, "{} change requests", pulls.len());
        let file = repo.read(&pulls[0].head.branch, FILE)?;
        ensure!(file.contains("kind: Pipeline") && file.contains(&format!("namespace: {n}")), "{file}");
        let (log, person) = (controller.tail(), format!("{n}:editor"));
        let is_logged = |line: &str| line.contains("has proposed the file") && line.contains(&person);
        ensure!(log.lines().any(is_logged), "{log}");
        ensure!(
            place.pipelines().list(&Default::default()).await?.items.is_empty(),
            "written to the cluster"
        );

        // What flux applies then is accepted as it is. Another person cannot take its name, or another file.
        place.apply(&file).await?;
        let (status, page) = editor.post("/pipelines/new", &fields("app", "other.yaml")).await?;
        ensure!(status == StatusCode::FORBIDDEN && page.contains("already exists"), "{status} {page}");
        let (status, page) = editor.post("/pipelines/new", &fields("web", "taken.yaml")).await?;
        ensure!(status == StatusCode::FORBIDDEN && page.contains("other content"), "{status} {page}");

        // An edit is for the Pipeline that the person began with.
        let edit = format!("/pipelines/{n}/app/edit");
        let form = eventually(SOON, || async {
            let (status, form) = editor.get(&edit).await?;
            ensure!(status == StatusCode::OK, "{form}");
            Ok(form)
        })
        .await?;
        let seen = hidden(&form, "seen").context("the form does not say what it shows")?;
        let fields = format!("{}&seen={seen}", fields("app", FILE).replace("e1.name=prod", "e1.name=live"));
        let (status, page) = editor.post(&edit, &fields).await?;
        ensure!(
            status == StatusCode::OK && page.contains("(new file)") && page.contains("live"),
            "{status} {page}"
        );
        let (status, page) = viewer.post(&edit, &fields).await?;
        ensure!(status == StatusCode::FORBIDDEN, "{status} {page}");
        Ok(())
    })
}
