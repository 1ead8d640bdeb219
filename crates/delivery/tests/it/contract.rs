//! The contract of all forges, tested with the stand-in for each forge and with real Gitea.

use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, ForgeKind, Order, OutdatedReason, Retry, Settings, Stats,
};

use crate::any_forge::{ForgeFixture, ShownChangeRequest};
use crate::change_request::proposed;
use crate::commit_statuses::*;
use crate::fixture::{FILE, again, bench, yaml};
use crate::forged::*;
use crate::landing::*;
use crate::merging::*;
use crate::shown_checks::*;

/// Whether a body ends with the mark of a promotion, in the form that its forge hides.
fn is_marked(body: &str, promotion: &str) -> bool {
    let mark = format!("apps/podinfo/prod promotion={promotion}");
    let forms = [format!("\n<!-- sluice: {mark} -->"), format!("\n[sluice]: # ({mark})")];
    forms.iter().any(|form| body.trim_end().ends_with(form))
}

/// Calls that change what is there; forges differ in the word.
fn changes(stats: &Stats) -> u64 {
    stats.calls("PATCH") + stats.calls("PUT")
}

async fn a_change_request_is_opened_and_followed_to_its_merge(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let base = fixture.repo().head("main").unwrap();
    let request = proposed(&bench.delivery, &order).await;
    assert_eq!(request.branch, "sluice/apps/podinfo/prod");
    let pulls = fixture.pulls().await;
    assert_eq!(pulls.len(), 1);
    assert_eq!(pulls[0].title, "Promote apps/podinfo to 6.1.8 in prod");
    assert!(is_marked(&pulls[0].body, "apps/podinfo-prod-6.1.8"), "{}", pulls[0].body);
    assert!(pulls[0].body.contains(&format!("`{FILE}:3`: `6.1.5` → `6.1.8`")), "{}", pulls[0].body);
    let branch = fixture.repo().log(&request.branch).unwrap();
    assert_eq!((branch[0].sha.as_str(), &branch[0].parents), (request.head_commit.as_str(), &vec![base]));
    assert_eq!(branch[0].author, "Sluice <sluice@localhost>");
    assert!(branch[0].body.contains("Sluice-Promotion: apps/podinfo-prod-6.1.8"));
    assert_eq!(fixture.repo().read(&request.branch, FILE).unwrap(), yaml("6.1.8"));

    let stats = bench.delivery.stats();
    assert_eq!((stats.git_fetches, stats.git_pushes), (1, 1));
    let calls = (stats.calls("GET"), stats.calls("POST"), changes(&stats));
    assert_eq!(calls, (fixture.reads_to_open(), 1, 0), "{stats:?}");

    let head = request.head_commit.clone();
    let follow = || bench.delivery.follow(&order, &request);
    assert_eq!(follow().await.unwrap(), ChangeRequestStatus::Open { head: head.clone(), stale: None });
    assert_eq!(follow().await.unwrap(), ChangeRequestStatus::Open { head: head.clone(), stale: None });
    fixture.merge(request.number).await;
    let commit = fixture.repo().head("main").unwrap();
    assert_eq!(
        follow().await.unwrap(),
        ChangeRequestStatus::Merged { commit: commit.clone(), head, ours: true }
    );
    // The outcome was not stored, so it runs again: found, not done once more.
    match bench.delivery.deliver(&again(&order)).await.unwrap() {
        Delivered::Proposed { request: found, merged: true } => assert_eq!(found.number, request.number),
        other => panic!("{other:?}"),
    }
    // Another promotion of the same revision has nothing to do.
    let other = Order { promotion: "apps/other".into(), ..order.clone() };
    assert_eq!(bench.delivery.deliver(&other).await.unwrap(), Delivered::AlreadySet { commit });
    assert_eq!(fixture.pulls().await.len(), 1);
}

/// The forge merged what the branch held a moment before a newer revision was pushed to it.
async fn the_merge_of_an_earlier_revision_does_not_count_for_a_newer_one(fixture: ForgeFixture) {
    let bench = bench();
    let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    let newer = fixture.order("6.2.0");
    let mark = format!("<!-- sluice: apps/podinfo/prod promotion={} -->", newer.promotion);
    fixture.set_body(first.number, &mark).await;
    fixture.merge(first.number).await;
    match bench.delivery.follow(&newer, &first).await.unwrap() {
        ChangeRequestStatus::Merged { ours, .. } => assert!(!ours),
        other => panic!("{other:?}"),
    }
    match bench.delivery.deliver(&again(&newer)).await.unwrap() {
        Delivered::Proposed { request, merged: false } => assert_ne!(request.number, first.number),
        other => panic!("{other:?}"),
    }
}

async fn a_newer_revision_updates_the_open_change_request(fixture: ForgeFixture) {
    let bench = bench();
    let first = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    // The base moves on meanwhile, and the branch starts from there again.
    let base = fixture.commit("other", &[("other.yaml", "a: 1\n")]);
    let second = proposed(&bench.delivery, &fixture.order("6.2.0")).await;
    assert_eq!(first.number, second.number);
    assert_ne!(first.head_commit, second.head_commit);
    let pulls = fixture.pulls().await;
    assert_eq!(pulls.len(), 1);
    assert_eq!(pulls[0].title, "Promote apps/podinfo to 6.2.0 in prod");
    assert!(is_marked(&pulls[0].body, "apps/podinfo-prod-6.2.0"), "{}", pulls[0].body);
    assert_eq!(fixture.repo().log(&second.branch).unwrap()[0].parents, vec![base]);
    assert_eq!(fixture.repo().read(&second.branch, FILE).unwrap(), yaml("6.2.0"));
    let stats = bench.delivery.stats();
    assert_eq!((stats.git_fetches, stats.git_pushes), (2, 2));
    assert_eq!((stats.calls("POST"), changes(&stats)), (1, 1), "{stats:?}");
    // A used branch: merged, and then the next revision gets a request of its own.
    fixture.merge(second.number).await;
    let third = proposed(&bench.delivery, &fixture.order("6.3.0")).await;
    assert_ne!(third.number, second.number);
    let pulls = fixture.pulls().await;
    assert_eq!(pulls.iter().filter(|p| p.open).count(), 1);
    // And once more in place, where the branch has had several.
    let fourth = proposed(&bench.delivery, &fixture.order("6.4.0")).await;
    assert_eq!(third.number, fourth.number);
}

async fn a_repeated_delivery_changes_nothing(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let first = proposed(&bench.delivery, &order).await;
    for order in [again(&order), order.clone()] {
        let other = crate::fixture::bench();
        assert_eq!(proposed(&other.delivery, &order).await, first);
        let stats = other.delivery.stats();
        assert_eq!((stats.git_pushes, stats.calls("POST"), changes(&stats)), (0, 0, 0), "{stats:?}");
    }
    // A person has rewritten the text: the commit still says whose it is.
    fixture.set_body(first.number, "mine now").await;
    let found = proposed(&bench.delivery, &again(&order)).await;
    assert_eq!(found.number, first.number);
    assert_eq!(fixture.pulls().await.len(), 1);
}

async fn a_closed_change_request_counts_as_rejected_until_a_retry(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture.close(request.number).await;
    assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), ChangeRequestStatus::Closed);
    match bench.delivery.deliver(&again(&order)).await.unwrap() {
        Delivered::Rejected { request: found } => assert_eq!(found.number, request.number),
        other => panic!("{other:?}"),
    }
    let reopened = Order { withdrawn: vec![request.url.clone()], ..again(&order) };
    let second = proposed(&bench.delivery, &reopened).await;
    assert_ne!(second.number, request.number);
    // Asked again after a crash, it is found.
    assert_eq!(proposed(&bench.delivery, &reopened).await.number, second.number);
    assert_eq!(fixture.pulls().await.len(), 2);
    // Sluice has closed both, and the record names another change request by now.
    fixture.close(second.number).await;
    let withdrawn = vec![request.url.clone(), second.url.clone()];
    let third = proposed(&bench.delivery, &Order { withdrawn, ..again(&order) }).await;
    assert_ne!(third.number, second.number);
    // A person closes the third.
    fixture.close(third.number).await;
    let withdrawn = vec![request.url, second.url];
    let rejected = bench.delivery.deliver(&Order { withdrawn, ..again(&order) }).await.unwrap();
    assert!(matches!(rejected, Delivered::Rejected { request } if request.number == third.number));
}

async fn an_unwanted_change_request_is_closed_with_one_comment(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    for _ in 0..2 {
        bench.delivery.withdraw(&order, &request, "Superseded by 6.2.0.").await.unwrap();
    }
    assert_eq!(bench.delivery.follow(&order, &request).await.unwrap(), ChangeRequestStatus::Closed);
    assert_eq!(fixture.comments(request.number).await, ["Superseded by 6.2.0."]);
    let unknown = ChangeRequest { number: 4711, ..request };
    assert_eq!(bench.delivery.follow(&order, &unknown).await.unwrap(), ChangeRequestStatus::Gone);
    bench.delivery.withdraw(&order, &unknown, "?").await.unwrap();
}

async fn a_change_request_that_would_change_nothing_is_closed(fixture: ForgeFixture) {
    let bench = bench();
    let request = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    fixture.commit("by hand", &[(FILE, &yaml("6.2.0"))]);
    let already_set = Delivered::AlreadySet { commit: fixture.repo().head("main").unwrap() };
    // The controller closes the one that it has recorded.
    let recorded = Order { recorded_open: vec![request.url.clone()], ..fixture.order("6.2.0") };
    assert_eq!(bench.delivery.deliver(&recorded).await.unwrap(), already_set);
    assert!(fixture.pulls().await.iter().all(|p| p.open));
    assert_eq!(bench.delivery.deliver(&fixture.order("6.2.0")).await.unwrap(), already_set);
    assert!(fixture.pulls().await.iter().all(|p| !p.open && !p.merged));
    assert_eq!(fixture.comments(request.number).await.len(), 1);
}

/// The process ends after it has closed the change request, and before it records that.
async fn a_change_request_that_was_closed_because_all_is_set_is_no_rejection(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.2.0");
    proposed(&bench.delivery, &order).await;
    fixture.commit("by hand", &[(FILE, &yaml("6.2.0"))]);
    let already_set = Delivered::AlreadySet { commit: fixture.repo().head("main").unwrap() };
    for rebuild in [Some(OutdatedReason::Conflicts), None] {
        let order = Order { rebuild, ..again(&order) };
        assert_eq!(bench.delivery.deliver(&order).await.unwrap(), already_set);
        assert!(fixture.pulls().await.iter().all(|p| !p.open && !p.merged));
    }
}

async fn missing_and_wrong_credentials_are_reported(fixture: ForgeFixture) {
    let bench = bench();
    let mut order = fixture.order("6.1.8");
    (order.credentials.token, order.credentials.password) = (None, None);
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "MissingCredential");
    // Found out before anything was pushed.
    assert_eq!(fixture.repo().branches().unwrap(), ["main"]);
    let mut order = fixture.order("6.1.8");
    order.credentials.token = Some("wr0ng".into());
    let error = bench.delivery.deliver(&order).await.unwrap_err();
    assert_eq!(error.reason(), "AuthenticationFailed");
    assert!(!error.to_string().contains("wr0ng"), "{error}");
}

async fn labels_reviewers_and_assignees_are_added_and_none_is_removed(fixture: ForgeFixture) {
    let (bench, joe, (no_labels, no_assignees)) = (bench(), fixture.joe().await, fixture.lacks());
    let settings = |settings: &mut Settings| {
        settings.reviewers = vec![joe.clone()];
        if !no_labels {
            settings.labels = vec!["promotion".into(), "prod".into()];
        }
        if !no_assignees {
            settings.assignees = vec![joe.clone()];
        }
    };
    let request = proposed(&bench.delivery, &fixture.order_with("6.1.8", settings)).await;
    assert_eq!(request.notes, Vec::<String>::new());
    let has = async |wanted: &[&str], what: fn(ShownChangeRequest) -> Vec<String>| {
        let has = what(fixture.pulls().await.remove(0));
        assert!(wanted.iter().all(|one| has.iter().any(|it| it == one)), "{wanted:?}: {has:?}");
    };
    if !no_labels {
        has(&["promotion", "prod"], |p| p.labels).await;
        fixture.add_label(request.number, "by hand").await;
    }
    has(&[&joe], |p| p.reviewers).await;
    if !no_assignees {
        has(&[&joe], |p| p.assignees).await;
    }
    // Found again, there is nothing to add, unless the forge does not show what is there.
    let order = fixture.order_with("6.1.8", settings);
    let other = crate::fixture::bench();
    proposed(&other.delivery, &again(&Order { created: order.created, ..order })).await;
    assert_eq!(changes(&other.delivery.stats()), 0, "{:?}", other.delivery.stats());
    // And the next revision keeps what people have added.
    let next = proposed(&bench.delivery, &fixture.order_with("6.2.0", settings)).await;
    assert_eq!((next.number, next.notes), (request.number, vec![]));
    has(&[&joe], |p| p.reviewers).await;
    if !no_labels {
        has(&["promotion", "prod", "by hand"], |p| p.labels).await;
    }
    if matches!(fixture, ForgeFixture::StandIn(_)) {
        has(&["jane"], |p| p.reviewers).await;
    }
}

/// The pipeline is edited, or the promotion rejected, after the forge has opened the change request.
async fn an_open_change_request_is_reported_although_the_fencing_token_is_revoked(fixture: ForgeFixture) {
    let bench = bench();
    let request = proposed(&bench.delivery, &fixture.order("6.1.8")).await;
    let order = again(&fixture.order_with("6.1.8", |settings| settings.labels = vec!["promotion".into()]));
    order.fencing_token.revoke();
    let found = proposed(&bench.delivery, &order).await;
    assert_eq!(found.url, request.url);
    assert!(found.notes[0].contains("were not added, because the promotion was stopped"), "{found:?}");
}

async fn a_reviewer_who_cannot_be_added_is_noted_and_stops_nothing(fixture: ForgeFixture) {
    let (bench, joe, nobody) = (bench(), fixture.joe().await, "00000000-0000-0000-0000-000000000000");
    let author = fixture.author();
    let (_, no_assignees) = fixture.lacks();
    let order = fixture.order_with("6.1.8", |settings| {
        settings.reviewers = vec![nobody.into(), author.clone(), joe.clone()];
        if !no_assignees {
            settings.assignees = vec![nobody.into(), joe.clone()];
        }
    });
    let request = proposed(&bench.delivery, &order).await;
    let unassigned = request.notes.iter().filter(|note| note.contains("was not assigned")).count();
    assert_eq!(unassigned, usize::from(!no_assignees), "{:?}", request.notes);
    let told = |name: &str| request.notes.iter().any(|n| n.starts_with(&format!("{name} was not asked")));
    assert!(told(nobody) && !told(&joe), "{:?}", request.notes);
    // GitLab lets the author review as well.
    assert_eq!(told(&author), fixture.kind() != ForgeKind::GitLab, "{:?}", request.notes);
    assert!(request.notes.iter().all(|n| !n.ends_with(": ")), "{:?}", request.notes);
    let pull = fixture.pulls().await.remove(0);
    assert!(pull.open && pull.reviewers.contains(&joe), "{pull:?}");
    assert!(no_assignees || pull.assignees == [joe], "{pull:?}");
}

async fn a_draft_is_opened_once_and_people_decide_when_it_is_ready(fixture: ForgeFixture) {
    let bench = bench();
    let draft = |version: &str| fixture.order_with(version, |settings| settings.draft = true);
    let request = proposed(&bench.delivery, &draft("6.1.8")).await;
    assert_eq!(request.notes, Vec::<String>::new());
    assert!(fixture.pulls().await[0].draft);
    proposed(&bench.delivery, &draft("6.2.0")).await;
    let pull = fixture.pulls().await.remove(0);
    assert!(pull.draft && pull.title.ends_with("Promote apps/podinfo to 6.2.0 in prod"), "{pull:?}");
    fixture.mark_ready(request.number).await;
    proposed(&bench.delivery, &draft("6.3.0")).await;
    let pull = fixture.pulls().await.remove(0);
    assert_eq!((pull.draft, pull.title.as_str()), (false, "Promote apps/podinfo to 6.3.0 in prod"));
}

async fn title_body_and_branch_follow_the_templates_of_the_pipeline(fixture: ForgeFixture) {
    let bench = bench();
    let order = |version: &str| {
        fixture.order_with(version, |settings| {
            settings.title = Some("{pipeline} {revision} {{{environment}}}".into());
            settings.body = Some("From {replaces}:\n\n{changes}".into());
            settings.branch = Some("deploy/{namespace}/{pipeline}/{environment}".into());
        })
    };
    let first = order("6.1.8");
    let request = proposed(&bench.delivery, &first).await;
    assert_eq!(request.branch, "deploy/apps/podinfo/prod");
    let pull = fixture.pulls().await.remove(0);
    assert_eq!(pull.title, "podinfo 6.1.8 {prod}");
    let change = format!("From 6.1.5:\n\n- `{FILE}:3`: `6.1.5` → `6.1.8`");
    assert!(
        pull.body.starts_with(&change) && is_marked(&pull.body, "apps/podinfo-prod-6.1.8"),
        "{}",
        pull.body
    );
    // Found by its mark, and by its branch.
    let other = crate::fixture::bench();
    assert_eq!(proposed(&other.delivery, &again(&first)).await, request);
    assert_eq!((other.delivery.stats().calls("POST"), changes(&other.delivery.stats())), (0, 0));
    assert_eq!(proposed(&bench.delivery, &order("6.2.0")).await.number, request.number);
    assert_eq!(fixture.pulls().await[0].title, "podinfo 6.2.0 {prod}");
    let bad = fixture.order_with("6.3.0", |settings| settings.title = Some("{version}".into()));
    let error = bench.delivery.deliver(&bad).await.unwrap_err();
    assert_eq!((error.reason(), error.retry()), ("BadTemplate", Retry::OnChange), "{error}");
}

macro_rules! everywhere {
    ($all:tt $($place:ident: $forge:ident,)*) => {
        $(everywhere! { @ $place, crate::any_forge::ForgeFixture::of(sluice_delivery::ForgeKind::$forge).await, $all })*
    };
    (@ $place:ident, $fixture:expr, [$($name:ident)*]) => {
        mod $place {
            $(#[tokio::test] async fn $name() { super::$name($fixture).await })*
        }
    };
}

macro_rules! and_real_gitea {
    ([$($name:ident)*] $($rest:tt)*) => {
        everywhere! { [$($name)*] $($rest)* }
        mod gitea {
            use crate::any_forge::ForgeFixture;
            $(#[tokio::test] async fn $name() { super::$name(ForgeFixture::gitea(stringify!($name)).await).await })*
        }
    };
}

and_real_gitea! {
    [
        a_change_request_is_opened_and_followed_to_its_merge
        the_merge_of_an_earlier_revision_does_not_count_for_a_newer_one
        a_newer_revision_updates_the_open_change_request
        a_repeated_delivery_changes_nothing
        a_closed_change_request_counts_as_rejected_until_a_retry
        an_unwanted_change_request_is_closed_with_one_comment
        a_change_request_that_would_change_nothing_is_closed
        a_change_request_that_was_closed_because_all_is_set_is_no_rejection
        missing_and_wrong_credentials_are_reported
        labels_reviewers_and_assignees_are_added_and_none_is_removed
        an_open_change_request_is_reported_although_the_fencing_token_is_revoked
        a_reviewer_who_cannot_be_added_is_noted_and_stops_nothing
        a_draft_is_opened_once_and_people_decide_when_it_is_ready
        title_body_and_branch_follow_the_templates_of_the_pipeline
        a_change_request_is_merged_when_its_checks_are_green
        the_checks_of_a_tag_named_like_the_head_branch_do_not_count
        a_merge_waits_for_approvals_of_the_current_head
        a_head_that_sluice_did_not_push_is_not_merged
        a_draft_is_merged_after_a_person_marks_it_as_ready
        a_merged_branch_is_deleted_unless_somebody_has_pushed_to_it
        nothing_is_merged_after_the_fencing_token_is_revoked
        a_promotion_is_delivered_once_however_a_person_merges_it
        a_merge_by_sluice_is_recognized_in_every_merge_style
        a_merge_counts_only_for_the_promotion_that_it_contains
        a_reverted_merge_of_an_earlier_round_is_delivered_again_once
        a_forged_head_branch_is_replaced_before_the_first_try_and_before_the_opening
        a_forged_commit_below_an_open_change_request_is_replaced_by_a_later_try
        a_forged_head_is_not_merged_although_it_is_recorded
        a_merge_that_only_names_the_promotion_does_not_deliver_it
        a_change_request_to_another_base_branch_is_not_merged
        a_change_request_to_another_base_branch_counts_for_nothing
        a_commit_status_is_reported_on_the_merge_commit_and_on_no_open_head
        the_checks_of_a_change_request_are_listed_for_people
    ]
    github: GitHub,
    gitlab: GitLab,
    gitea_standin: Gitea,
    forgejo: Forgejo,
    bitbucket: Bitbucket,
    bitbucket_server: BitbucketServer,
    azure_devops: AzureDevOps,
}
