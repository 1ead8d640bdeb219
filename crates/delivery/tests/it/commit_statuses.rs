//! Commit statuses: on which commit, in which words, and the errors for rejections.

use sluice_delivery::{ForgeKind, Order, PromotionProgress};

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::proposed;
use crate::fixture::{again, bench, bench_with};
use crate::standin::{CallKind, CheckOutcome, ForgeFault, Style};

const WAITS: &str = "waits until prod runs 6.1.8 and is healthy";

pub async fn a_commit_status_is_reported_on_the_merge_commit_and_on_no_open_head(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    let report =
        async |progress, words: &str| bench.delivery.report(&order, &request, progress, words).await.unwrap();
    report(PromotionProgress::Pending, WAITS).await;
    assert_eq!(fixture.statuses(&request.head_commit).await, []);
    fixture.merge_by(request.number, Style::Merge).await;
    let merge = fixture.repo().head("main").unwrap();
    let shown = async || {
        let all = fixture.statuses(&merge).await;
        all.into_iter().map(|(context, is, words)| (is, context, words)).next_back().unwrap()
    };
    // Azure DevOps has the first part beside the name.
    let context = match fixture.kind() {
        ForgeKind::AzureDevOps => "apps/podinfo/prod",
        _ => "sluice/apps/podinfo/prod",
    };
    // Said twice, as after a restart.
    for _ in 0..2 {
        report(PromotionProgress::Pending, WAITS).await;
        assert_eq!(shown().await, (CheckOutcome::Pending, context.to_string(), WAITS.to_string()));
    }
    report(PromotionProgress::Success, "prod runs 6.1.8").await;
    assert_eq!(shown().await, (CheckOutcome::Green, context.to_string(), "prod runs 6.1.8".to_string()));
    report(PromotionProgress::Failure, &"not healthy: ä ".repeat(100)).await;
    let (is, _, words) = shown().await;
    let most = if fixture.kind() == ForgeKind::GitHub { 140 } else { 255 };
    assert_eq!((is, words.chars().count()), (CheckOutcome::Failed, most));
    assert_eq!(fixture.statuses(&request.head_commit).await, []);
    // That of one target is apart.
    let one = Order { target: Some("eu".into()), ..order.clone() };
    bench.delivery.report(&one, &request, PromotionProgress::Pending, WAITS).await.unwrap();
    assert_eq!(shown().await.1, format!("{context}/eu"));
}

#[tokio::test]
async fn a_missing_right_for_commit_statuses_is_named() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.merge(request.number).await;
        let old = fixture.kind() == ForgeKind::BitbucketServer;
        for (status, calls) in [(401, 1), (403, 1), (404, 1 + usize::from(old))] {
            for _ in 0..calls {
                fixture.standin().inject_fault(
                    CallKind::Report,
                    ForgeFault::Answer(status, vec![], r#"{"message": "No."}"#),
                );
            }
            let done = bench.delivery.report(&order, &request, PromotionProgress::Pending, WAITS).await;
            let error = done.unwrap_err();
            if (fixture.kind(), status) == (ForgeKind::GitLab, 404) {
                assert!(error.to_string().contains("not on the base branch any more"), "{error}");
                continue;
            }
            assert_eq!(error.reason(), "PermissionDenied", "{error}");
            let words =
                ["may not write commit statuses", "; give it ", "remove commitStatuses from the pipeline"];
            assert!(words.iter().all(|words| error.to_string().contains(words)), "{error}");
        }
        // What refuses a report stands in the way of nothing else.
        proposed(&bench.delivery, &fixture.order("6.2.0")).await;
        proposed(&bench.delivery, &again(&fixture.order("6.2.0"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_final_status_goes_to_the_pipeline_that_has_the_pending_one() {
    let fixture = ForgeFixture::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.merge(request.number).await;
    bench.delivery.report(&order, &request, PromotionProgress::Pending, WAITS).await.unwrap();
    // The pipeline of the push begins after that.
    fixture.standin().forge_state(|forge_state| forge_state.pipeline += 1);
    bench.delivery.report(&order, &request, PromotionProgress::Success, "prod runs 6.1.8").await.unwrap();
    let in_pipelines: Vec<_> = fixture
        .standin()
        .forge_state(|forge_state| forge_state.statuses.iter().map(|s| (s.pipeline, s.is)).collect());
    assert_eq!(in_pipelines, [(Some(0), CheckOutcome::Pending), (Some(0), CheckOutcome::Green)]);
    // One that takes no more.
    let full = ForgeFault::Documented(422, r#"{"message": "the pipeline has too many jobs"}"#);
    bench.delivery.report(&again(&order), &request, PromotionProgress::Pending, WAITS).await.unwrap();
    fixture.standin().inject_fault(CallKind::Report, full);
    bench.delivery.report(&order, &request, PromotionProgress::Failure, "prod failed").await.unwrap();
}

#[tokio::test]
async fn a_status_is_sent_again_after_gitlab_has_locked_its_pipeline() {
    let fixture = ForgeFixture::of(ForgeKind::GitLab).await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.merge(request.number).await;
    let locked = ForgeFault::Documented(409, r#"{"message": "409 Conflict: Resource lock"}"#);
    fixture.standin().inject_fault(CallKind::Report, locked);
    let error = bench.delivery.report(&order, &request, PromotionProgress::Pending, WAITS).await.unwrap_err();
    assert_eq!(error.reason(), "Unreachable", "{error}");
}

#[tokio::test]
async fn a_status_is_sent_to_the_old_path_of_an_older_bitbucket_server() {
    let fixture = ForgeFixture::of(ForgeKind::BitbucketServer).await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.merge(request.number).await;
    fixture.standin().inject_fault(CallKind::Report, ForgeFault::Answer(404, vec![], "{}"));
    fixture.standin().calls();
    bench.delivery.report(&order, &request, PromotionProgress::Success, "prod runs 6.1.8").await.unwrap();
    let merge = fixture.repo().head("main").unwrap();
    assert_eq!(fixture.statuses(&merge).await[0].1, CheckOutcome::Green);
    let posted: Vec<String> =
        fixture.standin().calls().into_iter().filter(|c| c.starts_with("POST")).collect();
    let old = format!("POST /../build-status/commits/{merge}");
    assert!(posted.len() == 2 && posted[0].ends_with("/builds") && posted[1] == old, "{posted:?}");
}

#[tokio::test]
async fn real_gitea_reports_a_missing_right() {
    let fixture = ForgeFixture::gitea("status-rights").await;
    let (bench, order) = (bench(), fixture.order("6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.merge(request.number).await;
    let credentials = fixture.token_for("status-reader", &["read:repository", "read:issue"]).await;
    let reader = Order { credentials, ..order };
    let error =
        bench.delivery.report(&reader, &request, PromotionProgress::Pending, WAITS).await.unwrap_err();
    assert_eq!(error.reason(), "PermissionDenied", "{error}");
    let words = ["may not write commit statuses", "; give it the scope write:repository"];
    assert!(words.iter().all(|words| error.to_string().contains(words)), "{error}");
}

#[tokio::test]
async fn long_names_of_statuses_are_shortened_and_stay_different() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = fixture.order("6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        fixture.merge(request.number).await;
        for target in ["eu", "us"] {
            let order = Order { target: Some(target.repeat(130)), ..order.clone() };
            bench.delivery.report(&order, &request, PromotionProgress::Pending, WAITS).await.unwrap();
        }
        let all = fixture.statuses(&fixture.repo().head("main").unwrap()).await;
        assert!(all.len() == 2 && all[0].0 != all[1].0, "{all:?}");
    })
    .await;
}

#[tokio::test]
async fn no_status_is_sent_over_plain_http_or_after_a_revoked_token() {
    let fixture = ForgeFixture::github().await;
    let order = fixture.order("6.1.8");
    let request = proposed(&bench().delivery, &order).await;
    fixture.merge(request.number).await;
    fixture.standin().calls();
    let closed = bench_with(|options| options.insecure_http = false);
    closed.delivery.report(&order, &request, PromotionProgress::Success, "").await.unwrap_err();
    // A later report has revoked the fencing token of this one.
    order.fencing_token.revoke();
    let late = bench().delivery.report(&order, &request, PromotionProgress::Success, "").await.unwrap_err();
    assert_eq!(late.reason(), "Stopped");
    assert!(fixture.standin().calls().iter().all(|call| call.starts_with("GET")));
}
