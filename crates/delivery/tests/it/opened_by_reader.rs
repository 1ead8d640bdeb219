//! Pull requests of people who may only read: at Gitea they may open them between the branches of the repository, and close
//! those that they opened. Closing one must not reject a promotion.

use sluice_delivery::{ChangeRequestStatus, Order};

use crate::any_forge::{ForgeFixture, RealGitea};
use crate::change_request::proposed;
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
async fn opened_early(fixture: &ForgeFixture, order: &Order, earlier: &Order) -> u64 {
    let earlier = proposed(&bench().delivery, earlier).await;
    fixture.merge_by(earlier.number, crate::standin::Style::Squash).await;
    real(fixture).repo.open_pull_as(READER, &order.branch(), "main").await.unwrap()
}

/// Also if the branch may be that of another environment, whose marker its body has.
#[tokio::test]
async fn a_pull_request_that_a_reader_opened_is_closed_and_sluice_opens_its_own() {
    let fixture = readable("opened_by_reader").await;
    let order = |version| {
        fixture.order_with(version, |settings| {
            settings.branch = Some("promotion-{namespace}-{pipeline}-{environment}".into());
        })
    };
    let (bench, earlier, order) = (bench(), order("6.1.8"), order("6.2.0"));
    let early = opened_early(&fixture, &order, &earlier).await;
    let own = proposed(&bench.delivery, &order).await;
    let repo = &real(&fixture).repo;
    assert!(own.number > early && repo.pull(early).await.unwrap().state == "closed");
    let comments = repo.comments(early).await.unwrap().join("\n");
    assert!(comments.contains("another user than Sluice's opened it"), "{comments}");
    repo.close_as(READER, own.number).await.unwrap_err();
    assert_eq!(proposed(&bench.delivery, &again(&order)).await.number, own.number);
}

/// The branch does not exist before, so that Sluice looks for no open pull request.
#[tokio::test]
async fn a_reader_who_opens_a_pull_request_between_the_push_and_the_opening_rejects_nothing() {
    let fixture = readable("fast_reader").await;
    let repo = &real(&fixture).repo;
    for version in 0..10 {
        let order = fixture.order_with(&format!("6.2.{version}"), |settings| {
            settings.branch = Some(format!("fast-{version}/{{namespace}}/{{pipeline}}/{{environment}}"));
        });
        let reader = async {
            loop {
                match repo.open_pull_as(READER, &order.branch(), "main").await {
                    Ok(theirs) => return theirs,
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                }
            }
        };
        let delivery = bench().delivery;
        let mut delivering = std::pin::pin!(delivery.deliver(&order));
        tokio::select! {
            theirs = reader => {
                // The reader opens more while Sluice opens its own.
                let delivered = delivering.await.unwrap();
                let sluice_delivery::Delivered::Proposed { request: own, .. } = delivered else { panic!("{delivered:?}") };
                assert_ne!(own.number, theirs);
                // Gitea may have opened both at the same time. Then theirs stays open until the reader closes it.
                if repo.pull(theirs).await.unwrap().state == "open" {
                    repo.close_as(READER, theirs).await.unwrap();
                }
                repo.close_as(READER, own.number).await.unwrap_err();
                assert_eq!(proposed(&delivery, &again(&order)).await.number, own.number);
                return;
            }
            // Sluice was faster.
            delivered = &mut delivering => drop(delivered.unwrap()),
        }
    }
    panic!("the reader was never first");
}

/// After the token's user has changed, the change request that a promotion records is another user's.
#[tokio::test]
async fn a_recorded_change_request_is_updated_whoever_opened_it() {
    let fixture = readable("recorded").await;
    let order = fixture.order("6.2.0");
    let early = opened_early(&fixture, &order, &fixture.order("6.1.8")).await;
    let recorded = vec![real(&fixture).repo.pull(early).await.unwrap().url];
    assert_eq!(proposed(&bench().delivery, &Order { recorded, ..order }).await.number, early);
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
    let early = opened_early(&fixture, &order, &fixture.order("6.1.8")).await;
    let credentials = fixture.token_for("without-user", &["write:repository", "write:issue"]).await;
    assert_eq!(proposed(&bench().delivery, &Order { credentials, ..order }).await.number, early);
}
