//! `sluice web`: the pages for the user of a kubeconfig, whose credentials are a certificate and not a token.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use reqwest::StatusCode;
use serde_json::json;
use sluice_testkit::{Browser, ProcessGuard, Scratch, eventually};

use crate::page::{FILE, Person, Waiting, rule, seen, waiting};
use crate::place::{SOON, TestNamespace};
use crate::{people, run};

/// A running `sluice web`.
struct Web {
    scratch: Scratch,
    _process: ProcessGuard,
}

impl Web {
    fn start(kubeconfig: &str, flags: &[&str]) -> Result<Web> {
        let scratch = Scratch::new("web")?;
        let command = command(&scratch, kubeconfig, flags)?;
        let process = ProcessGuard::start("sluice web", &command, &scratch.path().join("output"))?;
        Ok(Web { scratch, _process: process })
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("output")).unwrap_or_default()
    }

    /// Returns the address of the server, and the link that it printed.
    async fn link(&self) -> Result<(String, String)> {
        eventually(SOON, || async {
            let output = self.output();
            let link = output.lines().find(|line| line.starts_with("http://")).context(output.clone())?;
            let (base, _) = link.split_once("/sign-in").context("not a link to sign in")?;
            Ok((base.into(), link.into()))
        })
        .await
    }
}

fn command(scratch: &Scratch, kubeconfig: &str, flags: &[&str]) -> Result<Command> {
    let path = scratch.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["web", "--insecure-git-http", "--kubeconfig"]).arg(path);
    command.args(flags).env("TMPDIR", scratch.path());
    Ok(command)
}

#[test]
fn a_user_with_a_certificate_sees_and_does_what_rbac_allows() -> Result<()> {
    run(async {
        let place = TestNamespace::new("web").await?;
        let n = &place.namespace;
        let Waiting { controller, repo, .. } = &waiting(&place, &[]).await?;
        let read = ["get", "list", "watch"];
        let see = [rule("pipelines", &read), rule("promotions", &read)];
        let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
        let approve = rule("promotions", &["patch", "approve"]);
        let (viewer, approver) = (format!("{n}-viewer"), format!("{n}-approver"));
        let viewers = people::kubeconfig(&place, &viewer, json!(see)).await?;
        let approvers =
            people::kubeconfig(&place, &approver, json!([&see[..], &[secrets, approve]].concat())).await?;
        let name = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let (pipeline, promotion) = (format!("/pipelines/{n}/app"), format!("/promotions/{n}/{name}"));
        let (form, change) = (format!("{promotion}/approve"), format!("{promotion}/change"));

        let web = Web::start(&viewers, &["-n", n, "--no-browser"])?;
        let (base, link) = web.link().await?;
        let mut person = Person::signed_out(&base)?;
        let (status, _) = person.get("/").await?;
        ensure!(status == StatusCode::SEE_OTHER, "without the link: {status}");
        let (_, page) = person.get("/sign-in").await?;
        ensure!(page.contains("sluice web") && !page.contains("<textarea"), "{page}");
        let wrong = format!("{base}/sign-in/link/0123456789abcdef0123456789abcdef");
        ensure!(person.open(&wrong).await? == StatusCode::FORBIDDEN);
        ensure!(person.open(&link).await? == StatusCode::OK);
        ensure!(
            Person::signed_out(&base)?.open(&link).await? == StatusCode::FORBIDDEN,
            "the link works twice"
        );
        eventually(SOON, || async {
            let (status, page) = person.get(&pipeline).await?;
            ensure!(status == StatusCode::OK && page.contains("waits for approval"), "{status} {page}");
            ensure!(page.contains(&viewer), "the page does not name the user: {page}");
            Ok(())
        })
        .await
        .with_context(|| web.output())?;
        ensure!(person.get(&form).await?.0 == StatusCode::FORBIDDEN, "a viewer may approve");
        // The viewer may not read the Secret for the repository.
        let (status, page) = person.get(&change).await?;
        ensure!(
            status == StatusCode::OK && page.contains("Secret") && !page.contains("1.1.0</bdi></ins>"),
            "{status} {page}"
        );

        let web = Web::start(&approvers, &["-n", n, "--no-browser"])?;
        let (base, link) = web.link().await?;
        let mut person = Person::signed_out(&base)?;
        ensure!(person.open(&link).await? == StatusCode::OK);
        let page = eventually(SOON, || async {
            let (status, page) = person.get(&form).await?;
            ensure!(status == StatusCode::OK && page.contains(FILE), "{status} {page}");
            Ok(page)
        })
        .await
        .with_context(|| web.output())?;
        let (status, page) = person.post(&form, &format!("{}&revision=1.1.0", seen(&page)?)).await?;
        ensure!(status == StatusCode::SEE_OTHER, "{status} {page}");
        let approval = place.promotions().get(&name).await?.spec.approval.context("no approval")?;
        ensure!(approval.by == approver, "{approval:?}");
        eventually(SOON, || async {
            let file = repo.read("main", FILE)?;
            ensure!(file.contains("1.1.0"), "{file}");
            Ok(())
        })
        .await
        .with_context(|| controller.tail())
    })
}

#[test]
fn no_repository_on_a_host_that_is_not_allowed_gets_the_credentials() -> Result<()> {
    run(async {
        let place = TestNamespace::new("web-hosts").await?;
        let n = &place.namespace;
        let Waiting { repo, .. } = &waiting(&place, &[]).await?;
        let rule = |group: &str, resource: &str| {
            json!({"apiGroups": [group], "resources": [resource],
            "verbs": ["get", "list", "watch"]})
        };
        let see = ["pipelines", "promotions"].map(|resource| rule("pipelines.weave.works", resource));
        let rules = json!([&see[..], &[rule("", "secrets")]].concat());
        let admins = people::kubeconfig(&place, &format!("{n}-admin"), rules).await?;
        let name = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let before = repo.requests();
        let allowed = "--allowed-hosts=git.example.com,*.example.org:*";
        let web = Web::start(&admins, &["-n", n, "--no-browser", allowed])?;
        let (base, link) = web.link().await.with_context(|| web.output())?;
        let mut person = Person::signed_out(&base)?;
        ensure!(person.open(&link).await? == StatusCode::OK);
        eventually(SOON, || async {
            let (status, page) = person.get(&format!("/promotions/{n}/{name}/change")).await?;
            ensure!(status == StatusCode::OK && page.contains("--allowed-hosts"), "{status} {page}");
            Ok(())
        })
        .await
        .with_context(|| web.output())?;
        let after = repo.requests();
        ensure!((after.ls, after.fetch) == (before.ls, before.fetch), "the repository was read");
        Ok(())
    })
}

/// A program that takes the place of `xdg-open`, and notes what it is asked to open.
fn browser_launcher(folder: &Path) -> Result<()> {
    let program = folder.join("xdg-open");
    // The note is there as a whole, or not at all.
    let script = "#!/bin/sh\ncd FOLDER && printf %s \"$1\" >opening && mv opening opened\n";
    std::fs::write(&program, script.replace("FOLDER", &folder.display().to_string()))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[test]
fn the_browser_that_it_opens_is_signed_in() -> Result<()> {
    run(async {
        let place = TestNamespace::new("web-browser").await?;
        let n = &place.namespace;
        let read = ["get", "list", "watch"];
        let see = json!([rule("pipelines", &read), rule("promotions", &read)]);
        let viewer = people::kubeconfig(&place, &format!("{n}-viewer"), see).await?;
        let scratch = Scratch::new("web")?;
        browser_launcher(scratch.path())?;
        let mut command = command(&scratch, &viewer, &["-n", n])?;
        let path = std::env::var("PATH")?;
        command.env("PATH", format!("{}:{path}", scratch.path().display()));
        let web = ProcessGuard::start("sluice web", &command, &scratch.path().join("output"))?;
        let opened =
            eventually(SOON, || async { Ok(std::fs::read_to_string(scratch.path().join("opened"))?) })
                .await?;
        let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", web.pid()))?;
        ensure!(
            !opened.contains("/link/") && !arguments.contains("/link/"),
            "the arguments show the link: {opened}"
        );
        let mode = std::fs::metadata(Path::new(&opened).parent().context("no folder")?)?.permissions().mode();
        ensure!(mode & 0o077 == 0, "others may read the folder of the link: {mode:o}");
        let browser = Browser::start().await?;
        browser.open(&format!("file://{opened}")).await?;
        browser.until_text("Pipelines").await?;
        browser.until_text("Sign out").await
    })
}

#[test]
fn a_user_without_rights_is_told_what_is_missing() -> Result<()> {
    run(async {
        let place = TestNamespace::new("web-nobody").await?;
        let nobody = people::kubeconfig(&place, &format!("{}-nobody", place.namespace), json!([])).await?;
        let output = command(&Scratch::new("web")?, &nobody, &["--no-browser"])?.output()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(4), "{:?} {said}", output.status);
        ensure!(said.contains("not allowed") && said.contains("pipelines"), "{said}");
        Ok(())
    })
}
