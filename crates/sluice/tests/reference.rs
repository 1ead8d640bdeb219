//! `docs/reference/commands.md` is what the definitions of the commands say. `UPDATE=1` writes it.

#[path = "support/reference_files.rs"]
mod reference_files;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use reference_files::are_up_to_date;

#[test]
fn the_reference_of_the_commands_is_that_of_this_binary() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("command-reference")
        .env_clear()
        .output()
        .context("cannot run sluice")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout)?;
    ensure!(
        printed.contains("\n## sluice controller\n") && printed.contains("\n## sluice get pipelines\n"),
        "{printed}"
    );
    are_up_to_date(&[("commands.md", printed)])
}
