//! The demo as a person uses it, in a real Chromium: the page opens at the printed address, the approval works there, each page
//! is accessible, and the page says what is wrong with the demo that has a fault.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::{Browser, Look, ProcessGuard, Scratch, eventually};

/// The servers and the first promotion take most of this time.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A running demo, in which somebody has signed in and has a promotion to approve.
struct Demo {
    running: ProcessGuard,
    browser: Browser,
    page: String,
    output: String,
    scratch: Scratch,
}

impl Demo {
    async fn start(arguments: &[&str]) -> Result<Demo> {
        let demo = Path::new(env!("CARGO_BIN_EXE_demo"));
        let sluice = demo.parent().context("no folder")?.join("sluice");
        ensure!(sluice.is_file(), "{} is not built: run cargo build -p sluice", sluice.display());
        let scratch = Scratch::new("demo-test")?;
        let mut command = Command::new(demo);
        command.args(arguments).arg(sluice);
        let running = ProcessGuard::start("demo", &command, &log(&scratch))?;
        let output = eventually(TIMEOUT, || async {
            let output = std::fs::read_to_string(log(&scratch))?;
            ensure!(output.contains("it is your turn") && output.contains("Ctrl-C"), "{output}");
            Ok(output)
        })
        .await?;
        let page = word_after(&output, "it is your turn: open ").context("no address")?;
        let first = output.find("http://").and_then(|at| output.get(at..)).unwrap_or_default();
        ensure!(first.starts_with(page), "another address comes first: {output}");
        let page = page.trim_end_matches('/').to_owned();
        Ok(Demo { running, browser: Browser::start().await?, page, output, scratch })
    }

    async fn sign_in(&self) -> Result<()> {
        let token = word_after(&self.output, "sign in with the token in ").context("no token")?;
        self.browser.open(&self.page).await?;
        self.browser.until_text("Sign in to Sluice").await?;
        self.browser.write("#token", std::fs::read_to_string(token)?.trim()).await?;
        self.browser.click("button.main").await?;
        self.browser.until_text("6.1.8").await
    }

    /// Approves the promotion into prod, from the list on.
    async fn approve(&self) -> Result<()> {
        for button in ["a[href$=\"/podinfo\"]", "a[href$=\"/approve\"]"] {
            eventually(TIMEOUT, || async { self.browser.click(button).await }).await.context(button)?;
        }
        self.browser.until_text("Approve 6.1.8 into prod?").await?;
        self.browser.click("form button.main").await
    }

    /// Opens each page that a link of another one leads to, once for each path, on a desk and on a dark phone. Returns the paths,
    /// and what is wrong with them.
    async fn follow_links(&self) -> Result<(Vec<String>, Vec<String>)> {
        let links = "return [...document.querySelectorAll('a[href^=\"/\"]')].map((link) => link.getAttribute('href'))";
        let (mut addresses, mut paths, mut faults) = (vec![String::from("/")], Vec::new(), Vec::new());
        while let Some(address) = addresses.pop() {
            let path = address.split(['?', '#']).next().unwrap_or_default().to_owned();
            if paths.contains(&path) {
                continue;
            }
            for look in [Look { width: 1280, dark: false }, Look { width: 360, dark: true }] {
                self.browser.look(look).await?;
                self.browser.open(&format!("{}{address}", self.page)).await?;
                let found = self.browser.faults().await?;
                faults.extend(found.into_iter().map(|fault| format!("{address} at {}: {fault}", look.width)));
            }
            let found: Vec<String> = serde_json::from_value(self.browser.run(links).await?)?;
            addresses.extend(found);
            paths.push(path);
        }
        Ok((paths, faults))
    }

    async fn end(mut self) -> Result<()> {
        self.running.terminate()?;
        eventually(TIMEOUT, || async {
            let output = std::fs::read_to_string(log(&self.scratch))?;
            ensure!(output.contains("all servers have ended"), "{output}");
            Ok(())
        })
        .await?;
        ensure!(self.running.ended().is_none_or(|status| status.success()), "{}", self.running.log_tail());
        Ok(())
    }
}

fn log(scratch: &Scratch) -> PathBuf {
    scratch.path().join("output")
}

/// Returns what comes after a text in the output, up to the next space.
fn word_after<'a>(output: &'a str, text: &str) -> Option<&'a str> {
    output.split_once(text)?.1.split_whitespace().next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_approval_works_on_the_page_and_each_page_is_accessible() -> Result<()> {
    let demo = Demo::start(&[]).await?;
    demo.sign_in().await?;
    demo.approve().await?;
    demo.browser.until_text("prod runs 6.1.8 and is healthy").await?;
    let (opened, faults) = demo.follow_links().await?;
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    for page in ["/clusters", "/charts", "/images", "/trace", "/pipelines/apps/podinfo/objects"] {
        ensure!(opened.iter().any(|path| path == page), "no link leads to {page}: {opened:?}");
    }
    demo.end().await
}

/// A person does what the page says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_why_prod_does_not_move_and_what_to_do() -> Result<()> {
    let demo = Demo::start(&["--fault"]).await?;
    demo.sign_in().await?;
    demo.approve().await?;
    demo.browser.open(&demo.page).await?;
    demo.browser.until_text("has the marker").await?;
    demo.browser.click("a[href$=\"/podinfo\"]").await?;
    demo.browser.until_text("behind the value to set").await?;
    let text = demo.browser.text().await?;
    let marker =
        text.split_once(": add # ").and_then(|(_, rest)| rest.split_once(" behind the value to set"));
    let (marker, _) = marker.with_context(|| format!("the page names no marker: {text}"))?;

    let checkout = word_after(&demo.output, "repository  ").context("no repository")?;
    git(checkout, &["pull", "--quiet"])?;
    let file = Path::new(checkout).join("clusters/live/prod.yaml");
    let content = std::fs::read_to_string(&file)?;
    let line = content.lines().find(|line| line.contains(" version: 6")).context("no version")?;
    std::fs::write(&file, content.replace(line, &format!("{line} # {marker}")))?;
    git(checkout, &["commit", "--quiet", "--all", "--message", "mark the version of prod"])?;
    git(checkout, &["push", "--quiet"])?;
    demo.browser.until_text("Everything is up to date.").await?;
    demo.end().await
}

fn git(folder: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new("git").current_dir(folder).args(arguments).output().context("cannot run git")?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
