//! `sluice retry`.

use anyhow::Result;
use serde_json::json;
use sluice_cli::Exit;

use crate::hub::{managers, place};

#[tokio::test]
async fn a_failed_promotion_is_tried_again() -> Result<()> {
    let place = place("retry").await?;
    place
        .promotion("podinfo-prod-1", "prod", json!({"phase": "Failed", "message": "no route to git"}))
        .await?;
    let ran = place.sluice(&["retry", "podinfo", "-e", "prod"]).await;
    assert_eq!(ran.exit, Exit::Ok);
    insta::assert_snapshot!(ran.err, @"✔ asked for another try of podinfo 6.1.8 into prod");
    let promotion = place.promotions().get("podinfo-prod-1").await?;
    assert!(
        promotion.spec.retry.as_ref().is_some_and(|t| t.parse::<jiff::Timestamp>().is_ok()),
        "{promotion:?}"
    );
    assert!(managers(&promotion).contains(&"sluice-cli".to_owned()));
    Ok(())
}

#[tokio::test]
async fn one_that_is_on_its_way_is_left_alone() -> Result<()> {
    let place = place("retry-not").await?;
    place.promotion("p", "prod", json!({"phase": "Proposed"})).await?;
    let ran = place.sluice(&["retry", "p"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"✗ podinfo 6.1.8 into prod is proposed, nothing has failed");
    assert_eq!(place.promotions().get("p").await?.spec.retry, None);
    Ok(())
}
