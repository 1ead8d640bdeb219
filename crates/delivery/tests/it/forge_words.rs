//! Answers that differ between forges: rejections, rate limits, conflicts, credentials, and shortened texts.

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use futures::FutureExt;
use sluice_delivery::{ChangeRequestStatus, Credentials, Delivered, ForgeKind, OutdatedReason, Retry};
use tokio::net::TcpListener;

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::proposed;
use crate::fixture::{again, bench};
use crate::standin::{CallKind, ForgeFault, Pull, TOKEN};

const BRANCH: &str = "sluice/apps/podinfo/prod";

/// The status and body of an answer, the reason of the error, and words of its message.
type Refusal = (u16, &'static str, &'static str, &'static str);

/// A forge, the status, headers and body of its answer, and the seconds for which the next call must wait.
type Limit = (ForgeKind, u16, Vec<(&'static str, &'static str)>, &'static str, i64);

/// Returns how a forge rejects a call that opens a change request: for an invalid token, for too few permissions, for
/// an unknown repository, for an invalid change request, and because of an internal error.
fn refusals(forge: ForgeKind) -> [Refusal; 5] {
    match forge {
        ForgeKind::GitHub => GITHUB_REFUSALS,
        ForgeKind::GitLab => GITLAB_REFUSALS,
        ForgeKind::Gitea | ForgeKind::Forgejo => GITEA_REFUSALS,
        ForgeKind::Bitbucket => BITBUCKET_REFUSALS,
        ForgeKind::BitbucketServer => BITBUCKET_SERVER_REFUSALS,
        ForgeKind::AzureDevOps => AZURE_DEVOPS_REFUSALS,
        other => panic!("{other:?} has no table"),
    }
}

/// Refusals of a new change request that differ from the published description of the forge. It lacks a status, or fields of
/// the error; and the sign-in page is HTML. Errors of 500 and above also come from servers in front of the forge.
const UNDESCRIBED: [(ForgeKind, u16); 5] = [
    (ForgeKind::GitLab, 403),
    (ForgeKind::Bitbucket, 400),
    (ForgeKind::Bitbucket, 403),
    (ForgeKind::BitbucketServer, 403),
    (ForgeKind::AzureDevOps, 203),
];

const GITHUB_REFUSALS: [Refusal; 5] = [
    (401, r#"{"message":"Bad credentials"}"#, "AuthenticationFailed", "Bad credentials"),
    (403, r#"{"message":"Resource not accessible by integration"}"#, "PermissionDenied", "not accessible"),
    (404, r#"{"message":"Not Found"}"#, "RepositoryNotFound", "check the address"),
    (
        422,
        r#"{"message":"Validation Failed","documentation_url":"https://docs.github.com/rest","errors":[{"resource":"PullRequest","code":"custom","message":"No commits between"}]}"#,
        "ForgeRefused",
        "No commits",
    ),
    (502, "bad gateway", "Unreachable", "status 502"),
];

const GITLAB_REFUSALS: [Refusal; 5] = [
    (401, r#"{"message":"401 Unauthorized"}"#, "AuthenticationFailed", "401 Unauthorized"),
    (
        403,
        r#"{"error":"insufficient_scope","error_description":"The request requires higher privileges than provided by the access token.","scope":"api"}"#,
        "PermissionDenied",
        "higher privileges",
    ),
    (404, r#"{"message":"404 Project Not Found"}"#, "RepositoryNotFound", "check the address"),
    (
        422,
        r#"{"message":{"title":["is too long (maximum is 255 characters)"]}}"#,
        "ForgeRefused",
        "title is too long",
    ),
    (500, r#"{"message":"500 Internal Server Error"}"#, "Unreachable", "500 Internal"),
];

const GITEA_REFUSALS: [Refusal; 5] = [
    (401, r#"{"message":"user does not exist [uid: 0, name: ]"}"#, "AuthenticationFailed", "does not exist"),
    (
        403,
        r#"{"message":"token does not have at least one of required scope(s): [write:repository]"}"#,
        "PermissionDenied",
        "required scope",
    ),
    (404, r#"{"message":"The target couldn't be found."}"#, "RepositoryNotFound", "check the address"),
    (422, r#"{"message":"Invalid PullRequest: There are no changes"}"#, "ForgeRefused", "no changes"),
    (500, r#"{"message":"internal"}"#, "Unreachable", "internal"),
];

const BITBUCKET_REFUSALS: [Refusal; 5] = [
    (
        401,
        r#"{"type":"error","error":{"message":"Token is invalid"}}"#,
        "AuthenticationFailed",
        "Token is invalid",
    ),
    (
        403,
        r#"{"type":"error","error":{"message":"Your credentials lack one or more required privilege scopes.","detail":{"required":["pullrequest:write"]}}}"#,
        "PermissionDenied",
        "lack one or more",
    ),
    (
        404,
        r#"{"type":"error","error":{"message":"Repository acme/fleet not found"}}"#,
        "RepositoryNotFound",
        "check the address",
    ),
    (
        400,
        r#"{"type":"error","error":{"message":"There are no changes to be pulled","fields":{"source":["none"]}}}"#,
        "ForgeRefused",
        "no changes to be pulled",
    ),
    (503, "<html>down</html>", "Unreachable", "status 503"),
];

const BITBUCKET_SERVER_REFUSALS: [Refusal; 5] = [
    (
        401,
        r#"{"errors":[{"context":null,"message":"Authentication failed.","exceptionName":"x"}]}"#,
        "AuthenticationFailed",
        "Authentication failed.",
    ),
    (
        403,
        r#"{"errors":[{"context":null,"message":"You are not permitted to access this resource","exceptionName":"com.atlassian.bitbucket.AuthorisationException"}]}"#,
        "PermissionDenied",
        "not permitted",
    ),
    (
        404,
        r#"{"errors":[{"message":"Repository ACME/fleet does not exist."}]}"#,
        "RepositoryNotFound",
        "check the address",
    ),
    (
        409,
        r#"{"errors":[{"message":"The pull request is up-to-date.","exceptionName":"com.atlassian.bitbucket.pull.EmptyPullRequestException"}]}"#,
        "ForgeRefused",
        "up-to-date",
    ),
    (500, r#"{"errors":[{"message":"An error occurred"}]}"#, "Unreachable", "An error occurred"),
];

const AZURE_DEVOPS_REFUSALS: [Refusal; 5] = [
    (203, "<html>Sign In</html>", "AuthenticationFailed", "sign-in page"),
    (
        403,
        r#"{"$id":"1","message":"TF401027: You need the Git 'PullRequestContribute' permission"}"#,
        "PermissionDenied",
        "TF401027",
    ),
    (
        404,
        r#"{"$id":"1","message":"TF401019: The Git repository does not exist"}"#,
        "RepositoryNotFound",
        "check the address",
    ),
    (
        400,
        r#"{"$id":"1","message":"Invalid argument value.","typeKey":"InvalidArgumentValueException"}"#,
        "ForgeRefused",
        "Invalid argument",
    ),
    (500, r#"{"$id":"1","message":"TF400898: An Internal Error Occurred."}"#, "Unreachable", "TF400898"),
];

#[tokio::test]
async fn the_error_of_each_forge_is_recognized_and_quoted() {
    everywhere(async |fixture| {
        let kind = fixture.standin().kind;
        for (status, text, reason, words) in refusals(kind) {
            let answer = match UNDESCRIBED.contains(&(kind, status)) || status >= 500 {
                true => ForgeFault::Answer(status, vec![], text),
                false => ForgeFault::Documented(status, text),
            };
            fixture.standin().inject_fault(CallKind::Open, answer);
            let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(fixture.pulls().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_redirect_to_the_sign_in_page_means_that_the_token_is_not_accepted() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let to =
        vec![("location", "https://spsprodcus1.vssps.visualstudio.com/_signin?realm=dev.azure.com".into())];
    fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(302, to, ""));
    let error = bench().delivery.deliver(&fixture.order("6.1.8")).await.unwrap_err();
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
}

#[tokio::test]
async fn rate_limits_of_each_forge_delay_the_next_call() {
    use ForgeKind::{AzureDevOps, Bitbucket, BitbucketServer, GitHub, GitLab, Gitea};
    let secondary = r#"{"message":"You have exceeded a secondary rate limit"}"#;
    let blocked = r#"{"$id":"1","message":"TF400733: The request has been canceled: Request was blocked"}"#;
    // `@300` stands for the time 300 seconds from now.
    let limits: [Limit; 10] = [
        (GitHub, 429, vec![("retry-after", "120")], "{}", 120),
        (GitHub, 403, vec![("retry-after", "60")], secondary, 60),
        (GitHub, 403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "@300")], "{}", 300),
        (Gitea, 429, vec![], "slow down", 60),
        (
            GitLab,
            429,
            vec![("retry-after", "30"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "@30")],
            "Retry later",
            30,
        ),
        (GitLab, 429, vec![("ratelimit-remaining", "0"), ("ratelimit-reset", "@90")], "Retry later", 90),
        (
            Bitbucket,
            429,
            vec![],
            r#"{"type":"error","error":{"message":"Rate limit for this resource has been exceeded"}}"#,
            60,
        ),
        (BitbucketServer, 429, vec![("retry-after", "15"), ("x-ratelimit-remaining", "0")], "{}", 15),
        (
            AzureDevOps,
            429,
            vec![("retry-after", "45"), ("x-ratelimit-delay", "1.5"), ("x-ratelimit-remaining", "0")],
            blocked,
            45,
        ),
        (AzureDevOps, 503, vec![("retry-after", "20")], "{}", 20),
    ];
    for (forge, status, headers, text, seconds) in limits {
        let fixture = ForgeFixture::of(forge).await;
        let now = jiff::Timestamp::now();
        let at = |value: &str| match value.strip_prefix('@') {
            Some(after) => (now.as_second() + after.parse::<i64>().unwrap()).to_string(),
            None => value.to_string(),
        };
        let headers = headers.into_iter().map(|(name, value)| (name, at(value))).collect();
        let bench = bench();
        let order = fixture.order("6.1.8");
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(status, headers, text));
        let error = bench.delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "RateLimited", "{error}");
        assert!(error.to_string().starts_with("waiting for the budget at "), "{error}");
        let Retry::At(until) = error.retry() else { panic!("{error:?}") };
        let since = until.as_second() - seconds;
        let asked = now.as_second() - 1..=jiff::Timestamp::now().as_second() + 1;
        assert!(asked.contains(&since), "{forge:?} {until} {seconds}");
        // Until that time Sluice calls neither the forge nor git.
        fixture.standin().calls();
        let fetches = bench.delivery.stats().git_fetches;
        let error = bench.delivery.deliver(&again(&order)).await.unwrap_err();
        assert_eq!(error.retry(), Retry::At(until));
        assert!(fixture.standin().calls().is_empty());
        assert_eq!(bench.delivery.stats().git_fetches, fetches);
        // Another credential has another budget.
        let mut other = fixture.order("6.1.8");
        other.credentials.token = Some("other".into());
        assert_eq!(bench.delivery.deliver(&other).await.unwrap_err().reason(), "AuthenticationFailed");
    }
}

/// Two pipelines have the same token, and the owner of one names another API, which asks for a pause of an hour.
#[tokio::test]
async fn an_api_that_another_pipeline_names_does_not_pause_the_forge() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let pause = async || (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "3600")], "{}");
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(pause)).await.unwrap() });
    for kind in ForgeKind::ALL {
        let fixture = ForgeFixture::of(kind).await;
        let api = Some(format!("http://{host}/api/v3"));
        let misled = fixture.order_with("6.1.8", |settings| settings.api_url = api);
        let bench = bench();
        let error = bench.delivery.deliver(&misled).await.unwrap_err();
        assert!(error.reason() == "RateLimited" && error.to_string().contains(&host), "{kind:?}: {error}");
        proposed(&bench.delivery, &again(&fixture.order("6.1.8"))).await;
    }
}

#[tokio::test]
async fn a_successful_answer_that_asks_for_a_pause_delays_the_next_call() {
    let fixture = ForgeFixture::of(ForgeKind::AzureDevOps).await;
    let bench = bench();
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture
        .standin()
        .forge_state(|b| b.headers = vec![(RETRY_AFTER.as_str().to_string().leak(), "5".into())]);
    let follow = async || {
        let open = ChangeRequestStatus::Open { head: request.head_commit.clone(), stale: None };
        assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), open);
    };
    let start = Instant::now();
    follow().await;
    assert!(start.elapsed() < Duration::from_secs(4));
    follow().await;
    assert!(start.elapsed() >= Duration::from_millis(4500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_token_is_enough_for_the_forge_and_for_git() {
    everywhere(async |fixture| {
        let mut order = fixture.order("6.1.8");
        order.credentials = Credentials { token: Some(TOKEN.into()), ..Credentials::default() };
        proposed(&bench().delivery, &order).await;
    })
    .await;
}

#[tokio::test]
async fn a_change_request_from_a_fork_with_the_same_branch_name_does_not_count() {
    everywhere(async |fixture| {
        let bench = bench();
        fixture.standin().open_from_a_fork(BRANCH);
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        assert_eq!(request.number, 2);
        fixture.standin().open_from_a_fork(BRANCH);
        let order = fixture.order("6.2.0");
        assert_eq!(proposed(&bench.delivery, &order).await.number, 2);
        assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, 2);
        let pulls = fixture.pulls().await;
        assert_eq!((pulls[0].title.as_str(), pulls[2].title.as_str()), ("Mine", "Mine"));
    })
    .await;
}

#[tokio::test]
async fn a_change_request_from_a_fork_of_the_same_owner_does_not_count() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        fixture.standin().open_from_a_fork_of_the_owner(BRANCH);
        assert_eq!(proposed(&bench.delivery, &order).await.number, 2);
        // A closed change request from a fork does not reject the promotion, even with the mark of the promotion.
        let body = fixture.standin().pulls()[1].body.clone();
        fixture.standin().open_from_a_fork_of_the_owner(BRANCH);
        fixture.standin().change(3, |pull| (pull.body, pull.open) = (body.clone(), false));
        assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, 2);
        let titles: Vec<String> = fixture.standin().pulls().into_iter().map(|pull| pull.title).collect();
        assert_eq!((titles[0].as_str(), titles[2].as_str()), ("Mine", "Mine"));
    })
    .await;
}

#[tokio::test]
async fn the_own_change_request_is_found_among_many_from_forks() {
    everywhere(async |fixture| {
        let bench = bench();
        fixture.standin().open_from_a_fork(BRANCH);
        let order = fixture.order("6.1.8");
        assert_eq!(proposed(&bench.delivery, &order).await.number, 2);
        (0..120).for_each(|_| fixture.standin().open_from_a_fork(BRANCH));
        assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, 2);
        assert_eq!(proposed(&bench.delivery, &fixture.order("6.2.0")).await.number, 2);
    })
    .await;
}

#[tokio::test]
async fn conflicts_with_the_base_are_reported() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.standin().change(request.number, |pull| pull.conflicts = true);
        let open = ChangeRequestStatus::Open { head: request.head_commit.clone(), stale: Some(OutdatedReason::Conflicts) };
        assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), open);
        // Commits that others have pushed are not overwritten.
        fixture.push(&request.branch);
        // The forge needs one call before it reports the conflicts of the new head.
        bench.delivery.follow(&order, &request).await.unwrap();
        let followed = bench.delivery.follow(&order, &request).await.unwrap();
        let is_reported = matches!(&followed, ChangeRequestStatus::Waits { why, failed: false, .. } if why.contains("others have pushed"));
        assert!(is_reported, "{followed:?}");
        let end = bench.delivery.withdraw(&order, &request, "no").await.unwrap();
        assert_eq!(end, ChangeRequestStatus::Closed);
    })
    .await;
}

/// Bitbucket shows conflicts only to some tokens, and redirects to the address at which they are.
#[tokio::test]
async fn unreadable_conflicts_count_as_none_and_no_other_host_is_called() {
    let other_host = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other_url = format!("http://{}/conflicts", other_host.local_addr().unwrap());
    let fixture = ForgeFixture::of(ForgeKind::Bitbucket).await;
    let order = fixture.order("6.1.8");
    let request = proposed(&bench().delivery, &order).await;
    fixture.standin().change(request.number, |pull| pull.conflicts = true);
    let open = |stale| ChangeRequestStatus::Open { head: request.head_commit.clone(), stale };
    let refused = r#"{"error": {"message": "This resource does not support this token"}}"#;
    let answers = [(302, vec![("location", other_url)], ""), (403, vec![], refused), (404, vec![], "")];
    let lost = [(0, ForgeFault::Lose)].into_iter();
    let troubles = answers.map(|(status, headers, text)| (status, ForgeFault::Answer(status, headers, text)));
    for (status, trouble) in troubles.into_iter().chain(lost) {
        let bench = bench();
        fixture.standin().inject_fault(CallKind::ReadFacts, trouble);
        for _ in 0..3 {
            let followed = bench.delivery.follow(&order, &request).await.unwrap();
            assert_eq!(followed, open(None), "{status}");
        }
        // Each look is one call. The whole id of the head, and the conflicts, are read once.
        assert_eq!(bench.delivery.stats().calls("GET"), 5, "{status}");
    }
    assert_eq!(
        bench().delivery.follow(&order, &request).await.unwrap(),
        open(Some(OutdatedReason::Conflicts))
    );
    assert!(other_host.accept().now_or_never().is_none(), "the other host was called");
}

#[tokio::test]
async fn a_long_body_is_sent_once_and_keeps_its_mark() {
    everywhere(async |fixture| {
        let (bench, mut order) = (bench(), fixture.order("6.1.8"));
        order.evidence = (0..40).map(|n| format!("{n} {}", "because ".repeat(60))).collect();
        let request = proposed(&bench.delivery, &order).await;
        for _ in 0..2 {
            assert_eq!(proposed(&bench.delivery, &order).await, request);
            assert_eq!(proposed(&bench.delivery, &again(&order)).await, request);
        }
        let stats = bench.delivery.stats();
        assert_eq!((stats.calls("PUT"), stats.calls("PATCH"), stats.calls("POST")), (0, 0, 1), "{stats:?}");
        let body = &fixture.pulls().await[0].body;
        assert!(body.contains("promotion=apps/podinfo-prod-6.1.8"), "{body}");
        if fixture.standin().kind == ForgeKind::AzureDevOps {
            assert!(body.len() > 2000 && body.chars().count() <= 4000, "{}", body.len());
        }
    })
    .await;
}

#[tokio::test]
async fn lists_are_read_until_no_older_entry_can_matter() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), fixture.order("6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        let old = order.created - jiff::SignedDuration::from_hours(72);
        fixture.standin().forge_state(|b| {
            let ours = Pull {
                open: false,
                body: "<!-- sluice: x promotion=apps/other -->".into(),
                ..b.pulls[0].clone()
            };
            let older = (0..500).map(|_| Pull { created: old, ..ours.clone() });
            let newer = (0..130).map(|_| ours.clone());
            let mut all: Vec<Pull> = older.chain([b.pulls[0].clone()]).chain(newer).collect();
            for (pull, number) in all.iter_mut().zip(1..) {
                pull.number = number;
            }
            b.pulls = all;
        });
        fixture.standin().calls();
        match bench.delivery.deliver(&again(&order)).await.unwrap() {
            Delivered::Proposed { request: found, merged: false } => {
                assert_eq!((found.number, found.head_commit), (501, request.head_commit));
            }
            other => panic!("{other:?}"),
        }
        let calls = fixture.standin().calls().len();
        // Azure DevOps promises no order, so its list is read to the end.
        let most = if fixture.standin().kind == ForgeKind::AzureDevOps { 8 } else { 5 };
        assert!(calls <= most, "{:?}: {calls} calls", fixture.standin().kind);
    })
    .await;
}

#[tokio::test]
async fn reviewers_stay_when_the_text_changes() {
    for forge in [ForgeKind::Bitbucket, ForgeKind::BitbucketServer] {
        let (fixture, bench) = (ForgeFixture::of(forge).await, bench());
        proposed(&bench.delivery, &fixture.order("6.1.8")).await;
        proposed(&bench.delivery, &fixture.order("6.2.0")).await;
        let pull = fixture.standin().pulls().remove(0);
        // There is one change of the head, and one of the text.
        assert_eq!((pull.version, pull.reviewers), (2, vec!["jane".to_string()]));
    }
}

#[tokio::test]
async fn an_outdated_version_of_a_change_request_is_read_again() {
    let out_of_date = r#"{"errors":[{"message":"You are attempting to modify a pull request based on out-of-date information.","exceptionName":"com.atlassian.bitbucket.pull.PullRequestOutOfDateException","currentVersion":1,"expectedVersion":0}]}"#;
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::BitbucketServer).await, bench());
    let refuse = |call| fixture.standin().inject_fault(call, ForgeFault::Documented(409, out_of_date));
    let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    refuse(CallKind::Update);
    let order = fixture.order("6.2.0");
    let second = proposed(&bench.delivery, &order).await;
    assert_eq!((first.number, fixture.pulls().await[0].title.contains("6.2.0")), (second.number, true));
    refuse(CallKind::Close);
    bench.delivery.withdraw(&order, &second, "Enough.").await.unwrap();
    assert!(!fixture.pulls().await[0].open);
    // After three such answers, the delivery fails.
    let third = fixture.order("6.3.0");
    proposed(&bench.delivery, &third).await;
    (0..3).for_each(|_| refuse(CallKind::Update));
    let error = bench.delivery.deliver(&fixture.order("6.4.0")).await.unwrap_err();
    assert_eq!(error.reason(), "ForgeRefused", "{error}");
    assert!(error.to_string().contains("out-of-date"), "{error}");
}

/// Bitbucket Cloud returns the open change request, instead of rejecting a second one.
#[tokio::test]
async fn an_existing_change_request_in_the_answer_to_an_open_is_updated() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::Bitbucket).await, bench());
    let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    // The two lists before the opening are empty, as if somebody had opened the change request directly after them.
    for _ in 0..2 {
        fixture.standin().inject_fault(CallKind::List, ForgeFault::Documented(200, r#"{"values": []}"#));
    }
    let second = proposed(&bench.delivery, &fixture.order("6.2.0")).await;
    assert_eq!(first.number, second.number);
    let all = fixture.pulls().await;
    assert_eq!((all.len(), all[0].open), (1, true));
    assert_eq!(all[0].title, "Promote apps/podinfo to 6.2.0 in prod");
}

#[tokio::test]
async fn a_fast_forward_merge_is_recognized_by_its_head() {
    let (fixture, bench) = (ForgeFixture::of(ForgeKind::GitLab).await, bench());
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    // There is no merge commit: the merged commit is the head itself.
    fixture
        .standin()
        .change(request.number, |pull| (pull.open, pull.merged) = (false, Some(pull.sha.clone())));
    let end = bench.delivery.follow(&order, &request).await.unwrap();
    let (commit, head) = (request.head_commit.clone(), request.head_commit.clone());
    assert_eq!(end, ChangeRequestStatus::Merged { commit, head, ours: true });
}
