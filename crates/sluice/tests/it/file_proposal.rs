//! The files of a Pipeline that people propose in git from the form, with rights of RBAC on a real API server and a change
//! request at a real forge.

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sluice_testkit::{ForgeRepo, eventually, shared_gitea};

use crate::browser::{LOOKS, opened};
use crate::page::{Person, hidden, rule};
use crate::place::{SOON, TestNamespace};
use crate::process::Controller;
use crate::{releases, run};

const FILE: &str = "apps/pipelines.yaml";

/// A controller whose pages propose files, and a repository.
struct ProposalFixture {
    place: TestNamespace,
    repo: ForgeRepo,
    controller: Controller,
    base: String,
}

impl ProposalFixture {
    async fn new(name: &str) -> Result<ProposalFixture> {
        let place = TestNamespace::new(name).await?;
        let n = place.namespace.as_str();
        let files = [("README.md", "x"), ("taken.yaml", "a: 1\n")];
        let repo = shared_gitea().await?.create_repo(n, &files).await?;
        place.forge_secret().await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let flags = [&format!("--api-addr={address}"), "--api-actions", "--observe=all"];
        let controller = Controller::start(&place.shared.hub, n, &flags)?;
        let base = format!("http://{address}");
        let (status, _) =
            Person::signed_out(&base)?.get("/sign-in").await.with_context(|| controller.tail())?;
        ensure!(status == StatusCode::OK, "{status}");
        Ok(ProposalFixture { place, repo, controller, base })
    }

    async fn person(&self, name: &str, rules: Value) -> Result<Person> {
        Person::new(&self.place, &self.base, name, rules).await
    }
}

#[test]
fn who_may_write_a_pipeline_proposes_its_file_and_nobody_else() -> Result<()> {
    run(async {
        let fixture = ProposalFixture::new("proposal").await?;
        let ProposalFixture { place, repo, controller, .. } = &fixture;
        let n = place.namespace.as_str();
        let signed_in = async |name: &str, verbs: &[&str]| {
            fixture.person(name, json!([rule("pipelines", verbs), rule("promotions", &["get"])])).await
        };
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
        ensure!(status == StatusCode::OK && page.contains("new file"), "{status} {page}");
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
        let is_logged = |line: &str| line.contains("has proposed the files") && line.contains(&person);
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
        ensure!(
            status == StatusCode::UNPROCESSABLE_ENTITY && page.contains("other content"),
            "{status} {page}"
        );

        // An edit is for the Pipeline that the person began with.
        let edit = format!("/pipelines/{n}/app/edit");
        let seen = seen_in_form(&editor, &edit).await?;
        let fields = format!("{}&seen={seen}", fields("app", FILE).replace("e1.name=prod", "e1.name=live"));
        let (status, page) = editor.post(&edit, &fields).await?;
        ensure!(
            status == StatusCode::OK && page.contains("new file") && page.contains("live"),
            "{status} {page}"
        );
        let (status, page) = viewer.post(&edit, &fields).await?;
        ensure!(status == StatusCode::FORBIDDEN, "{status} {page}");
        Ok(())
    })
}

#[test]
fn a_confirmed_edit_changes_the_pipeline_in_its_file_and_nothing_else() -> Result<()> {
    run(async {
        let fixture = ProposalFixture::new("edit").await?;
        let ProposalFixture { place, repo, controller, .. } = &fixture;
        let n = place.namespace.as_str();
        let rules = json!([rule("pipelines", &["get", "update"]), rule("promotions", &["get"])]);
        let editor = fixture.person("editor", rules).await?;
        let strategy =
            json!({"type": "gitea", "url": repo.url(), "baseBranch": "main", "secretRef": {"name": "forge"}});
        let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app"});
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "app", "namespace": n}, "spec": {"appRef": app,
            "environments": [{"name": "dev", "targets": [{"namespace": n}]}, {"name": "prod", "targets": [{"namespace": "prod"}]}],
            "promotion": {"strategy": {"pull-request": strategy}}}});
        let (first, last) = ("# of another team\nkind: ConfigMap\n---\n", "\n---\nkind: Secret # kept\n");
        repo.commit("main", "a pipeline", &[(FILE, &format!("{first}{pipeline}{last}"))])?;
        place.apply(&pipeline.to_string()).await?;

        let edit = format!("/pipelines/{n}/app/edit");
        let seen = seen_in_form(&editor, &edit).await?;
        let fields = format!(
            "do=propose&namespace={n}&name=app&kind=HelmRelease&app=app&strategy=pull-request&forge=gitea&url={}\
             &secret=forge&branch=main&e0.name=dev&e0.t0.namespace={n}&e1.name=live&e1.t0.namespace=prod&path={FILE}&seen={seen}",
            repo.url()
        );
        let (status, page) = editor.post(&edit, &fields).await?;
        ensure!(status == StatusCode::OK && page.contains("live"), "{status} {page}");
        ensure!(!page.contains("of another team"), "the page shows other documents of the file");
        let confirm = |page: &str| -> Result<String> {
            let confirmed = hidden(page, "confirmed").with_context(|| page.to_owned())?;
            Ok(format!("{fields}&confirmed={confirmed}"))
        };
        let confirmed = confirm(&page)?;
        // Somebody changes another part of the file meanwhile.
        let last = last.replace("kept", "changed");
        repo.commit("main", "another part", &[(FILE, &format!("{first}{pipeline}{last}"))])?;
        let (_, page) = editor.post(&edit, &confirmed).await?;
        ensure!(page.contains("differs from the one that you looked at"), "{page}");
        ensure!(repo.pulls("all").await?.is_empty(), "an outdated confirmation counts");
        let confirmed = confirm(&page)?;
        let (status, page) = editor.post(&edit, &confirmed).await?;
        ensure!(
            status == StatusCode::OK && page.contains("is open"),
            "{status} {page} {}",
            controller.tail()
        );

        let [pull] = &repo.pulls("all").await?[..] else { bail!("one change request") };
        let file = repo.read(&pull.head.branch, FILE)?;
        ensure!(file.starts_with(first) && file.ends_with(&last), "{file}");
        let edited = &file[first.len()..file.len() - last.len()];
        ensure!(edited.contains("name: live") && !edited.contains("name: prod"), "{file}");
        // What flux applies then is accepted as it is, and an edit of an earlier state does not count.
        place.apply(edited).await?;
        let (status, page) = editor.post(&edit, &confirmed).await?;
        ensure!(status == StatusCode::CONFLICT, "{status} {page}");
        Ok(())
    })
}

/// Waits for the form of an edit, and returns what identifies the Pipeline that it shows.
async fn seen_in_form(editor: &Person, edit: &str) -> Result<String> {
    let form = eventually(SOON, || async {
        let (status, form) = editor.get(edit).await?;
        ensure!(status == StatusCode::OK, "{form}");
        Ok(form)
    })
    .await?;
    hidden(&form, "seen").map(str::to_owned).context("the form does not say what it shows")
}

/// The manifest of a HelmRelease, as people paste it. JSON is YAML, too.
fn manifest(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"interval": "10m", "chart": {"spec": {"chart": "podinfo", "version": "6.1.5",
            "sourceRef": {"kind": "HelmRepository", "name": "podinfo"}}}}})
}

#[test]
fn a_first_set_up_is_one_change_request_with_the_rights_of_the_person() -> Result<()> {
    run(async {
        let fixture = ProposalFixture::new("first-set-up").await?;
        let ProposalFixture { place, repo, controller, .. } = &fixture;
        let (n, hub) = (place.namespace.as_str(), &place.shared.hub);
        releases::create_running(hub, n, "app", "6.1.5").await?;
        let pipelines = rule("pipelines", &["get", "create"]);
        let helm = |verbs: &[&str]| json!({"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": verbs});
        let editor = fixture.person("editor", json!([pipelines, helm(&["get", "create"])])).await?;
        let other = fixture.person("other", json!([pipelines])).await?;

        // The object is read with the person's token, not with Sluice's.
        let read = format!("do=read-application {n}&namespace={n}&kind=HelmRelease&app=app");
        let (_, page) = editor.post("/pipelines/new", &read).await?;
        ensure!(page.contains("chartVersion") && !page.contains("resourceVersion"), "{page}");
        let (_, page) = other.post("/pipelines/new", &read).await?;
        ensure!(page.contains("is forbidden") && !page.contains("chartVersion"), "{page}");

        // dev is on the hub, and prod on a cluster that nobody reaches from here.
        let fields = |name: &str, namespace: &str, more: &str| {
            format!(
                "do=propose&namespace={n}&name={name}&kind=HelmRelease&app={name}&strategy=pull-request&forge=gitea&url={}\
                 &secret=forge&e0.name=dev&e0.t0.namespace={namespace}&e1.name=prod&e1.t0.cluster=eu&e1.t0.namespace=web\
                 &manifest={}&files=apps/{{environment}}/web.yaml&path=apps/pipeline.yaml{more}",
                repo.url(),
                manifest(n, name)
            )
        };
        for (person, name, namespace, words) in [
            (&other, "web", n, "is forbidden"),
            (&editor, "web", "kube-system", "is forbidden"),
            (&editor, "app", n, "already exists"),
        ] {
            let (status, page) = person.post("/pipelines/new", &fields(name, namespace, "")).await?;
            ensure!(
                status == StatusCode::FORBIDDEN
                    && page.contains("The hub does not accept")
                    && page.contains(words),
                "{name} {namespace}: {status} {page}"
            );
        }
        let (status, page) =
            editor.post("/pipelines/new", &fields("web", n, "&files=taken.yaml&e0.t0.git=yes")).await?;
        ensure!(
            status == StatusCode::UNPROCESSABLE_ENTITY
                && page.contains("taken.yaml is in the repository already"),
            "{status} {page}"
        );
        ensure!(repo.pulls("all").await?.is_empty(), "opened without a confirmation");

        let (status, page) = editor.post("/pipelines/new", &fields("web", n, "")).await?;
        ensure!(status == StatusCode::OK && page.contains("apps/prod/web.yaml"), "{status} {page}");
        let confirmed = format!("&confirmed={}", hidden(&page, "confirmed").context("nothing to confirm")?);
        // What was confirmed is this list of files, and no other.
        let (status, page) =
            editor.post("/pipelines/new", &fields("web", n, &format!("{confirmed}&e0.t0.git=yes"))).await?;
        ensure!(
            status == StatusCode::OK && page.contains("differs from the one that you looked at"),
            "{status} {page}"
        );
        let (status, page) = editor.post("/pipelines/new", &fields("web", n, &confirmed)).await?;
        ensure!(
            status == StatusCode::OK && page.contains("is open"),
            "{status} {page} {}",
            controller.tail()
        );
        let [pull] = &repo.pulls("all").await?[..] else { bail!("one change request") };
        ensure!(pull.title.starts_with("WIP:"), "no draft: {}", pull.title);
        let branch = &pull.head.branch;
        let mut files = repo.files(branch)?;
        files.sort();
        ensure!(
            files
                == [
                    "README.md",
                    "apps/dev/web.yaml",
                    "apps/pipeline.yaml",
                    "apps/prod/web.yaml",
                    "taken.yaml"
                ],
            "{files:?}"
        );
        for (environment, namespace) in [("dev", n), ("prod", "web")] {
            let file = repo.read(branch, &format!("apps/{environment}/web.yaml"))?;
            let marker = format!("# {{\"$promotion\": \"{n}:web:{environment}\"}}");
            ensure!(file.contains(&marker) && file.contains(&format!("namespace: {namespace}\n")), "{file}");
        }
        // What flux applies then is accepted as it is.
        place.apply(&repo.read(branch, "apps/pipeline.yaml")?).await?;
        Ok(())
    })
}

#[test]
fn a_first_set_up_in_a_browser_is_accessible_in_every_look() -> Result<()> {
    run(async {
        let fixture = ProposalFixture::new("set-up-page").await?;
        let (place, hub) = (&fixture.place, &fixture.place.shared.hub);
        let n = place.namespace.as_str();
        releases::create_running(hub, n, "app", "6.1.5").await?;
        let rules = json!([
            rule("pipelines", &["get", "create"]),
            {"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["get", "create"]}
        ]);
        let path = format!("/pipelines/new?namespace={n}&kind=HelmRelease&app=app");
        let browser = opened(place, &fixture.base, "editor", rules, &path).await?;
        let pictures = std::env::var_os("SLUICE_SCREENSHOTS").map(PathBuf::from);
        let mut faults = Vec::new();
        let mut check = async |step: &str| -> Result<()> {
            for (look, size) in LOOKS {
                browser.look(size).await?;
                faults.extend(
                    browser.faults().await?.into_iter().map(|fault| format!("{step} {look}: {fault}")),
                );
                if let Some(folder) = &pictures {
                    browser.picture(&folder.join(format!("{step}-{look}.png"))).await?;
                }
            }
            browser.look(LOOKS[0].1).await
        };
        browser.until_text("Start from it").await?;
        browser.click("button[value^=read-application]").await?;
        browser.until_text("Path of each new file").await?;
        browser.click("button[value=add-environment]").await?;
        browser.until_text("Environment 2").await?;
        for (field, text) in [
            ("e1.t0.cluster", "eu"),
            ("e1.t0.namespace", "web"),
            ("url", fixture.repo.url()),
            ("secret", "forge"),
        ] {
            browser.write(&format!("[name='{field}']"), text).await?;
        }
        browser.run("document.getElementById('forge').value = 'gitea'").await?;
        browser.click("button.main[value=check]").await?;
        browser.until_text("An API server accepts this pipeline, and its targets cannot be read.").await?;
        browser.until_text("apps/staging/app.yaml").await?;
        check("set-up").await?;
        browser.click("button[value=propose]").await?;
        browser.until_text("Path of the pipeline's file").await?;
        browser.write("#path", "../pipeline.yaml").await?;
        browser.click("button.main").await?;
        browser.until_text("may begin with a dot").await?;
        // The browser reports the status of the answer.
        let reported = browser.faults().await?;
        ensure!(reported.iter().all(|fault| fault.contains("422")), "{reported:?}");
        browser.run("document.getElementById('path').value = ''").await?;
        browser.write("#path", "apps/pipeline.yaml").await?;
        browser.click("button.main").await?;
        browser.until_text("What changes").await?;
        check("propose").await?;
        browser.click("form:last-of-type button.main").await?;
        browser.until_text("is open").await?;
        check("proposed").await?;
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    })
}
