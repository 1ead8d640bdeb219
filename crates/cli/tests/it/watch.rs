//! `sluice get -w`.

use std::time::Duration;

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::hub::{Ran, place, sluice_into};

#[tokio::test]
async fn what_changes_is_printed_and_nothing_else() -> Result<()> {
    let place = place("watch").await?;
    place.promotion("a", "dev", json!({"phase": "Succeeded"})).await?;
    place.promotion("b", "prod", json!({"phase": "Pending"})).await?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let arguments = ["get", "promotions", "-n", "watch", "-w"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut out, &mut err);
    let changing = async {
        let api = place.promotions();
        let status = |status| Patch::Merge(json!({"status": status}));
        let pause = || tokio::time::sleep(Duration::from_secs(1));
        pause().await;
        api.patch_status("b", &PatchParams::default(), &status(json!({"phase": "Proposed"}))).await?;
        pause().await;
        // Not in the table: not a change of it.
        api.patch_status("b", &PatchParams::default(), &status(json!({"message": "waits for the merge"})))
            .await?;
        api.delete("a", &DeleteParams::default()).await?;
        pause().await;
        anyhow::Ok(())
    };
    tokio::select! {
        exit = watching => panic!("ended by itself: {exit:?}"),
        changed = changing => changed?,
    }
    let ran = Ran { exit: sluice_cli::Exit::Ok, out: String::from_utf8(out)?, err: String::from_utf8(err)? };
    insta::assert_snapshot!(ran.steady(), @"
    NAME PIPELINE ENVIRONMENT REVISION PHASE AGE
    a podinfo dev 6.1.8 Succeeded AGE
    b podinfo prod 6.1.8 Pending AGE
    b podinfo prod 6.1.8 Proposed AGE
    ");
    assert_eq!(ran.err, "► watch/a was deleted\n");
    Ok(())
}
