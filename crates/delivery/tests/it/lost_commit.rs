//! Whether a delivered commit is gone from its branch: forced pushes, and changes that only look like one.

use sluice_delivery::{ChangeRequestStatus, Delivered, Order};
use sluice_testkit::Repo;

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::proposed;
use crate::commit::{server, to_main};
use crate::fixture::{FILE, again, bench, git, started_again, yaml};
use crate::standin::Style;

/// Delivers 6.1.8 to main; the order, the commit, and the commit before it.
async fn delivered(repo: &Repo) -> (Order, String, String) {
    let base = repo.head("main").unwrap();
    let order = to_main(repo, "6.1.8");
    let Delivered::Committed { commit } = bench().delivery.deliver(&order).await.unwrap() else { panic!() };
    (again(&order), commit, base)
}

fn force(repo: &Repo, commit: &str) {
    git(repo.folder(), &["update-ref", "refs/heads/main", commit], "");
}

async fn is_lost(order: &Order, commit: &str) -> bool {
    let bench = bench();
    let lost = bench.delivery.is_lost(order, commit).await.unwrap();
    assert_eq!(bench.delivery.stats().git_pushes, 0);
    lost
}

#[tokio::test]
async fn a_commit_that_a_forced_push_removed_is_noticed_and_made_again_once() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (order, commit, base) = delivered(&repo).await;
    assert!(!is_lost(&order, &commit).await);
    force(&repo, &base);
    assert!(is_lost(&order, &commit).await);
    // Somebody has gone on from there.
    repo.commit("main", "other", &[("other.yaml", "a: 1\n")]).unwrap();
    assert!(is_lost(&order, &commit).await);
    let next = started_again(&order);
    let done = bench().delivery.deliver(&next).await.unwrap();
    let head = repo.head("main").unwrap();
    assert_eq!(done, Delivered::Committed { commit: head.clone() });
    assert_eq!(bench().delivery.deliver(&next).await.unwrap(), done);
    assert_eq!((repo.log("main").unwrap().len(), repo.read("main", FILE).unwrap()), (3, yaml("6.1.8")));
    assert!(!is_lost(&next, &head).await);
}

#[tokio::test]
async fn later_changes_of_people_are_kept() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (order, commit, base) = delivered(&repo).await;
    // Taken back by a commit, and something else in its place.
    for version in ["6.1.5", "6.1.7"] {
        repo.commit("main", "by hand", &[(FILE, &yaml(version))]).unwrap();
        assert!(!is_lost(&order, &commit).await, "{version}");
    }
    // Removed, and the same value set by hand.
    force(&repo, &base);
    repo.commit("main", "by hand", &[(FILE, &yaml("6.1.8"))]).unwrap();
    assert!(!is_lost(&order, &commit).await);
    // The marker is gone too.
    force(&repo, &base);
    repo.commit("main", "by hand", &[(FILE, "version: 6.1.5\n")]).unwrap();
    assert!(!is_lost(&order, &commit).await);
    // Rewritten with its message kept, as by a rebase, and taken back after that.
    force(&repo, &commit);
    repo.amend("main", &format!("Promote\n\nSluice-Promotion: {}\n", order.promotion)).unwrap();
    repo.commit("main", "by hand", &[(FILE, &yaml("6.1.5"))]).unwrap();
    assert!(!is_lost(&order, &commit).await);
}

#[tokio::test]
async fn a_commit_is_not_lost_if_the_history_is_not_read_completely() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (order, commit, base) = delivered(&repo).await;
    let file = yaml("6.1.7");
    let since = order.created.as_second();
    // More commits than are read, all made after the promotion; or the first of them long before.
    for (first, lost) in [(since, false), (since - 3600, true)] {
        force(&repo, &base);
        let mut stream = String::new();
        for n in 0..=210 {
            let time = if n < 20 { first } else { since };
            let from = if n == 0 { format!("from {base}\n") } else { String::new() };
            stream.push_str(&format!(
                "commit refs/heads/main\ncommitter a <a@b> {time} +0000\ndata 1\nx\n{from}\
                 M 100644 inline {FILE}\ndata {}\n{file}\n",
                file.len(),
            ));
        }
        git(repo.folder(), &["fast-import", "--quiet", "--force"], &stream);
        assert_eq!(is_lost(&order, &commit).await, lost);
    }
}

/// Resets the base of merged change requests to the commit before the merge.
async fn a_merge_is_made_again_once(fixture: ForgeFixture) {
    for (n, style) in [Style::Merge, Style::Squash].into_iter().enumerate() {
        let (bench, case) = (bench(), format!("{:?} {style:?}", fixture.kind()));
        let order = fixture.order(&format!("6.2.{n}"));
        let base = fixture.repo().head("main").unwrap();
        let first = proposed(&bench.delivery, &order).await;
        fixture.merge_by(first.number, style).await;
        let merged = bench.delivery.follow(&order, &first).await.unwrap();
        let ChangeRequestStatus::Merged { commit, ours: true, .. } = merged else {
            panic!("{case}: {merged:?}")
        };
        assert_ne!(commit, first.head_commit, "{case}");
        assert!(!is_lost(&order, &commit).await, "{case}");
        force(fixture.repo(), &base);
        assert!(is_lost(&order, &commit).await, "{case}");

        // The merged change request of the round before does not count.
        let next = started_again(&order);
        let second = proposed(&bench.delivery, &next).await;
        assert_ne!(second.number, first.number, "{case}");
        assert_eq!(proposed(&bench.delivery, &again(&next)).await, second, "{case}");
        fixture.merge_by(second.number, style).await;
        let merged = bench.delivery.follow(&next, &second).await.unwrap();
        let ChangeRequestStatus::Merged { commit, ours: true, .. } = merged else {
            panic!("{case}: {merged:?}")
        };
        assert!(!is_lost(&next, &commit).await, "{case}");
        assert_eq!(fixture.repo().read("main", FILE).unwrap(), yaml(&format!("6.2.{n}")), "{case}");
    }
}

#[tokio::test]
async fn a_merge_that_a_forced_push_removed_is_noticed_and_made_again_once() {
    everywhere(a_merge_is_made_again_once).await;
}

#[tokio::test]
async fn a_merge_that_a_forced_push_removed_is_made_again_at_gitea() {
    a_merge_is_made_again_once(ForgeFixture::gitea("lost-merge").await).await;
}
