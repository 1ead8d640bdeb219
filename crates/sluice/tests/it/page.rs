//! The pages of a real controller, with people whose rights are those of RBAC on a real API server: what each one sees, and
//! what each one can do.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use reqwest::header::{CONTENT_TYPE, COOKIE, RETRY_AFTER, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use sluice_testkit::{GitServer, Repo, eventually};
use tokio::time::timeout;

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{people, releases, run};

/// A person with a browser.
pub struct Person {
    http: Client,
    base: String,
    cookie: String,
    token: String,
}

impl Person {
    /// Creates a service account with these rules in the namespace, and signs in with its token.
    pub async fn new(place: &TestNamespace, base: &str, name: &str, rules: Value) -> Result<Person> {
        let token = people::token(place, name, rules).await?;
        let mut person = Person { token, ..Person::signed_out(base)? };
        let form = format!("token={}", person.token);
        let request = person.http.post(format!("{base}/sign-in")).body(form);
        let answer = Person::send(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded")).await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{name} cannot sign in: {}", answer.text().await?);
        person.keep_session(&answer)?;
        Ok(person)
    }

    /// Returns a person who has no session.
    pub fn signed_out(base: &str) -> Result<Person> {
        let http = Client::builder().redirect(Policy::none()).build()?;
        Ok(Person { http, base: base.into(), cookie: String::new(), token: String::new() })
    }

    /// Signs in by a link.
    pub async fn open(&mut self, link: &str) -> Result<StatusCode> {
        let answer = self.http.get(link).send().await?;
        if answer.status() == StatusCode::OK {
            self.keep_session(&answer)?;
        }
        Ok(answer.status())
    }

    fn keep_session(&mut self, answer: &Response) -> Result<()> {
        let cookie = answer.headers().get(SET_COOKIE).context("no session")?.to_str()?;
        ensure!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        self.cookie = cookie.split(';').next().context("no cookie")?.into();
        Ok(())
    }

    /// Sends a request. Waits until a controller that starts listens, and sends it again when the server says so, if it was
    /// one too many.
    pub async fn send(request: RequestBuilder) -> Result<Response> {
        let deadline = Instant::now() + SOON;
        loop {
            let request = request.try_clone().context("the body cannot be sent twice")?;
            let answer = match request.send().await {
                Err(error) if error.is_connect() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                answer => answer?,
            };
            let Some(pause) = answer.headers().get(RETRY_AFTER) else { return Ok(answer) };
            let pause = Duration::from_secs(pause.to_str()?.parse()?);
            ensure!(Instant::now() + pause < deadline, "still {}", answer.status());
            tokio::time::sleep(pause).await;
        }
    }

    pub async fn get(&self, path: &str) -> Result<(StatusCode, String)> {
        let request = self.http.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let answer = Person::send(request).await?;
        Ok((answer.status(), answer.text().await?))
    }

    /// Reads an answer of the API.
    pub async fn ask(&self, path: &str) -> Result<(StatusCode, Value)> {
        let request = self.http.get(format!("{}/api/v1{path}", self.base)).bearer_auth(&self.token);
        let answer = Person::send(request).await?;
        Ok((answer.status(), answer.json().await?))
    }

    /// Reads a stream of the pages or of the API until it has this text, or ends.
    pub async fn stream(&self, path: &str, until: &str) -> Result<String> {
        let request = self.http.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let mut answer = Person::send(request.bearer_auth(&self.token)).await?;
        let mut text = String::new();
        let read = async {
            while !text.contains(until)
                && let Some(part) = answer.chunk().await?
            {
                text.push_str(&String::from_utf8_lossy(&part));
            }
            anyhow::Ok(())
        };
        timeout(SOON, read).await.with_context(|| format!("{path} does not say {until}"))??;
        Ok(text)
    }

    /// Requests an action by the API.
    pub async fn act(&self, path: &str, seen: &Value) -> Result<(StatusCode, String)> {
        self.call(path, &json!({"seen": seen})).await
    }

    /// Calls the API with a body.
    pub async fn call(&self, path: &str, body: &Value) -> Result<(StatusCode, String)> {
        let request = self.http.post(format!("{}/api/v1{path}", self.base)).bearer_auth(&self.token);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = Person::send(request).await?;
        Ok((answer.status(), answer.text().await?))
    }

    /// Sends a form with the token of this session.
    pub async fn post(&self, path: &str, fields: &str) -> Result<(StatusCode, String)> {
        let (_, page) = self.get("/").await?;
        let body = format!("token={}&{fields}", hidden(&page, "token").context("the page has no form")?);
        let request = self.http.post(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        let answer = Person::send(request).await?;
        Ok((answer.status(), answer.text().await?))
    }
}

/// Returns the value of a hidden field of a page.
pub fn hidden<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    page.split(&format!("name=\"{name}\" value=\"")).nth(1)?.split('"').next()
}

/// Returns the fields of a form that say what its page shows.
pub fn seen(page: &str) -> Result<String> {
    Ok(format!("seen={}", hidden(page, "seen").context("the form does not say what it shows")?))
}

/// Returns a rule of RBAC.
pub fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": ["pipelines.weave.works"], "resources": [resource], "verbs": verbs})
}

/// A pipeline whose 1.1.0 waits for an approval before it is committed for prod.
pub struct Waiting {
    pub controller: Controller,
    pub repo: Repo,
    _git: GitServer,
}

/// The file with the version of prod.
pub const FILE: &str = "prod/app.yaml";

pub async fn waiting(place: &TestNamespace, flags: &[&str]) -> Result<Waiting> {
    let n = &place.namespace;
    let git = GitServer::start()?;
    let file = format!("spec:\n  version: 1.0.0 # {{\"$promotion\": \"{n}:app:prod\"}}\n");
    let repo = git.create_repo("fleet", &[(FILE, &file)])?;
    place.secret("git", &[("username", GitServer::USER), ("password", GitServer::PASSWORD)]).await?;
    for leaf in ["dev", "prod"] {
        releases::create_running(place.leaf(leaf), n, "app", "1.0.0").await?;
    }
    let target =
        |name: &str| json!([{"namespace": n, "clusterRef": {"kind": "GitopsCluster", "name": name}}]);
    let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "app", "namespace": n},
        "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app"},
            "environments": [{"name": "dev", "targets": target("dev")}, {"name": "prod", "targets": target("prod")}],
            "promotion": {"manual": true, "strategy": {"commit": {"url": repo.url(), "branch": "main", "secretRef": {"name": "git"}}}}}});
    place.apply(&pipeline.to_string()).await?;
    let controller = Controller::start(&place.shared.hub, n, flags)?;
    let at_rest = |p: &sluice_api::Pipeline| ["dev", "prod"].iter().all(|e| revision(p, e) == "1.0.0");
    place.until("app", "all run 1.0.0", at_rest).await.with_context(|| controller.tail())?;
    releases::runs(place.leaf("dev"), n, "app", "1.1.0", true).await?;
    place.until_promotions("app", "prod", &["1.1.0 Pending"]).await.with_context(|| controller.tail())?;
    Ok(Waiting { controller, repo, _git: git })
}

#[test]
fn each_person_sees_and_does_on_the_pages_what_rbac_allows() -> Result<()> {
    run(async {
        let fixture = PageFixture::new().await?;
        fixture.each_person_sees_what_rbac_allows().await?;
        fixture.the_page_shows_the_planned_change().await?;
        fixture.only_the_editor_suspends().await?;
        fixture.an_approval_counts_only_for_what_was_seen().await?;
        fixture.the_editor_resumes_by_the_api().await?;
        fixture.a_session_ends_with_its_account().await
    })
}

/// A promotion that waits for an approval, and people with different rights in its namespace.
struct PageFixture {
    waiting: Waiting,
    place: TestNamespace,
    viewer: Person,
    editor: Person,
    approver: Person,
    /// A person who may get Pipelines but no Promotions.
    half: Person,
    nobody: Person,
    /// The name of the promotion.
    name: String,
    /// The path of the page of the pipeline.
    pipeline: String,
    /// The path of the page of the promotion.
    promotion: String,
}

impl PageFixture {
    async fn new() -> Result<PageFixture> {
        let place = TestNamespace::new("page").await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let waiting = waiting(&place, &[&api, "--api-actions"]).await?;
        let base = format!("http://{address}");

        let see = [rule("pipelines", &["get"]), rule("promotions", &["get"])];
        let person = async |name: &str, more: &[Value]| {
            Person::new(&place, &base, name, json!([&see[..], more].concat())).await
        };
        let viewer = person("viewer", &[]).await?;
        let edit = [rule("promotions", &["patch"]), rule("pipelines", &["patch"])];
        let editor = person("editor", &edit).await?;
        let approver = person("approver", &[rule("promotions", &["patch", "approve"])]).await?;
        let half = Person::new(&place, &base, "half", json!([rule("pipelines", &["get"])])).await?;
        let nobody = Person::new(&place, &base, "nobody", json!([])).await?;

        let name = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let n = &place.namespace;
        let (pipeline, promotion) = (format!("/pipelines/{n}/app"), format!("/promotions/{n}/{name}"));
        eventually(SOON, || async {
            let (_, page) = viewer.get(&pipeline).await?;
            ensure!(page.contains("waits for approval"), "{page}");
            Ok(())
        })
        .await
        .with_context(|| waiting.controller.tail())?;
        Ok(PageFixture { waiting, viewer, editor, approver, half, nobody, name, pipeline, promotion, place })
    }

    fn approve(&self) -> String {
        format!("{}/approve", self.promotion)
    }

    async fn each_person_sees_what_rbac_allows(&self) -> Result<()> {
        let pipeline = &self.pipeline;
        let (approve, change) = (self.approve(), format!("{}/change", self.promotion));
        let (objects, triggers) = (format!("{pipeline}/objects"), format!("{pipeline}/triggers"));
        for (who, person, sees, confirms) in [
            ("viewer", &self.viewer, StatusCode::OK, StatusCode::FORBIDDEN),
            ("editor", &self.editor, StatusCode::OK, StatusCode::FORBIDDEN),
            ("approver", &self.approver, StatusCode::OK, StatusCode::OK),
            ("half", &self.half, StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
            ("nobody", &self.nobody, StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        ] {
            for (path, wanted) in [
                (pipeline, sees),
                (&objects, sees),
                (&triggers, sees),
                (&self.promotion, sees),
                (&change, sees),
                (&approve, confirms),
            ] {
                let (status, text) = person.get(path).await?;
                ensure!(status == wanted, "{who} gets {status} for {path}: {text}");
            }
            for path in [pipeline, &format!("{pipeline}/tree"), &triggers, &self.promotion] {
                let (status, answer) = person.ask(path).await?;
                ensure!(status == sees, "{who} gets {status} for {path}: {answer}");
            }
            // Nobody of them may get the GitopsCluster of dev.
            let (_, answer) = person.ask(&triggers).await?;
            ensure!(!answer.to_string().contains("HelmRepository"), "{who} sees {answer}");
            let (_, list) = person.ask("/pipelines").await?;
            ensure!((list["items"] == json!([])) == (sees != StatusCode::OK), "{who} sees {list}");
            let (_, list) = person.get("/").await?;
            ensure!(list.contains(pipeline) == (sees == StatusCode::OK), "{who} sees {list}");
            if confirms != StatusCode::OK {
                self.cannot_approve(who, person, confirms).await?;
            }
        }
        Ok(())
    }

    async fn cannot_approve(&self, who: &str, person: &Person, refused: StatusCode) -> Result<()> {
        let approve = self.approve();
        let (status, text) = person.post(&approve, "generation=1&revision=1.1.0").await?;
        ensure!(status == refused, "{who} approves: {status} {text}");
        let (_, answer) = self.approver.ask(&self.promotion).await?;
        let (status, text) = person.act(&approve, &answer["seen"]).await?;
        ensure!(status == refused, "{who} approves by the API: {status} {text}");
        Ok(())
    }

    /// What is approved is what the delivery commits.
    async fn the_page_shows_the_planned_change(&self) -> Result<()> {
        let (_, planned) = self.viewer.get(&format!("{}/change", self.promotion)).await?;
        let at = format!("title=\"{}\"", self.waiting.repo.head("main")?);
        for said in [FILE, "line 2", "<del><bdi>1.0.0</bdi></del> → <ins><bdi>1.1.0</bdi></ins>", &at] {
            ensure!(planned.contains(said), "no {said}: {planned}");
        }
        Ok(())
    }

    async fn only_the_editor_suspends(&self) -> Result<()> {
        let suspend = format!("{}/suspend", self.pipeline);
        ensure!(self.approver.post(&suspend, "generation=1").await?.0 == StatusCode::FORBIDDEN);
        let (_, form) = self.editor.get(&suspend).await?;
        let (status, text) = self.editor.post(&suspend, &seen(&form)?).await?;
        ensure!(status == StatusCode::SEE_OTHER, "{status} {text}");
        let suspended = |p: &sluice_api::Pipeline| p.spec.suspend;
        self.place.until("app", "it is suspended", suspended).await?;
        Ok(())
    }

    async fn an_approval_counts_only_for_what_was_seen(&self) -> Result<()> {
        let (approve, approver) = (self.approve(), &self.approver);
        // An old page does not approve.
        let (status, text) = approver.post(&approve, "generation=1&revision=1.1.0").await?;
        ensure!(status == StatusCode::CONFLICT && text.contains("look again"), "{status} {text}");
        let (_, form) = approver.get(&approve).await?;
        let fields = format!("{}&revision=1.1.0", seen(&form)?);
        let (status, text) = approver.post(&approve, &fields).await?;
        ensure!(status == StatusCode::SEE_OTHER, "{status} {text}");
        let approval = self.place.promotions().get(&self.name).await?.spec.approval.context("no approval")?;
        let account = format!("system:serviceaccount:{}:approver", self.place.namespace);
        ensure!(approval.by == account, "{approval:?}");
        Ok(())
    }

    /// The pipeline is resumed if the editor has seen that it is suspended. Then the approved revision is delivered.
    async fn the_editor_resumes_by_the_api(&self) -> Result<()> {
        let (editor, resume) = (&self.editor, format!("{}/resume", self.pipeline));
        ensure!(editor.act(&resume, &json!("another")).await?.0 == StatusCode::CONFLICT);
        let (status, text) = editor.act(&resume, &editor.ask(&self.pipeline).await?.1["seen"]).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status} {text}");
        self.the_log_names_who_acted()?;
        eventually(SOON, || async {
            let file = self.waiting.repo.read("main", FILE)?;
            ensure!(file.contains("1.1.0"), "{file}");
            Ok(())
        })
        .await
        .with_context(|| self.waiting.controller.tail())
    }

    /// Actions on the pages and by the API are logged.
    fn the_log_names_who_acted(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.waiting.controller.log())?;
        let n = &self.place.namespace;
        for (person, action) in [("editor", "suspend"), ("approver", "approve"), ("editor", "resume")] {
            let promotion =
                if action == "approve" { format!(" promotion=\"{}\"", self.name) } else { String::new() };
            let line = format!(
                "a person has acted person=\"system:serviceaccount:{n}:{person}\" action=\"{action}\" pipeline=\"{n}/app\"{promotion}"
            );
            ensure!(log.contains(&line), "the log does not have {line}: {}", self.waiting.controller.tail());
        }
        Ok(())
    }

    async fn a_session_ends_with_its_account(&self) -> Result<()> {
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
            kube::Api::namespaced(self.place.shared.hub.client().await?, &self.place.namespace);
        accounts.delete("viewer", &Default::default()).await?;
        eventually(SOON, || async {
            let (status, text) = self.viewer.get(&self.pipeline).await?;
            ensure!(status == StatusCode::SEE_OTHER, "still signed in: {status} {text}");
            Ok(())
        })
        .await
    }
}
