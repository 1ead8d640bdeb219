//! Steps with a change request that many tests share: it is proposed, waits, becomes outdated, or is merged.

use std::time::Duration;

use sluice_delivery::{
    ChangeRequest, ChangeRequestStatus, Delivered, Delivery, MergeMode, Order, OutdatedReason,
};

use crate::any_forge::ForgeFixture;
use crate::fixture::{FILE, again, yaml};

/// Delivers a promotion, and returns its open change request.
pub async fn proposed(delivery: &Delivery, order: &Order) -> ChangeRequest {
    match delivery.deliver(order).await.unwrap() {
        Delivered::Proposed { request, merged: false } => request,
        other => panic!("{other:?}"),
    }
}

/// How many times a test looks at a change request until the forge has computed its state.
pub const MAX_LOOKS: usize = 1000;

/// Returns an order for a change request that Sluice merges when its checks are green.
pub fn merging(fixture: &ForgeFixture, version: &str) -> Order {
    fixture.order_with(version, |settings| settings.merge = MergeMode::WhenGreen)
}

/// Returns what a change request waits for, and whether a check has failed.
pub async fn waits(delivery: &Delivery, order: &Order, request: &ChangeRequest) -> (String, bool) {
    for _ in 0..MAX_LOOKS {
        match delivery.advance(order, request).await.unwrap().status {
            // The forge has not computed yet whether the change request can be merged. Until then, the forge reports
            // that it cannot be merged.
            ChangeRequestStatus::Open { stale: Some(_), .. } => {}
            ChangeRequestStatus::Waits { why, .. } if why.starts_with("it cannot be merged as it is") => {}
            ChangeRequestStatus::Waits { why, .. } if why.contains("to check whether it can be merged") => {}
            ChangeRequestStatus::Waits { why, failed, .. } => return (why, failed),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the forge reports a conflict");
}

/// Looks until the change request is outdated for this reason, at the head that Sluice pushed.
pub async fn until_outdated(
    delivery: &Delivery,
    order: &Order,
    request: &ChangeRequest,
    why: OutdatedReason,
) {
    let outdated = ChangeRequestStatus::Open { head: request.head_commit.clone(), stale: Some(why) };
    sluice_testkit::eventually(sluice_testkit::WAIT_TIMEOUT, || async {
        let followed = delivery.advance(order, request).await?.status;
        anyhow::ensure!(followed == outdated, "{followed:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Looks until the change request is merged. A forge needs a short time to compute whether it can be merged.
pub async fn until_merged(delivery: &Delivery, order: &Order, request: &ChangeRequest) {
    for _ in 0..MAX_LOOKS {
        match delivery.advance(order, request).await.unwrap().status {
            ChangeRequestStatus::Merged { ours: true, .. } => return,
            ChangeRequestStatus::Waits { failed: false, .. } | ChangeRequestStatus::Open { .. } => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the change request is not merged: {:?}", delivery.advance(order, request).await);
}

/// Proposes a promotion, and makes the commit again on top of other values of the base. A gate closes, or the process ends,
/// after that push. Returns the change request as it is recorded, and the commit that is not.
pub async fn pushed_and_not_recorded(
    fixture: &ForgeFixture,
    delivery: &Delivery,
    order: &Order,
) -> (ChangeRequest, String) {
    let request = proposed(delivery, order).await;
    fixture.commit("the same lines", &[(FILE, &yaml("6.1.6"))]);
    let rebuild = Order { rebuild: Some(OutdatedReason::Conflicts), ..again(order) };
    let unrecorded = proposed(delivery, &rebuild).await.head_commit;
    (request, unrecorded)
}
