//! Sign-in at a real identity provider, Dex, whose ID tokens a real API server accepts. The tests check what each
//! person sees and may do, codes of other people, sessions that end, and a provider that is down.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{Api, ResourceExt};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::{Browser, Cluster, Dex, DexClient, GitServer, Scratch, eventually, shared_flux};

use crate::browser::LOOKS;
use crate::page::rule;
use crate::place::{SOON, revision};
use crate::process::Controller;
use crate::{releases, run};

const CLIENT: &str = "sluice";
const SECRET: &str = "the secret of sluice";
/// A person who may see the pipeline and approve.
const JANE: &str = "jane@example.com";
/// A person who may see the pipeline.
const JOE: &str = "joe@example.com";
/// A person who may do nothing.
const EVE: &str = "eve@example.com";
const PIPELINE: &str = "/pipelines/apps/app";
/// A person whose e-mail address is the name of a service account.
const ROBOT: &str = "system:serviceaccount:apps:robot";
/// How long an ID token lasts.
const TOKEN_LIFETIME: Duration = Duration::from_secs(45);

/// A hub that trusts an identity provider, and a controller whose page sends people to this provider to sign in. A
/// promotion of 1.1.0 waits for an approval.
struct Fixture {
    controller: Mutex<Controller>,
    base: String,
    dex: Dex,
    hub: Cluster,
    _scratch: Scratch,
    _git: GitServer,
}

impl Fixture {
    async fn new() -> Result<Fixture> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let plane = &shared_flux().await?.plane;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let base = format!("http://{address}");
        let redirect = format!("{base}/sign-in/callback");
        let client = |id: &str, secret: Option<&str>| DexClient {
            id: id.into(),
            secret: secret.map(str::to_owned),
            redirect: redirect.clone(),
        };
        let clients = [client(CLIENT, Some(SECRET)), client("another", None)];
        let lifetime = format!("{}s", TOKEN_LIFETIME.as_secs());
        let dex = plane.issuer(&clients, &[JANE, JOE, EVE, ROBOT], &lifetime).await?;
        let name = format!("oidc{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let hub = plane.cluster_trusting(&name, &dex, CLIENT).await?;
        hub.install_flux_crds().await?;
        hub.install_sluice_crds().await?;
        let git = pipeline(&hub).await?;
        let scratch = Scratch::new("sign-in")?;
        std::fs::write(scratch.path().join("secret"), format!("{SECRET}\n"))?;
        std::fs::write(scratch.path().join("key"), format!("{}=\n", "A".repeat(43)))?;
        let file = |flag: &str, name: &str| format!("--{flag}={}", scratch.path().join(name).display());
        let files = [file("oidc-client-secret-file", "secret"), file("session-key-file", "key")];
        let flags = flags(&address, &dex, CLIENT);
        let flags: Vec<&str> = flags.iter().chain(&files).map(String::as_str).collect();
        let controller = Controller::start(&hub, "apps", &flags)?;
        let fixture =
            Fixture { controller: Mutex::new(controller), base, dex, hub, _scratch: scratch, _git: git };
        fixture.wait_for_approval().await.with_context(|| fixture.tail())?;
        Ok(fixture)
    }

    fn tail(&self) -> String {
        self.controller.lock().unwrap().tail()
    }

    async fn wait_for_approval(&self) -> Result<()> {
        let client = self.hub.client().await?;
        let pipelines: Api<Pipeline> = Api::namespaced(client.clone(), "apps");
        eventually(SOON, || async {
            let found = pipelines.get("app").await?;
            let runs = ["dev", "prod"].map(|environment| revision(&found, environment));
            ensure!(runs == ["1.0.0", "1.0.0"], "{runs:?}");
            Ok(())
        })
        .await?;
        releases::runs(&self.hub, "dev", "app", "1.1.0", true).await?;
        let promotions: Api<Promotion> = Api::namespaced(client, "apps");
        eventually(SOON, || async {
            let all = promotions.list(&Default::default()).await?.items;
            ensure!(all.iter().any(|found| found.spec.revision == "1.1.0"), "no promotion yet");
            Ok(())
        })
        .await
    }

    async fn promotion(&self) -> Result<Promotion> {
        let promotions: Api<Promotion> = Api::namespaced(self.hub.client().await?, "apps");
        promotions.list(&Default::default()).await?.items.pop().context("no promotion")
    }

    fn person(&self) -> Result<Person<'_>> {
        let authority = reqwest::Certificate::from_pem(self.dex.ca().as_bytes())?;
        // Redirects within the provider are followed. The redirect back to the page is not followed.
        let back = Policy::custom(|attempt| match attempt.url().path() {
            "/sign-in/callback" => attempt.stop(),
            _ => attempt.follow(),
        });
        Ok(Person {
            base: &self.base,
            http: Client::builder().redirect(Policy::none()).build()?,
            at_provider: Client::builder().tls_certs_only([authority]).redirect(back).build()?,
            cookies: Mutex::default(),
        })
    }

    /// Returns the browser of a person who has signed in at the provider.
    async fn signed_in(&self, email: &str) -> Result<Person<'_>> {
        let person = self.person()?;
        let back = person.sign_in_at_provider(email, PIPELINE).await?;
        let answer = person.get(&back).await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == StatusCode::OK && text.contains(PIPELINE), "{email}: {status} {text}");
        Ok(person)
    }
}

fn flags(address: &str, dex: &Dex, client: &str) -> Vec<String> {
    vec![
        format!("--api-addr={address}"),
        "--api-actions".into(),
        format!("--page-url=http://{address}"),
        format!("--oidc-issuer={}", dex.issuer()),
        format!("--oidc-client-id={client}"),
        format!("--oidc-ca-file={}", dex.ca_file().display()),
    ]
}

/// Creates a pipeline whose environments are namespaces of the hub, and the permissions of the people.
async fn pipeline(hub: &Cluster) -> Result<GitServer> {
    let git = GitServer::start()?;
    let file = "spec:\n  version: 1.0.0 # {\"$promotion\": \"apps:app:prod\"}\n";
    let repo = git.create_repo("fleet", &[("prod/app.yaml", file)])?;
    for namespace in ["apps", "dev", "prod"] {
        hub.namespace(namespace).await?;
    }
    for namespace in ["dev", "prod"] {
        releases::create_running(hub, namespace, "app", "1.0.0").await?;
    }
    let metadata = |name: &str| json!({"name": name, "namespace": "apps"});
    let environment = |name: &str| json!({"name": name, "targets": [{"namespace": name}]});
    let credentials = json!({"username": GitServer::USER, "password": GitServer::PASSWORD});
    let commit = json!({"url": repo.url(), "branch": "main", "secretRef": {"name": "git"}});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("git"), "stringData": credentials}),
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": metadata("app"),
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "app"},
                "environments": [environment("dev"), environment("prod")],
                "promotion": {"manual": true, "strategy": {"commit": commit}}}}),
    ];
    let see = [rule("pipelines", &["get"]), rule("promotions", &["get"])];
    for (name, person, more) in
        [("joe", JOE, vec![]), ("jane", JANE, vec![rule("promotions", &["patch", "approve"])])]
    {
        let (group, rules) = ("rbac.authorization.k8s.io", [&see[..], &more].concat());
        objects.push(json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata(name),
            "rules": rules}));
        objects.push(
            json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata(name),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": person}]}),
        );
    }
    let yaml: Vec<String> = objects.iter().map(Value::to_string).collect();
    hub.apply_yaml(&yaml.join("\n---\n")).await?;
    Ok(git)
}

/// A person with a browser.
struct Person<'a> {
    base: &'a str,
    http: Client,
    at_provider: Client,
    cookies: Mutex<BTreeMap<String, String>>,
}

impl Person<'_> {
    /// Begins a sign-in, signs in at the provider, and returns the path with a code to which the provider redirects.
    async fn sign_in_at_provider(&self, email: &str, to: &str) -> Result<String> {
        let redirect = self.get(&format!("/sign-in/oidc?to={to}")).await?;
        let (status, address) = (redirect.status(), location(&redirect));
        ensure!(status == StatusCode::SEE_OTHER, "{status} {}", redirect.text().await?);
        let form = self.at_provider.get(&address).send().await?;
        let login = form.url().clone();
        let fields = format!("login={}&password={}", email.replace('@', "%40"), Dex::PASSWORD);
        let request = self.at_provider.post(login).body(fields);
        let back = request.header("content-type", "application/x-www-form-urlencoded").send().await?;
        let way = location(&back);
        let path = way.strip_prefix(self.base);
        let path = path.map(str::to_string);
        match path {
            Some(path) => Ok(path),
            None => anyhow::bail!("{email} cannot sign in at the provider: {way} {}", back.text().await?),
        }
    }

    async fn get(&self, path: &str) -> Result<Response> {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Opens a page. If the sign-in needs no input, follows its redirects.
    async fn open(&self, path: &str) -> Result<(StatusCode, String)> {
        let mut answer = self.get(path).await?;
        for _ in 0..3 {
            if answer.status() != StatusCode::SEE_OTHER {
                break;
            }
            answer = self.get(&location(&answer)).await?;
        }
        Ok((answer.status(), answer.text().await?))
    }

    async fn post(&self, path: &str, fields: &str) -> Result<Response> {
        let request = self.http.post(format!("{}{path}", self.base)).body(fields.to_string());
        self.send(request.header("content-type", "application/x-www-form-urlencoded")).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response> {
        let cookies: Vec<String> =
            self.cookies.lock().unwrap().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = request.header(COOKIE, cookies.join("; ")).send().await?;
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let pair = cookie.to_str()?.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').context("no cookie")?;
            self.cookies.lock().unwrap().insert(name.into(), value.into());
        }
        Ok(answer)
    }

    fn cookie(&self, name: &str) -> String {
        self.cookies.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

fn location(answer: &Response) -> String {
    answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default().into()
}

/// Returns the value of a hidden field of a page.
fn hidden<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    let field = page.split(&format!("name=\"{name}\" value=\"")).nth(1).with_context(|| page.to_owned())?;
    field.split('"').next().context("no end")
}

#[test]
fn people_of_an_identity_provider_see_and_do_what_rbac_allows() -> Result<()> {
    run(async {
        let fixture = Fixture::new().await?;
        let promotion = format!("/promotions/apps/{}", fixture.promotion().await?.name_any());
        let approve = format!("{promotion}/approve");
        let (jane, joe, eve) = (
            fixture.signed_in(JANE).await.with_context(|| fixture.tail())?,
            fixture.signed_in(JOE).await?,
            fixture.signed_in(EVE).await?,
        );
        for (name, person, sees, confirms) in [
            (JANE, &jane, StatusCode::OK, StatusCode::OK),
            (JOE, &joe, StatusCode::OK, StatusCode::FORBIDDEN),
            (EVE, &eve, StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        ] {
            for (path, wanted) in [(PIPELINE, sees), (&promotion, sees), (&approve, confirms)] {
                let (status, text) = person.open(path).await?;
                ensure!(status == wanted && text.contains(name), "{name} gets {status} for {path}: {text}");
            }
        }
        let (_, page) = jane.open(&approve).await?;
        let fields = format!("token={}&seen={}", hidden(&page, "token")?, hidden(&page, "seen")?);
        // The form of another person is refused.
        let refused = joe.post(&approve, &fields).await?.status();
        ensure!(refused == StatusCode::FORBIDDEN, "{refused}");
        let answer = jane.post(&approve, &fields).await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{}", answer.text().await?);
        let approval = fixture.promotion().await?.spec.approval.context("no approval")?;
        ensure!(approval.by == JANE, "{approval:?}");

        // Sessions survive a restart, with a key in a file.
        fixture.controller.lock().unwrap().restart(true)?;
        eventually(SOON, || async {
            let (status, text) = jane.open(PIPELINE).await?;
            ensure!(status == StatusCode::OK && text.contains(JANE), "{status} {text}");
            Ok(())
        })
        .await?;

        // The token expires, and the session continues with a new token.
        let session = jane.cookie("sluice-session");
        eventually(TOKEN_LIFETIME + SOON, || async {
            let (status, text) = jane.open(PIPELINE).await?;
            ensure!(status == StatusCode::OK && text.contains(JANE), "{status} {text}");
            ensure!(jane.cookie("sluice-session") != session, "the token has not ended yet");
            Ok(())
        })
        .await?;
        // If the session at the provider has ended, the session of the page ends with its token. Dex forgets all
        // sessions when it starts.
        fixture.dex.start().await?;
        eventually(TOKEN_LIFETIME + SOON, || async {
            let (_, text) = joe.open(PIPELINE).await?;
            ensure!(text.contains("Sign in at 127.0.0.1"), "{text}");
            Ok(())
        })
        .await?;
        let log = std::fs::read_to_string(fixture.controller.lock().unwrap().log())?;
        for secret in [SECRET, Dex::PASSWORD, "eyJ", "code="] {
            ensure!(!log.contains(secret), "the log contains {secret}: {log}");
        }
        Ok(())
    })
}

#[test]
fn nobody_is_signed_in_by_a_code_of_others_or_while_the_provider_is_down() -> Result<()> {
    run(async {
        let fixture = Fixture::new().await?;
        let refused = async |person: &Person<'_>, path: &str, said: &str| -> Result<()> {
            let answer = person.get(path).await?;
            let (status, text) = (answer.status(), answer.text().await?);
            let session = person.cookie("sluice-session");
            ensure!(!status.is_success() && text.contains(said), "{said}: {status} {text}");
            ensure!(session.is_empty(), "a session");
            Ok(())
        };
        let not_begun_here = "not begun in this browser";
        let (eve, victim) = (fixture.person()?, fixture.person()?);
        let of_eve = eve.sign_in_at_provider(EVE, "/").await?;
        refused(&victim, &of_eve, not_begun_here).await?;
        let own = victim.sign_in_at_provider(JANE, "/").await?;
        let part = |path: &str, name: &str| {
            let rest = path.split(&format!("{name}=")).nth(1).unwrap_or_default();
            rest.split('&').next().unwrap_or_default().to_string()
        };
        refused(&victim, &own.replace(&part(&own, "state"), "guessed"), not_begun_here).await?;
        // The state is right, but the code is from another sign-in. The provider rejects the code, because it was
        // requested with another verifier.
        refused(
            &victim,
            &own.replace(&part(&own, "code"), &part(&of_eve, "code")),
            "refuses it: invalid_grant",
        )
        .await?;
        // A code is accepted once, even from the browser that requested it.
        let again = fixture.person()?;
        let back = again.sign_in_at_provider(JANE, "/").await?;
        let flow = again.cookie("sluice-sign-in");
        ensure!(again.get(&back).await?.status() == StatusCode::OK, "{}", fixture.tail());
        let replayed = fixture.person()?;
        replayed.cookies.lock().unwrap().insert("sluice-sign-in".into(), flow);
        refused(&replayed, &back, "refuses it: invalid_grant").await?;

        // The API server does not accept ID tokens for another client, even if Sluice accepts them.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let flags: Vec<String> = flags(&address, &fixture.dex, "another");
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let page_url = format!("--page-url={}", fixture.base);
        flags.retain(|flag| !flag.starts_with("--page-url"));
        flags.push(&page_url);
        let other = Controller::start(&fixture.hub, "apps", &flags)?;
        let base = format!("http://{address}");
        let stranger = Person { base: &base, ..fixture.person()? };
        eventually(SOON, || async { stranger.get("/sign-in").await.map(drop) }).await?;
        let redirect = location(&stranger.get("/sign-in/oidc").await?);
        ensure!(redirect.starts_with(&fixture.dex.issuer()), "{redirect} {}", other.tail());
        let login = stranger.at_provider.get(&redirect).send().await?.url().clone();
        let form = format!("login={}&password={}", JANE.replace('@', "%40"), Dex::PASSWORD);
        let request = stranger.at_provider.post(login).body(form);
        let back = request.header("content-type", "application/x-www-form-urlencoded").send().await?;
        let back = location(&back);
        let path = back.strip_prefix(&fixture.base).context("no way back")?;
        refused(&stranger, path, "does not accept the ID token").await?;

        // A person whose name is one of Kubernetes is refused by the rule of docs/page.md.
        let robot = fixture.person()?;
        let back = robot.sign_in_at_provider(ROBOT, "/").await?;
        refused(&robot, &back, "does not accept the ID token").await?;

        // The provider does not answer in time, and then not at all.
        let late = fixture.person()?;
        let back = late.sign_in_at_provider(JANE, "/").await?;
        fixture.dex.freeze()?;
        refused(&late, &back, "it took longer than 10 s").await?;
        fixture.dex.thaw()?;
        let back = late.sign_in_at_provider(JANE, "/").await?;
        fixture.dex.stop();
        refused(&late, &back, "does not answer").await?;
        let token = fixture.hub.service_account_token("apps", "robot").await?;
        let answer = late.post("/sign-in", &format!("token={token}")).await?;
        ensure!(
            answer.status() == StatusCode::SEE_OTHER,
            "the token form still works: {}",
            answer.text().await?
        );
        Ok(())
    })
}

#[test]
fn a_person_signs_in_at_the_provider_with_a_browser_and_approves() -> Result<()> {
    run(async {
        let fixture = Fixture::new().await?;
        let browser = Browser::start().await?;
        browser.accept_certificates().await?;
        browser.open(&format!("{}{PIPELINE}", fixture.base)).await?;
        browser.until_address("/sign-in?to=").await?;
        for (name, look) in LOOKS {
            browser.look(look).await?;
            let faults = browser.faults().await?;
            ensure!(faults.is_empty(), "{name}: {faults:?}");
            // `make screenshots` names a folder for pictures.
            if let Some(folder) = std::env::var_os("SLUICE_SCREENSHOTS") {
                browser.picture(&PathBuf::from(folder).join(format!("sign-in-{name}.png"))).await?;
            }
        }
        browser.look(LOOKS[0].1).await?;
        browser.click(".sign-in a.button").await?;
        browser.until_address("/dex/auth/local").await?;
        browser.write("#login", JANE).await?;
        browser.write("#password", Dex::PASSWORD).await?;
        browser.click("#submit-login").await?;
        browser.until_address(PIPELINE).await.with_context(|| fixture.tail())?;
        browser.until_text("1.1.0 waits for approval").await?;
        browser.press("a").await?;
        browser.until_text("Approve 1.1.0 into prod?").await?;
        browser.click("form button.main").await?;
        browser.until_text(&format!("{JANE} approved it")).await?;
        // A link on another site leads to the page, although the browser does not send the session with it.
        let link = format!("{}{PIPELINE}", fixture.base);
        let elsewhere = format!("data:text/html,<a id=link href='{link}'>Open</a>");
        browser.open(&elsewhere).await?;
        browser.click("#link").await?;
        browser.until_address(&link).await?;
        browser.until_text("1.1.0").await?;
        browser.click(".end form button").await?;
        browser.until_text("You are signed out here").await?;
        browser.open(&link).await?;
        browser.until_address("/sign-in?to=").await?;
        Ok(())
    })
}
