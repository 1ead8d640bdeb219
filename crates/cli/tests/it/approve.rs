//! `sluice approve`.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_cli::Exit;

use crate::hub::{managers, place, running};

#[tokio::test]
async fn an_approval_names_the_user_and_is_given_once() -> Result<()> {
    let place = place("approve").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let waits = json!({"phase": "Pending", "gates": [{"name": "Approval", "open": false}]});
    place.promotion("podinfo-prod-1", "prod", waits).await?;

    let ran = place.sluice(&["approve", "podinfo", "-e", "prod"]).await;
    insta::assert_snapshot!(ran.err, @"✔ approved podinfo 6.1.8 into prod (as admin)");
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Ok, ""));
    let promotion = place.promotions().get("podinfo-prod-1").await?;
    let approval = promotion.spec.approval.clone().unwrap();
    assert_eq!(
        (approval.by.as_str(), approval.revision.as_str(), approval.at.as_ref()),
        ("admin", "6.1.8", None)
    );
    assert!(managers(&promotion).contains(&"sluice-cli".to_owned()));

    let seen = json!({"status": {"approval": {"by": "admin", "at": "2026-11-21T10:00:00Z"}}});
    place.promotions().patch_status("podinfo-prod-1", &PatchParams::default(), &Patch::Merge(seen)).await?;
    let seen = json!({"status": {"approval": {"by": "admin", "at": "2026-11-21T10:00:00Z"}}});
    place.promotions().patch_status("podinfo-prod-1", &PatchParams::default(), &Patch::Merge(seen)).await?;
    let again = place.sluice(&["approve", "podinfo-prod-1"]).await;
    assert_eq!(again.exit, Exit::Ok);
    insta::assert_snapshot!(again.err, @"✔ podinfo 6.1.8 into prod is approved already, by admin at 2026-11-21T10:00:00Z");
    assert_eq!(place.promotions().get("podinfo-prod-1").await?.spec.approval, Some(approval));
    Ok(())
}

#[tokio::test]
async fn a_promotion_that_does_not_wait_is_refused() -> Result<()> {
    let place = place("approve-not").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    place
        .promotion("podinfo-prod-1", "prod", json!({"phase": "Rejected", "message": "closed by jane"}))
        .await?;
    let ran = place.sluice(&["approve", "podinfo-prod-1"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"
    ✗ podinfo 6.1.8 into prod has ended: Rejected (closed by jane)
      try it again: sluice retry podinfo-prod-1
    ");
    for (arguments, says) in [
        (
            &["approve", "podinfo"][..],
            "but a pipeline of that name\n  say which environment: podinfo --environment prod",
        ),
        (&["approve", "podinfo", "-e", "dev"], "pipeline podinfo has no promotion into dev"),
        (
            &["approve", "podinfo", "-e", "prodd"],
            "pipeline podinfo has no environment prodd; did you mean prod?",
        ),
        (
            &["approve", "podinfos", "-e", "prod"],
            "there is no pipeline podinfos in namespace approve-not; did you mean podinfo?",
        ),
        (&["approve", "podinfo-prod"], "did you mean podinfo-prod-1?"),
    ] {
        let ran = place.sluice(arguments).await;
        assert_eq!(ran.exit, Exit::NotFound, "{ran:?}");
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
    Ok(())
}
