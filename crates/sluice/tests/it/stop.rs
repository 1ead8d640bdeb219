//! What a controller leaves behind when it is stopped.

use anyhow::{Context, Result, ensure};
use sluice_testkit::eventually;

use crate::place::{SOON, TestNamespace};
use crate::process::Controller;
use crate::run;

#[test]
fn a_stopped_controller_leaves_no_folder_for_credentials() -> Result<()> {
    run(async {
        let place = TestNamespace::new("stop").await?;
        let mut controller =
            Controller::start(&place.shared.hub, &place.namespace, &["--api-addr=127.0.0.1:0"])?;
        let folder = controller.log().parent().context("a folder")?.to_path_buf();
        let private_folders = || -> Result<usize> {
            let names = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name()));
            let names: Vec<_> = names.collect::<Result<_>>()?;
            Ok(names.iter().filter(|name| name.to_string_lossy().starts_with("sluice-private-")).count())
        };
        eventually(SOON, || async {
            ensure!(controller.tail().contains("serving the API"), "{}", controller.tail());
            ensure!(private_folders()? == 1, "no folder for credentials");
            Ok(())
        })
        .await?;
        controller.terminate()?;
        controller.dies(SOON).await?;
        ensure!(private_folders()? == 0, "{}", controller.tail());
        Ok(())
    })
}
