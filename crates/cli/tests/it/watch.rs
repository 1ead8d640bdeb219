//! `sluice get -w`.

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::hub::{Heard, Ran, place, sluice_into};

#[tokio::test]
async fn only_changed_rows_are_printed() -> Result<()> {
    let place = place("watch").await?;
    place.promotion("a", "dev", json!({"phase": "Succeeded"})).await?;
    place.promotion("b", "prod", json!({"phase": "Pending"})).await?;
    let (out, err) = (Heard::default(), Heard::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let arguments = ["get", "promotions", "-n", "watch", "-w"];
    let watching = sluice_into(&place.kubeconfig, &arguments, &mut to_out, &mut to_err);
    let changing = async {
        let api = place.promotions();
        let status = |status| Patch::Merge(json!({"status": status}));
        out.lines(3).await?;
        api.patch_status("b", &PatchParams::default(), &status(json!({"phase": "Proposed"}))).await?;
        out.lines(4).await?;
        // A field that is not in the table changes no row.
        api.patch_status("b", &PatchParams::default(), &status(json!({"message": "waits for the merge"})))
            .await?;
        api.delete("a", &DeleteParams::default()).await?;
        err.lines(1).await
    };
    tokio::select! {
        exit = watching => panic!("ended on its own: {exit:?}"),
        changed = changing => changed?,
    }
    let ran = Ran { exit: sluice_cli::Exit::Ok, out: out.text(), err: err.text() };
    insta::assert_snapshot!(ran.steady(), @"
    NAME PIPELINE ENVIRONMENT REVISION PHASE AGE
    a podinfo dev 6.1.8 Succeeded AGE
    b podinfo prod 6.1.8 Pending AGE
    b podinfo prod 6.1.8 Proposed AGE
    ");
    assert_eq!(ran.err, "► watch/a was deleted\n");
    Ok(())
}
