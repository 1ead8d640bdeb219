//! The head branch of the predecessor's template: its open change requests are taken over, and those of another pipeline with
//! the same branch are not.

use sluice_delivery::{Delivered, Order, Retry};

use crate::any_forge::everywhere;
use crate::change_request::proposed;
use crate::fixture::{FILE, again, bench, yaml};

/// Weave's pipeline-controller, the predecessor of Sluice, used other names for branches, and made other commits.
#[tokio::test]
async fn the_open_request_of_the_predecessor_is_updated_in_place() {
    everywhere(async |fixture| {
        let (bench, branch) = (bench(), "promotion-apps-podinfo-prod");
        let predecessor_commit =
            fixture.repo().commit(branch, "promoting version", &[(FILE, &yaml("6.1.7"))]).unwrap();
        fixture.standin().open_by_hand(branch, &predecessor_commit);
        let named = |version: &str| {
            fixture.order_with(version, |settings| {
                settings.branch = Some("promotion-{namespace}-{pipeline}-{environment}".into());
            })
        };
        let request = proposed(&bench.delivery, &named("6.1.8")).await;
        assert_eq!((request.number, request.branch.as_str()), (1, branch));
        assert_ne!(request.head_commit, predecessor_commit);
        let pulls = fixture.pulls().await;
        assert_eq!((pulls.len(), pulls[0].title.as_str()), (1, "Promote apps/podinfo to 6.1.8 in prod"));
        assert_eq!(fixture.repo().read(branch, FILE).unwrap(), yaml("6.1.8"));
        // The change request has one commit of Sluice, on top of the base, and no commit of the predecessor.
        assert_eq!(fixture.repo().log(branch).unwrap()[1].sha, fixture.repo().head("main").unwrap());
        assert_eq!(proposed(&bench.delivery, &named("6.2.0")).await.number, 1);
    })
    .await;
}

/// The predecessor's template gives both environments the branch `promotion-apps-podinfo-x-prod`.
#[tokio::test]
async fn an_open_request_of_another_pipeline_with_the_same_branch_is_not_changed() {
    everywhere(async |fixture| {
        let (bench, others) = (bench(), ("podinfo", "x-prod"));
        let markers = ["apps:podinfo:x-prod", "apps:podinfo-x:prod"]
            .map(|marker| yaml("6.1.5").replace("apps:podinfo:prod", marker));
        let files = [("a.yaml", &*markers[0]), ("b.yaml", &*markers[1])];
        fixture.repo().commit("main", "add two environments", &files).unwrap();
        let order = |(pipeline, environment): (&str, &str), version: &str| {
            let order = fixture.order_with(version, |settings| {
                settings.branch = Some("promotion-{namespace}-{pipeline}-{environment}".into());
            });
            let promotion = format!("apps/{pipeline}-{environment}-{version}-{}", pipeline.len());
            Order { pipeline: pipeline.into(), environment: environment.into(), promotion, ..order }
        };
        let open = proposed(&bench.delivery, &order(others, "6.1.8")).await;
        let second = order(("podinfo-x", "prod"), "6.1.8");
        let refused = async |order: &Order, why: &str| {
            let error = bench.delivery.deliver(order).await.unwrap_err();
            assert_eq!((error.reason(), error.retry()), ("BadTemplate", Retry::OnChange), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        let is_open = format!("another environment has the open change request {}", open.url);
        let owner = "of another environment (Sluice-Pipeline: apps/podinfo, Sluice-Environment: x-prod)";
        refused(&second, owner).await;
        assert_eq!(fixture.repo().head(&open.branch).unwrap(), open.head_commit);
        // Such as by the button of forges that merges the base branch into the head branch.
        let on_top = fixture.repo().commit(&open.branch, "not by Sluice", &[("c.md", "c")]).unwrap();
        refused(&again(&second), &is_open).await;
        assert_eq!(fixture.repo().head(&open.branch).unwrap(), on_top);
        let pulls = fixture.pulls().await;
        assert_eq!((pulls.len(), pulls[0].title.as_str()), (1, "Promote apps/podinfo to 6.1.8 in x-prod"));
        assert!(pulls[0].open, "it was closed");
        // A new Pipeline of the same name continues it.
        let continued = proposed(&bench.delivery, &order(others, "6.2.0")).await;
        assert_eq!(continued.number, open.number);
        // What the base branch has already needs no branch.
        let by_hand = yaml("6.1.8").replace("apps:podinfo:prod", "apps:podinfo-x:prod");
        fixture.repo().commit("main", "by hand", &[("b.yaml", &by_hand)]).unwrap();
        let delivered = bench.delivery.deliver(&again(&second)).await.unwrap();
        assert!(matches!(delivered, Delivered::AlreadySet { .. }), "{delivered:?}");
        assert!(fixture.pulls().await[0].open, "it was closed");
        // Its branch stays, and may have another change request, into another base branch.
        fixture.close(open.number).await;
        refused(&order(("podinfo-x", "prod"), "6.3.0"), owner).await;
        assert_eq!(fixture.repo().head(&open.branch).unwrap(), continued.head_commit);
    })
    .await;
}
