//! Hostile forges: answers that are too large, too deep, too slow or endless, and redirects.
//! Memory is measured in a process of its own, which may have 512 MiB.

use std::cell::Cell;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::join_all;
use serde_json::json;
use sluice_delivery::{
    AllowedHosts, ChangeRequest, ChangeRequestStatus, Credentials, DeliveryStrategy, ForgeKind, Order, Retry,
    Settings,
};
use sluice_testkit::GitServer;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::any_forge::ForgeFixture;
use crate::change_request::{merging, proposed, waits};
use crate::fixture::{self, again, bench, bench_with};
use crate::standin::{CallKind, CheckOutcome, ForgeFault, TOKEN};

const MIB: usize = 1 << 20;
/// The most that the process under attack may have.
const LIMIT_KIB: usize = 512 * 1024;
/// How long all attacks may take together. A pattern that takes exponential time does not end.
const ALL_ATTACKS: Duration = Duration::from_secs(300);
/// How long another promotion may take meanwhile.
const OTHERS: Duration = Duration::from_secs(30);

/// Answers of 16 MiB that would take a multiple of it once they are parsed, each with its status, and with the reason
/// and the end of the sentence that the promotion gets.
fn large_answers() -> Vec<(u16, &'static str, &'static str, &'static str)> {
    let fill = |begin: &str, part: &str, end: &str| -> &'static str {
        let parts = (16 * MIB - begin.len() - end.len()) / part.len();
        format!("{begin}{}{end}", part.repeat(parts).trim_end_matches(',')).leak()
    };
    let (reason, end) = (
        "AnswerTooLarge",
        "/prod is searched is too large (it has more than 8 MiB); others have opened too many or too large ones: delete \
         those that nobody needs",
    );
    // No word of a text that is too large to be read is shown.
    let refused = "refused with status 422: no reason given";
    let unreachable = "cannot be reached: status 502: no reason given; check that the forge runs, its address in the pipeline, \
                       DNS and the network";
    vec![
        (200, fill("[", "[],", "]"), reason, end),
        (200, fill("[", r#"{"id":{"id":{}}},"#, "]"), reason, end),
        (201, fill("", "[", ""), reason, end),
        (200, fill(r#"{"title":""#, "a", r#""}"#), reason, end),
        (422, fill(r#"{"message":""#, "a", r#""}"#), "ForgeRefused", refused),
        (422, fill(r#"{"errors":["#, r#"{"message":{"a":[]}},"#, "]}"), "ForgeRefused", refused),
        (502, fill("", "<html>", ""), "Unreachable", unreachable),
    ]
}

#[tokio::test]
async fn hostile_forges_fail_only_the_promotions_that_use_them() {
    let program = std::env::current_exe().unwrap();
    let limited = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh");
    child
        .args(["-c", &limited])
        .arg(program)
        .args(["hostile_forge::process_with_512_mib", "--exact", "--ignored", "--nocapture"])
        // Each would reserve address space that it does not use.
        .env("MALLOC_ARENA_MAX", "1")
        .kill_on_drop(true);
    let output =
        tokio::time::timeout(ALL_ATTACKS, child.output()).await.expect("an attack does not end").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(4000).collect::<String>();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[tokio::test]
#[ignore = "hostile_forges_fail_only_the_promotions_that_use_them runs it in a process with a memory limit"]
async fn process_with_512_mib() {
    let (forge, other) = (ForgeFixture::github().await, ForgeFixture::of(ForgeKind::Gitea).await);
    let attack_is_over = Cell::new(false);
    let attacks = async {
        large_answers_are_refused(&forge).await;
        large_headers_are_not_kept(&forge).await;
        a_pattern_of_many_stars_is_matched().await;
        large_change_requests_from_forks_hide_nothing(ForgeKind::Gitea).await;
        thousands_of_change_requests_from_forks_are_refused().await;
        attack_is_over.set(true);
    };
    let others = async {
        let bench = bench();
        for version in (0..).map(|n| format!("6.{n}.0")).take_while(|_| !attack_is_over.get()) {
            let began = Instant::now();
            proposed(&bench.delivery, &other.order(&version)).await;
            assert!(began.elapsed() < OTHERS, "{version}: {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(attacks, others);
}

/// Each answer fails the promotions that get it, each of another pipeline and with a token of its own.
async fn large_answers_are_refused(forge: &ForgeFixture) {
    let bench = bench();
    for (status, text, reason, end) in large_answers() {
        let orders = (0..6).map(|n| {
            let mut order = again(&forge.order("6.1.8"));
            order.pipeline = format!("podinfo-{n}");
            order.credentials.token = Some(format!("t0ken-{n}"));
            order
        });
        let orders: Vec<Order> = orders.collect();
        orders.iter().for_each(|_| {
            forge.standin().inject_fault(CallKind::List, ForgeFault::Answer(status, vec![], text));
        });
        for failed in join_all(orders.iter().map(|order| bench.delivery.deliver(order))).await {
            let error = failed.unwrap_err();
            assert_eq!(error.reason(), reason, "{status}: {error}");
            let text = error.to_string();
            assert!(text.ends_with(end) && text.len() < 700, "{status}: {text}");
        }
    }
}

/// A required check with a pattern that takes exponential time in some implementations.
async fn a_pattern_of_many_stars_is_matched() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Gitea).await, bench());
    let order = merging(&fixture, "6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &[&"*a".repeat(500)], 0).await;
    fixture.check(request.number, &format!("{}c", "ab".repeat(5000)), CheckOutcome::Green).await;
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert!(why.starts_with("waits for checks: *a*a") && !failed, "{why}");
    assert!(why.len() < 700, "{}", why.len());
}

/// What is remembered of many change requests stays small, whatever the forge sends as their version.
async fn large_headers_are_not_kept(forge: &ForgeFixture) {
    let (bench, order) = (bench(), forge.order("6.1.8"));
    let version: &'static str = format!("\"{}\"", "v".repeat(380_000)).leak();
    for number in 1..=1500 {
        let pull = json!({
            "number": number, "html_url": "https://forge/1", "state": "open", "title": "t",
            "head": {"ref": "other", "sha": "1".repeat(40)}, "base": {"ref": "main"},
            "created_at": "2026-01-02T03:04:05Z",
        });
        let answer = ForgeFault::Answer(200, vec![("etag", version.into())], pull.to_string().leak());
        forge.standin().inject_fault(CallKind::Read, answer);
        let request = ChangeRequest {
            number,
            url: "https://forge/1".into(),
            branch: "other".into(),
            head_commit: "1".repeat(40),
            notes: vec![],
            queued: false,
        };
        assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), ChangeRequestStatus::Elsewhere);
    }
}

#[tokio::test]
async fn an_endless_list_is_not_read_and_nothing_is_opened() {
    for kind in [ForgeKind::Gitea, ForgeKind::Bitbucket, ForgeKind::GitHub, ForgeKind::BitbucketServer] {
        let (fixture, bench) = (ForgeFixture::of(kind).await, bench());
        let stranger = json!({
            "number": 7, "html_url": "https://forge/7", "state": "open", "title": "t", "merged": false,
            "head": {"ref": "other", "label": "other", "sha": "1".repeat(40), "repo_id": 1},
            "base": {"ref": "main", "label": "main", "repo_id": 1}, "created_at": "2199-01-02T03:04:05Z",
        });
        let page = match kind {
            ForgeKind::Bitbucket => json!({"values": [], "next": "http://forge/next"}),
            ForgeKind::BitbucketServer => json!({"values": [], "isLastPage": false, "nextPageStart": 7}),
            _ => vec![stranger; 100].into(),
        };
        let page: &'static str = page.to_string().leak();
        for _ in 0..2000 {
            fixture.standin().inject_fault(CallKind::List, ForgeFault::Answer(200, vec![], page));
        }
        let error = bench.delivery.deliver(&again(&fixture.order("6.1.8"))).await.unwrap_err();
        assert_eq!(error.reason(), "AnswerTooLarge", "{kind:?}: {error}");
        assert!(fixture.standin().calls().len() < 60, "{kind:?}");
        assert!(fixture.standin().pulls().is_empty());
    }
}

/// Somebody opens so many change requests from forks, with bodies of this size.
fn flood(fixture: &ForgeFixture, count: usize, body: usize) {
    let standin = fixture.standin();
    let known = standin.pulls().len();
    (0..count).for_each(|_| standin.open_from_a_fork("sluice/apps/podinfo/prod"));
    standin.forge_state(|b| b.pulls[known..].iter_mut().for_each(|pull| pull.body = "x".repeat(body)));
}

#[tokio::test]
async fn large_change_requests_from_forks_do_not_hide_sluices_own() {
    for kind in [ForgeKind::Forgejo, ForgeKind::GitLab] {
        large_change_requests_from_forks_hide_nothing(kind).await;
    }
}

async fn large_change_requests_from_forks_hide_nothing(kind: ForgeKind) {
    let (fixture, bench) = (ForgeFixture::of(kind).await, bench());
    let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    fixture.merge(first.number).await;
    flood(&fixture, 60, 200_000);
    flood(&fixture, 1, 9 * MIB);
    let order = fixture.order("6.2.0");
    let second = proposed(&bench.delivery, &order).await;
    assert_eq!(second.number, 63, "{kind:?}");
    flood(&fixture, 60, 200_000);
    assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, second.number, "{kind:?}");
    // They are listed also after a maintainer has closed them.
    fixture.standin().forge_state(|b| b.pulls.iter_mut().for_each(|pull| pull.open &= !pull.fork));
    assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, second.number, "{kind:?}");
    assert_eq!(proposed(&bench.delivery, &fixture.order("6.3.0")).await.number, second.number, "{kind:?}");
}

/// Change requests from forks block a promotion only if they hide its change request.
async fn thousands_of_change_requests_from_forks_are_refused() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Gitea).await, bench());
    let first = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &first).await;
    flood(&fixture, 2_500, 10);
    // The lookup by base and head has it.
    assert_eq!(proposed(&bench.delivery, &again(&first)).await, request);
    fixture.merge(request.number).await;
    // The forge says whether there is an open one.
    let second = fixture.order("6.2.0");
    let request = proposed(&bench.delivery, &second).await;
    assert_eq!(proposed(&bench.delivery, &again(&second)).await.number, request.number);
    flood(&fixture, 2_500, 10);
    let error = bench.delivery.deliver(&again(&second)).await.unwrap_err();
    assert_eq!(error.reason(), "AnswerTooLarge", "{error}");
    let says = error.to_string();
    assert!(says.contains("the one from sluice/apps/podinfo/prod is searched is too large"), "{says}");
    assert!(!says.contains("check that url"), "{says}");
    assert_eq!(fixture.standin().pulls().iter().filter(|pull| !pull.fork).count(), 2);
}

#[tokio::test]
async fn an_endless_list_of_checks_prevents_a_merge() {
    for kind in [ForgeKind::Gitea, ForgeKind::Bitbucket, ForgeKind::BitbucketServer, ForgeKind::GitHub] {
        let (fixture, bench) = (ForgeFixture::of(kind).await, bench());
        let order = merging(&fixture, "6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().change(request.number, |pull| {
            let green = |n| (format!("ci/{n}"), CheckOutcome::Green, request.head_commit.clone());
            pull.checks.extend((0..6000).map(green));
            pull.checks.push(("ci/last".into(), CheckOutcome::Failed, request.head_commit.clone()));
        });
        let error = bench.delivery.advance(&order, &request).await.unwrap_err();
        assert_eq!(error.reason(), "AnswerTooLarge", "{kind:?}: {error}");
        assert!(fixture.pulls().await[0].open, "{kind:?}");
    }
}

#[tokio::test]
async fn slow_pages_and_bodies_without_an_end_are_given_up_in_time() {
    let pages: &'static str = json!({"values": [], "next": "http://forge/next"}).to_string().leak();
    let slow = ForgeFault::Slow(Duration::from_millis(500), pages);
    for (trouble, times) in [(slow, 200), (ForgeFault::Drip, 1)] {
        let fixture = ForgeFixture::of(ForgeKind::Bitbucket).await;
        let bench = bench_with(|o| o.deadline = Duration::from_secs(2));
        for _ in 0..times {
            fixture.standin().inject_fault(CallKind::List, trouble.clone());
        }
        let began = Instant::now();
        let error = bench.delivery.deliver(&again(&fixture.order("6.1.8"))).await.unwrap_err();
        assert_eq!(error.reason(), "Timeout", "{error}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_redirect_gets_no_credentials_and_its_target_is_not_shown() {
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = format!("http://{}/elsewhere", stranger.local_addr().unwrap());
    let long = format!("{there}/{}?token=abc", "a".repeat(100_000));
    let strange = "\u{7}not an address".to_string();
    for location in [there.clone(), long, "//127.0.0.1:1/x".into(), strange] {
        for status in [301, 302, 307, 308] {
            let fixture = ForgeFixture::github().await;
            let location = location.replace('\u{7}', "\t");
            fixture
                .standin()
                .inject_fault(CallKind::Open, ForgeFault::Answer(status, vec![("location", location)], ""));
            let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err();
            assert_eq!(error.reason(), "Redirected", "{error}");
            let text = error.to_string();
            let (_, says) = text.split_once(": ").unwrap();
            assert_eq!(
                says,
                "redirects to another address; write the new address of the repository or of the API into the pipeline"
            );
        }
    }
    assert!(stranger.accept().now_or_never().is_none(), "the redirect was followed");
}

#[tokio::test]
async fn only_the_message_of_a_foreign_error_is_shown() {
    let cases = [
        (500, "secret page t0ken".to_string(), "status 500"),
        (403, "secret page".into(), "may not do this"),
        (400, r#"["secret", "page"]"#.into(), "status 400"),
        (400, r#"{"debug": "secret", "trace": ["page"]}"#.into(), "status 400"),
        (400, r#""secret page""#.into(), "status 400"),
        (400, r#"{"message": "no\u001b[31m red\u0007\r\n\u202e"}"#.into(), "no red"),
        (400, format!(r#"{{"message": "no {}"}}"#, "a".repeat(5000)), "no aaa"),
    ];
    for (status, text, words) in cases {
        let fixture = ForgeFixture::github().await;
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(status, vec![], text.leak()));
        let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error:?}");
        assert!(!error.contains("secret") && !error.contains("page") && error.len() < 600, "{error:?}");
        let escapes = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!error.chars().any(escapes) && !error.contains("[31m"), "{error:?}");
    }
}

#[tokio::test]
async fn a_secret_that_a_forge_repeats_is_not_shown() {
    let basic = STANDARD.encode(format!("{}:{}", GitServer::USER, GitServer::PASSWORD));
    let secrets = [TOKEN, GitServer::PASSWORD, &basic];
    for kind in ForgeKind::ALL {
        let fixture = ForgeFixture::of(kind).await;
        let text = json!({"message": format!("no access for {}", secrets.join(" or "))}).to_string();
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(400, vec![], text.leak()));
        let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err().to_string();
        assert!(error.contains("no access for *** or *** or ***"), "{kind:?}: {error}");
        assert!(!secrets.iter().any(|secret| error.contains(secret)), "{kind:?}: {error}");
    }
}

/// A tenant can name any server that Sluice reaches as a repository. What it answers is not for the tenant.
#[tokio::test]
async fn the_answer_of_a_server_that_is_no_git_server_is_not_shown() {
    let answer = async |axum::extract::Path((code, _)): axum::extract::Path<(u16, String)>| {
        let code = axum::http::StatusCode::from_u16(code).unwrap();
        (code, "secret page, first line\nand second\r\n")
    };
    let router = axum::Router::new().route("/{code}/{*rest}", axum::routing::get(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let shows_nothing = async |code: u16, words: &str, credentials: Credentials| {
        let url = format!("http://127.0.0.1:{port}/{code}/fleet.git");
        let mut order = fixture::order(DeliveryStrategy::Commit { url, branch: "main".into() }, "6.1.8");
        order.credentials = credentials;
        let error = bench().delivery.deliver(&order).await.unwrap_err().to_string();
        assert!(error.contains(words), "{code}: {error}");
        assert!(!["secret", "page", "second"].iter().any(|part| error.contains(part)), "{code}: {error}");
    };
    for (code, words) in [
        (200, "git"),
        (400, "error: 400"),
        (401, "does not accept the credentials"),
        (403, "error: 403"),
        (404, "there is no such repository"),
        (410, "error: 410"),
        (500, "error: 500"),
    ] {
        shows_nothing(code, words, Credentials::default()).await;
    }
    // Also if a secret is the word by which git marks the lines of a server.
    for word in ["remote", "remote:"] {
        let signing_passphrase = Some(word.to_string());
        shows_nothing(500, "500", Credentials { signing_passphrase, ..Credentials::default() }).await;
    }
}

#[tokio::test]
async fn a_host_that_is_not_allowed_gets_neither_git_nor_a_call() {
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = stranger.local_addr().unwrap().port();
    let allowed = || AllowedHosts::new(vec!["git.example.com:*".parse().unwrap()]);
    let bench = bench_with(|options| options.allowed_hosts = allowed());
    let base =
        fixture::order(DeliveryStrategy::Commit { url: String::new(), branch: "main".into() }, "6.1.8");
    let request = |url: String, api_url: Option<String>| DeliveryStrategy::PullRequest {
        forge: ForgeKind::GitHub,
        url,
        base: "main".into(),
        settings: Box::new(Settings { api_url, ..Settings::default() }),
    };
    let here = format!("http://127.0.0.1:{port}");
    let commit = |url: String| DeliveryStrategy::Commit { url, branch: "main".into() };
    let refused = [
        commit(format!("{here}/acme/fleet")),
        commit(format!("http://git.example.com@127.0.0.1:{port}/acme/fleet")),
        commit(format!("ssh://git@127.0.0.1:{port}/acme/fleet")),
        commit("git@evil.example:acme/fleet".into()),
        request(format!("{here}/acme/fleet"), None),
        request("https://git.example.com/acme/fleet".into(), Some(format!("{here}/api/v3"))),
    ];
    for strategy in refused {
        let error = bench.delivery.deliver(&Order { strategy, ..base.clone() }).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), ("AddressRefused", Retry::OnChange), "{error}");
        assert!(error.to_string().contains("--allowed-hosts"), "{error}");
    }
    // The Secret of a GitHub App says which server issues its tokens.
    let data = [
        ("githubAppID", "1".to_string()),
        ("githubAppPrivateKey", "none".into()),
        ("githubAppBaseURL", format!("{here}/api/v3")),
    ];
    let data = data.map(|(key, value)| (key.to_string(), value.into_bytes()));
    let mut order =
        Order { strategy: request("https://git.example.com/acme/fleet".into(), None), ..base.clone() };
    order.credentials = Credentials::from_secret(&data.into()).unwrap();
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "AddressRefused", "{error}");
    assert!(stranger.accept().now_or_never().is_none(), "somebody has called");
}

/// The address of the repository is encrypted, but not that of the API, which the Pipeline or the Secret names.
#[tokio::test]
async fn an_api_over_plain_http_gets_no_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}/api", listener.local_addr().unwrap());
    let careful = bench_with(|options| options.insecure_http = false);
    let app = [("githubAppID", "1"), ("githubAppPrivateKey", "none"), ("githubAppBaseURL", &api)];
    let app = app.map(|(key, value)| (key.to_string(), value.as_bytes().to_vec()));
    let app = Credentials::from_secret(&app.into()).unwrap();
    let token = Credentials { token: Some("t0ken".into()), ..Credentials::default() };
    for url in ["https://git.example.com/acme/fleet", "ssh://git@git.example.com/acme/fleet"] {
        for (credentials, api_url) in [(&token, Some(api.clone())), (&app, None)] {
            let settings = Box::new(Settings { api_url, ..Settings::default() });
            let (forge, url, base) = (ForgeKind::GitHub, url.into(), "main".into());
            let strategy = DeliveryStrategy::PullRequest { forge, url, base, settings };
            let order = Order { credentials: credentials.clone(), ..fixture::order(strategy, "6.1.8") };
            let error = careful.delivery.deliver(&order).await.unwrap_err();
            assert_eq!(error.reason(), "PlainHttpRefused", "{error}");
            assert!(error.to_string().contains(&api), "{error}");
        }
    }
    assert!(listener.accept().now_or_never().is_none(), "somebody has called");
}
