//! Pull requests of people who may only read: at Gitea they may open them between the branches of the repository, and close
//! those that they opened. Closing one must not reject a promotion.

use sluice_delivery::{ChangeRequestStatus, Order};

use crate::any_forge::{ForgeFixture, RealGitea};
use crate::contract::proposed;
use crate::fixture::{again, bench};

const READER: &str = "ada";

/// A repository of real Gitea that a person may read.
async fn readable(name: &str) -> ForgeFixture {
    let fixture = ForgeFixture::gitea(name).await;
    let RealGitea { gitea, repo, .. } = real(&fixture);
    gitea.create_user(READER).await.unwrap();
    repo.add_reader(READER).await.unwrap();
    fixture
}

fn real(fixture: &ForgeFixture) -> &RealGitea {
    let ForgeFixture::Gitea(real) = fixture else { panic!("this is real Gitea") };
    real
}

/// Opens a pull request as the reader, from the branch that an earlier promotion has left.
async fn opened_early(fixture: &ForgeFixture, order: &Order) -> u64 {
    let earlier = proposed(&bench().delivery, &fixture.order("6.1.8")).await;
    fixture.merge_by(earlier.number, crate::standin::Style::Squash).await;
    real(fixture).repo.open_pull_as(READER, &order.branch(), "main").await.unwrap()
}

#[tokio::test]
async fn a_pull_request_that_a_reader_opened_is_closed_and_sluice_opens_its_own() {
    let fixture = readable("opened_by_reader").await;
    let (bench, order) = (bench(), fixture.order("6.2.0"));
    let early = opened_early(&fixture, &order).await;
    let own = proposed(&bench.delivery, &order).await;
    let repo = &real(&fixture).repo;
    assert!(own.number > early && repo.pull(early).await.unwrap().state == "closed");
    let comments = repo.comments(early).await.unwrap().join("\n");
    assert!(comments.contains("Sluice opens a change request of its own"), "{comments}");
    repo.close_as(READER, own.number).await.unwrap_err();
    assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, own.number);
}

#[tokio::test]
async fn a_reader_who_opens_and_closes_a_pull_request_before_sluice_opens_its_own_rejects_nothing() {
    let fixture = readable("closed_by_reader").await;
    let (bench, order) = (bench(), fixture.order("6.2.0"));
    // The branch is pushed, and then the forge cannot be reached.
    let cut_off =
        fixture.order_with("6.2.0", |settings| settings.api_url = Some("http://127.0.0.1:1".into()));
    let cut_off = Order { created: order.created, ..cut_off };
    bench.delivery.deliver(&cut_off).await.unwrap_err();
    let repo = &real(&fixture).repo;
    let theirs = repo.open_pull_as(READER, &order.branch(), "main").await.unwrap();
    repo.close_as(READER, theirs).await.unwrap();
    let own = proposed(&bench.delivery, &again(&order)).await;
    assert!(own.number > theirs);
    // A person who may write rejects it.
    fixture.close(own.number).await;
    let status = bench.delivery.follow(&order, &own).await.unwrap();
    assert_eq!(status, ChangeRequestStatus::Closed);
}

#[tokio::test]
async fn a_token_that_may_not_read_its_user_adopts_the_pull_request() {
    let fixture = readable("unknown_reader").await;
    let order = fixture.order("6.2.0");
    let early = opened_early(&fixture, &order).await;
    let credentials = fixture.token_for("without-user", &["write:repository", "write:issue"]).await;
    assert_eq!(proposed(&bench().delivery, &Order { credentials, ..order }).await.number, early);
}
