//! Commits and change requests that imitate those of Sluice: everybody who may push branches can write the message of a
//! promotion, which is predictable.

use sluice_core::setters::{Update, UpdateTarget};
use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, Delivery, DeliveryStrategy, ForgeKind, Order,
    OutdatedReason, Values,
};

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::{
    merging, proposed, pushed_and_not_recorded, until_merged, until_outdated, waits,
};
use crate::commit::{server, to_main};
use crate::fixture::{FILE, again, bench, git, yaml};
use crate::signing::{gpg_key, signed_with, ssh_key, verify_ssh};

/// The file that nobody has reviewed.
const EVIL: &str = "evil.yaml";

/// How a commit with the message, author and date of Sluice's own brings another file along.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forgery {
    /// The commit has the file in its own tree.
    Tree,
    /// The commit is what Sluice would make, on top of a commit that has the file.
    Parent,
}

const FORGERIES: [Forgery; 2] = [Forgery::Tree, Forgery::Parent];

/// The commit that Sluice makes for an order on top of `main`.
async fn own_commit(fixture: &ForgeFixture, delivery: &Delivery, order: &Order) -> String {
    let DeliveryStrategy::PullRequest { url, .. } = &order.strategy else { panic!("{:?}", order.strategy) };
    let base = fixture.repo().head("main").unwrap();
    fixture.set_branch("learn", &base).await;
    let strategy = DeliveryStrategy::Commit { url: url.clone(), branch: "learn".into() };
    match delivery.deliver(&Order { strategy, ..order.clone() }).await.unwrap() {
        Delivered::Committed { commit } => commit,
        other => panic!("{other:?}"),
    }
}

/// The same commit with another file.
fn forged(fixture: &ForgeFixture, own: &str, how: Forgery) -> String {
    let folder = fixture.repo().folder();
    let blob = git(folder, &["hash-object", "-w", "--stdin"], "kind: Evil\n");
    let with_evil = |commit: &str| {
        let tree = git(folder, &["ls-tree", commit], "");
        git(folder, &["mktree"], &format!("{tree}\n100644 blob {blob}\t{EVIL}\n"))
    };
    let raw = git(folder, &["cat-file", "commit", own], "");
    let tree = git(folder, &["rev-parse", &format!("{own}^{{tree}}")], "");
    let mut raw = raw.replace(&tree, &with_evil(own));
    if how == Forgery::Parent {
        let parent = git(folder, &["rev-parse", &format!("{own}^")], "");
        let who = ["-c", "user.name=eve", "-c", "user.email=eve@example.com"];
        let args = ["commit-tree", &with_evil(&parent), "-p", &parent, "-m", "chore"];
        raw = raw.replace(&parent, &git(folder, &[&who[..], &args[..]].concat(), ""));
    }
    git(folder, &["hash-object", "-t", "commit", "-w", "--stdin"], &format!("{raw}\n"))
}

/// That a change request proposes nothing but the promotion, and is merged so.
async fn is_delivered_alone(fixture: &ForgeFixture, delivery: &Delivery, order: &Order) {
    let request = proposed(delivery, order).await;
    assert_eq!(fixture.repo().head(&request.branch).unwrap(), request.head_commit);
    until_merged(delivery, order, &request).await;
    let DeliveryStrategy::PullRequest { .. } = &order.strategy else { panic!() };
    let version = order.promotion.rsplit('-').next().unwrap();
    assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml(version));
    assert_eq!(fixture.repo().files("main").unwrap(), [FILE]);
}

pub async fn a_forged_head_branch_is_replaced_before_the_first_try_and_before_the_opening(
    fixture: ForgeFixture,
) {
    let bench = bench();
    for (i, how) in FORGERIES.into_iter().enumerate() {
        for retried in [false, true] {
            let order = merging(&fixture, &format!("6.{i}.{}", u8::from(retried)));
            let own = own_commit(&fixture, &crate::fixture::bench().delivery, &order).await;
            fixture.set_branch(&order.branch(), &forged(&fixture, &own, how)).await;
            is_delivered_alone(&fixture, &bench.delivery, &Order { retried, ..order }).await;
        }
    }
}

pub async fn a_forged_commit_below_an_open_change_request_is_replaced_by_a_later_try(fixture: ForgeFixture) {
    for (i, how) in FORGERIES.into_iter().enumerate() {
        let order = merging(&fixture, &format!("6.1.{i}"));
        let request = proposed(&bench().delivery, &order).await;
        fixture.set_branch(&request.branch, &forged(&fixture, &request.head_commit, how)).await;
        // Neither the process that pushed nor the next one takes it for its own.
        let (why, _) = waits(&bench().delivery, &order, &request).await;
        assert!(why.contains("Sluice pushed"), "{why}");
        is_delivered_alone(&fixture, &bench().delivery, &again(&order)).await;
    }
}

/// As an earlier version has recorded it, which looked at messages only.
pub async fn a_forged_head_is_not_merged_although_it_is_recorded(fixture: ForgeFixture) {
    for (i, how) in FORGERIES.into_iter().enumerate() {
        let (bench, order) = (bench(), merging(&fixture, &format!("6.1.{i}")));
        let request = proposed(&bench.delivery, &order).await;
        let evil = forged(&fixture, &request.head_commit, how);
        fixture.set_branch(&request.branch, &evil).await;
        let recorded = sluice_delivery::ChangeRequest { head_commit: evil, ..request };
        until_outdated(&bench.delivery, &order, &recorded, OutdatedReason::NotOwn).await;
        assert!(fixture.pulls().await.last().unwrap().open);
        let rebuild = Order { rebuild: Some(OutdatedReason::NotOwn), ..again(&order) };
        is_delivered_alone(&fixture, &bench.delivery, &rebuild).await;
    }
}

/// The base branch has changed the same lines again, before another process recognizes the head.
#[tokio::test]
async fn a_head_that_sluice_has_pushed_and_not_recorded_is_replaced_if_it_conflicts() {
    everywhere(async |fixture| {
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let (request, unrecorded) = pushed_and_not_recorded(&fixture, &bench.delivery, &order).await;
        fixture.commit("the same lines again", &[(FILE, &yaml("6.1.4"))]);
        let (later, stale) = (crate::fixture::bench(), Some(OutdatedReason::Unrecorded));
        let outdated = ChangeRequestStatus::Open { head: unrecorded, stale };
        assert_eq!(later.delivery.advance(&order, &request).await.unwrap().status, outdated);
        let remade = proposed(&later.delivery, &Order { rebuild: stale, ..again(&order) }).await;
        assert_eq!(remade.number, request.number);
        until_merged(&later.delivery, &order, &remade).await;
        assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml("6.1.8"));
    })
    .await;
}

#[tokio::test]
async fn a_head_on_a_commit_that_was_removed_from_the_base_is_not_merged() {
    let fixture = ForgeFixture::github().await;
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let kept = fixture.repo().head("main").unwrap();
    fixture.commit("regretted", &[("regretted.yaml", "a: b\n")]);
    let request = proposed(&bench.delivery, &order).await;
    fixture.set_branch("main", &kept).await;
    // Also for the process that made the commit: a merge would bring the removed one back.
    until_outdated(&bench.delivery, &order, &request, OutdatedReason::NotOwn).await;
    let rebuild = Order { rebuild: Some(OutdatedReason::NotOwn), ..again(&order) };
    is_delivered_alone(&fixture, &bench.delivery, &rebuild).await;
}

/// A release of this name, whose version is far from its name and from the beginning.
fn release(name: &str, version: &str) -> String {
    let between = "  interval: 10m\n".repeat(9);
    format!("kind: HelmRelease\nmetadata:\n  name: {name}\nspec:\n{between}  version: {version}\n")
}

/// An order for the release podinfo, in whichever file it is.
fn of_release(fixture: &ForgeFixture, version: &str) -> Order {
    let update = Update {
        path: "live/*.yaml".into(),
        kind: Some("HelmRelease".into()),
        name: Some("podinfo".into()),
        field: "spec.version".into(),
        ..Update::default()
    };
    let places =
        vec![UpdateTarget { environment: "prod".into(), target: "prod".into(), ..UpdateTarget::default() }];
    Order { values: Values::Listed { updates: vec![update], places }, ..merging(fixture, version) }
}

#[tokio::test]
async fn a_head_that_would_set_another_value_of_the_base_by_now_is_not_merged() {
    // Of a head that this process made, or found.
    for restarted in [false, true] {
        let (fixture, bench) = (ForgeFixture::github().await, bench());
        fixture.commit("one", &[("live/a.yaml", &release("podinfo", "6.1.5"))]);
        let order = of_release(&fixture, "6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        let moved =
            [("live/a.yaml", release("critical-db", "6.1.5")), ("live/b.yaml", release("podinfo", "6.1.5"))];
        fixture.commit("moved", &moved.each_ref().map(|(path, text)| (*path, text.as_str())));
        let (bench, order) = if restarted {
            (crate::fixture::bench(), Order { retried: true, ..again(&order) })
        } else {
            until_outdated(&bench.delivery, &order, &request, OutdatedReason::NotOwn).await;
            (bench, Order { rebuild: Some(OutdatedReason::NotOwn), ..again(&order) })
        };
        let request = proposed(&bench.delivery, &order).await;
        until_merged(&bench.delivery, &order, &request).await;
        assert_eq!(fixture.repo().read("main", "live/a.yaml").unwrap(), release("critical-db", "6.1.5"));
        assert_eq!(fixture.repo().read("main", "live/b.yaml").unwrap(), release("podinfo", "6.1.8"));
    }
}

#[tokio::test]
async fn a_head_with_the_values_of_a_pipeline_that_was_corrected_since_is_not_merged() {
    let (fixture, bench) = (ForgeFixture::github().await, bench());
    fixture.commit(
        "two",
        &[("live/a.yaml", &release("podinfo", "6.1.5")), ("live/b.yaml", &release("other", "6.1.5"))],
    );
    let corrected = of_release(&fixture, "6.1.8");
    let mut wrong = corrected.clone();
    let Values::Listed { updates, .. } = &mut wrong.values else { unreachable!() };
    updates[0].name = Some("other".into());
    let request = proposed(&bench.delivery, &wrong).await;
    // The base is where it was, and this process has made the commit.
    until_outdated(&bench.delivery, &corrected, &request, OutdatedReason::NotOwn).await;
    let rebuild = Order { rebuild: Some(OutdatedReason::NotOwn), ..again(&corrected) };
    let remade = proposed(&bench.delivery, &rebuild).await;
    assert_eq!(remade.number, request.number);
    until_merged(&bench.delivery, &corrected, &remade).await;
    assert_eq!(fixture.repo().read("main", "live/a.yaml").unwrap(), release("podinfo", "6.1.8"));
    assert_eq!(fixture.repo().read("main", "live/b.yaml").unwrap(), release("other", "6.1.5"));
}

#[tokio::test]
async fn a_head_whose_file_was_changed_elsewhere_on_the_base_is_merged_as_it_is() {
    for restarted in [false, true] {
        let (fixture, bench) = (ForgeFixture::github().await, bench());
        fixture.commit("one", &[("live/a.yaml", &release("podinfo", "6.1.5"))]);
        let order = of_release(&fixture, "6.1.8");
        let request = proposed(&bench.delivery, &order).await;
        let noted = |version| format!("# the owner is team podinfo\n{}", release("podinfo", version));
        fixture.commit("noted", &[("live/a.yaml", &noted("6.1.5"))]);
        let bench = if restarted { crate::fixture::bench() } else { bench };
        until_merged(&bench.delivery, &order, &request).await;
        assert_eq!(fixture.repo().read("main", "live/a.yaml").unwrap(), noted("6.1.8"));
    }
}

/// Somebody has replaced the commit by one with its message and other files, and a person has merged that.
pub async fn a_merge_that_only_names_the_promotion_does_not_deliver_it(fixture: ForgeFixture) {
    let order = fixture.order("6.1.8");
    let request = proposed(&bench().delivery, &order).await;
    let folder = fixture.repo().folder();
    let raw = git(folder, &["cat-file", "commit", &request.head_commit], "");
    let tree = |commit: &str| git(folder, &["rev-parse", &format!("{commit}^{{tree}}")], "");
    let base = forged(&fixture, &request.head_commit, Forgery::Parent);
    let raw = raw.replace(&tree(&request.head_commit), &tree(&format!("{base}^")));
    let empty = git(folder, &["hash-object", "-t", "commit", "-w", "--stdin"], &format!("{raw}\n"));
    fixture.set_branch(&request.branch, &empty).await;
    fixture.merge(request.number).await;
    match bench().delivery.follow(&order, &request).await.unwrap() {
        ChangeRequestStatus::Merged { ours: false, .. } => {}
        other => panic!("{other:?}"),
    }
    // So it is still to do.
    let second = proposed(&bench().delivery, &again(&order)).await;
    assert_ne!(second.number, request.number);
    assert_eq!(fixture.repo().read(&second.branch, FILE).unwrap(), yaml("6.1.8"));
}

pub async fn a_change_request_to_another_base_branch_is_not_merged(fixture: ForgeFixture) {
    let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
    let request = proposed(&bench.delivery, &order).await;
    fixture.set_branch("release", &fixture.repo().head("main").unwrap()).await;
    fixture.retarget(request.number, "release").await;
    let (why, failed) = waits(&bench.delivery, &order, &request).await;
    assert_eq!(
        (why.as_str(), failed),
        ("it goes to release now, and not to main: change that back, or close it", false)
    );
    assert!(fixture.pulls().await[0].open);
}

#[tokio::test]
async fn a_base_branch_changed_during_the_checks_prevents_the_merge() {
    for forge in ForgeKind::ALL {
        let fixture = ForgeFixture::of(forge).await;
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.set_branch("release", &fixture.repo().head("main").unwrap()).await;
        fixture.standin().forge_state(|forge_state| forge_state.retargets = Some("release".into()));
        let (why, _) = waits(&bench.delivery, &order, &request).await;
        assert_eq!(
            why, "it goes to release now, and not to main: change that back, or close it",
            "{forge:?}"
        );
        assert!(fixture.pulls().await[0].open, "{forge:?}");
    }
}

#[tokio::test]
async fn no_other_call_comes_between_the_last_look_at_the_base_branch_and_the_merge() {
    for forge in [ForgeKind::Gitea, ForgeKind::Forgejo] {
        let fixture = ForgeFixture::of(forge).await;
        let (bench, order) = (bench(), merging(&fixture, "6.1.8"));
        let request = proposed(&bench.delivery, &order).await;
        fixture.set_branch("release", &fixture.repo().head("main").unwrap()).await;
        fixture.standin().forge_state(|forge_state| forge_state.retargets_late = Some("release".into()));
        let (why, _) = waits(&bench.delivery, &order, &request).await;
        assert!(why.starts_with("it goes to release now"), "{forge:?}: {why}");
        assert!(fixture.pulls().await[0].open, "{forge:?}");
    }
}

pub async fn a_change_request_to_another_base_branch_counts_for_nothing(fixture: ForgeFixture) {
    for (version, end) in [("6.1.8", "open"), ("6.2.0", "closed"), ("6.3.0", "merged")] {
        let order = fixture.order(version);
        let request = proposed(&bench().delivery, &order).await;
        let other = format!("playground-{version}");
        fixture.set_branch(&other, &fixture.repo().head("main").unwrap()).await;
        fixture.retarget(request.number, &other).await;
        match end {
            "closed" => fixture.close(request.number).await,
            "merged" => {
                fixture.merge(request.number).await;
                let followed = bench().delivery.follow(&order, &request).await.unwrap();
                assert!(matches!(followed, ChangeRequestStatus::Merged { ours: false, .. }), "{followed:?}");
            }
            _ => {}
        }
        let second = proposed(&bench().delivery, &again(&order)).await;
        assert_ne!(second.number, request.number, "{end}");
        assert_eq!(proposed(&bench().delivery, &again(&order)).await.number, second.number, "{end}");
        assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml("6.1.5"));
    }
}

/// Somebody moves the branch to another commit between Sluice's push and the opening of the change request.
async fn moved_between_push_and_opening(fixture: ForgeFixture) {
    for (i, how) in FORGERIES.into_iter().enumerate() {
        let (bench, order) = (bench(), merging(&fixture, &format!("6.1.{i}")));
        let own = own_commit(&fixture, &crate::fixture::bench().delivery, &order).await;
        let evil = forged(&fixture, &own, how);
        fixture.move_after_push(&order.branch(), &evil);
        let request = proposed(&bench.delivery, &order).await;
        assert_eq!(
            (request.head_commit.as_str(), fixture.repo().head(&order.branch()).unwrap()),
            (own.as_str(), evil)
        );
        let (why, _) = waits(&bench.delivery, &order, &request).await;
        assert!(why.contains("Sluice pushed"), "{why}");
        is_delivered_alone(&fixture, &bench.delivery, &again(&order)).await;
    }
}

#[tokio::test]
async fn a_branch_that_is_moved_between_push_and_opening_is_not_merged() {
    everywhere(moved_between_push_and_opening).await;
}

#[tokio::test]
async fn a_branch_at_gitea_that_is_moved_between_push_and_opening_is_not_merged() {
    moved_between_push_and_opening(ForgeFixture::gitea("moved-between").await).await;
}

#[tokio::test]
async fn a_commit_on_an_older_base_is_adopted_if_the_base_has_that_commit() {
    let (fixture, order) = (ForgeFixture::github().await, ForgeFixture::github().await.order("6.1.8"));
    let order = Order { strategy: fixture.order("6.1.8").strategy, ..order };
    let own = proposed(&bench().delivery, &order).await;
    for i in 0..3 {
        fixture.commit("elsewhere", &[("other.yaml", &format!("a: {i}\n"))]);
    }
    for order in [&order, &again(&order)] {
        let bench = bench();
        assert_eq!(proposed(&bench.delivery, order).await.head_commit, own.head_commit);
        assert_eq!(bench.delivery.stats().git_pushes, 0);
    }
}

#[tokio::test]
async fn a_signature_counts_only_if_the_key_of_the_secret_made_it() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let ssh = folders.each_ref().map(|folder| ssh_key(folder.path(), "ed25519", ""));
    let gpg = folders.each_ref().map(|folder| gpg_key(folder.path()));
    for [theirs, ours] in [&ssh, &gpg, &[gpg[0].clone(), ssh[1].clone()], &[ssh[0].clone(), gpg[1].clone()]] {
        let fixture = ForgeFixture::github().await;
        let order = signed_with(&fixture.order("6.1.8"), ours, Some("sesame"));
        let signed_by_others = signed_with(&order, theirs, Some("sesame"));
        let mut request = ChangeRequest::default();
        for other in [fixture.order("6.1.8"), signed_by_others] {
            let evil = own_commit(&fixture, &bench().delivery, &other).await;
            fixture.set_branch(&order.branch(), &evil).await;
            request = proposed(&bench().delivery, &order).await;
            assert_ne!(request.head_commit, evil);
        }
        // The key's own signature is adopted.
        for order in [&order, &again(&order)] {
            let bench = bench();
            assert_eq!(proposed(&bench.delivery, order).await, request);
            assert_eq!(bench.delivery.stats().git_pushes, 0);
        }
        if *ours == ssh[1] {
            verify_ssh(fixture.repo(), &request.branch, folders[1].path());
        }
    }
}

#[tokio::test]
async fn a_commit_of_others_that_names_the_promotion_is_not_taken_for_an_earlier_try() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let order = to_main(&repo, "6.1.8");
    let message = format!("Fix a typo\n\nSluice-Promotion: {}\n", order.promotion);
    repo.commit("main", &message, &[("README.md", "x")]).unwrap();
    let done = bench().delivery.deliver(&again(&order)).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.8"));
    // The real one is found below others that name it, also when it was taken back.
    repo.commit("main", "revert", &[(FILE, &yaml("6.1.5"))]).unwrap();
    repo.commit("main", &message, &[("README.md", "y")]).unwrap();
    assert_eq!(bench().delivery.deliver(&again(&order)).await.unwrap(), done);
    let quoted =
        format!("Revert\n\nSluice-Promotion: {}\n\nAs discussed.\n", to_main(&repo, "6.2.0").promotion);
    repo.commit("main", &quoted, &[(FILE, &yaml("6.2.0"))]).unwrap();
    repo.commit("main", "revert", &[(FILE, &yaml("6.1.5"))]).unwrap();
    bench().delivery.deliver(&again(&to_main(&repo, "6.2.0"))).await.unwrap();
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.2.0"));
}

/// An empty commit on top of the delivery has its values, too.
#[tokio::test]
async fn a_commit_of_others_that_sets_no_value_is_not_recorded_as_the_delivery() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let naming = |order: &Order| format!("Fix a typo\n\nSluice-Promotion: {}\n", order.promotion);
    let order = to_main(&repo, "6.1.8");
    let done = bench().delivery.deliver(&order).await.unwrap();
    repo.commit("main", &naming(&order), &[("README.md", "x")]).unwrap();
    assert_eq!(bench().delivery.find_delivery(&again(&order)).await.unwrap(), Some(done.clone()));
    assert_eq!(bench().delivery.deliver(&again(&order)).await.unwrap(), done);
    // A person sets the values after a commit that only names the promotion.
    let other = again(&to_main(&repo, "6.2.0"));
    repo.commit("main", &naming(&other), &[("README.md", "y")]).unwrap();
    repo.commit("main", "by hand", &[(FILE, &yaml("6.2.0"))]).unwrap();
    assert_eq!(bench().delivery.find_delivery(&other).await.unwrap(), None);
    repo.commit("main", &naming(&other), &[("README.md", "z")]).unwrap();
    assert_eq!(bench().delivery.find_delivery(&other).await.unwrap(), None);
}
