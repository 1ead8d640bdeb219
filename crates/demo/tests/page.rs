//! The demo as a person uses it, in a real Chromium: the page opens at the printed address, and the approval works there.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::{Browser, ProcessGuard, Scratch, eventually};

/// The servers and the first promotion take most of this time.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Returns what comes after a text in the output, up to the next space.
fn word_after<'a>(output: &'a str, text: &str) -> Option<&'a str> {
    output.split_once(text)?.1.split_whitespace().next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_approval_works_on_the_page() -> Result<()> {
    let demo = Path::new(env!("CARGO_BIN_EXE_demo"));
    let sluice = demo.parent().context("no folder")?.join("sluice");
    ensure!(sluice.is_file(), "{} is not built: run cargo build -p sluice", sluice.display());
    let scratch = Scratch::new("demo-test")?;
    let log = scratch.path().join("output");
    let mut command = Command::new(demo);
    command.arg(sluice);
    let mut running = ProcessGuard::start("demo", &command, &log)?;
    let output = eventually(TIMEOUT, || async {
        let output = std::fs::read_to_string(&log)?;
        ensure!(output.contains("it is your turn") && output.contains("Ctrl-C"), "{output}");
        Ok(output)
    })
    .await?;
    let page = word_after(&output, "it is your turn: open ").context("no address")?;
    let token = word_after(&output, "sign in with the token in ").context("no token")?;
    let first = output.find("http://").and_then(|at| output.get(at..)).unwrap_or_default();
    ensure!(first.starts_with(page), "another address comes first: {output}");

    let browser = Browser::start().await?;
    browser.open(page).await?;
    browser.until_text("Sign in to Sluice").await?;
    browser.write("#token", std::fs::read_to_string(token)?.trim()).await?;
    browser.click("button.main").await?;
    browser.until_text("6.1.8").await?;
    for button in ["a[href$=\"/podinfo\"]", "a[href$=\"/approve\"]"] {
        eventually(TIMEOUT, || async { browser.click(button).await }).await.context(button)?;
    }
    browser.until_text("Approve 6.1.8 into prod?").await?;
    browser.click("form button.main").await?;
    browser.until_text("prod runs 6.1.8 and is healthy").await?;
    running.terminate()?;
    eventually(TIMEOUT, || async {
        let output = std::fs::read_to_string(&log)?;
        ensure!(output.contains("all servers have ended"), "{output}");
        Ok(())
    })
    .await?;
    ensure!(running.ended().is_none_or(|status| status.success()), "{}", running.log_tail());
    Ok(())
}
