//! An API server accepts the output of `sluice crds`.

use anyhow::Result;
use sluice_cli::Exit;

use crate::hub::{servers, sluice_as};

#[tokio::test]
async fn the_api_server_accepts_every_document() -> Result<()> {
    let servers = servers().await?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    // The command needs no cluster and has no flag for one.
    let exit = crate::hub::bare(&["crds"], &mut out, &mut err).await;
    assert_eq!(exit, Exit::Ok);
    let applied = servers.hub.apply_yaml(&String::from_utf8(out)?).await?;
    assert_eq!(applied.len(), sluice_api::all_crds().len() + 2, "and the policy with its binding");
    let ran = sluice_as(&servers.hub.kubeconfig_path(), &["get", "pipelines", "-n", "default"]).await;
    assert_eq!(ran.err, "no pipelines found in namespace default; -A looks in all of them\n");
    assert_eq!(ran.exit, Exit::Ok);
    Ok(())
}
