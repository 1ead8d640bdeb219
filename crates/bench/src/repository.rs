//! A promotion into a repository with many files and large files in its history.

use crate::controller::ControllerProcess;
use crate::delivery_fixture::DeliveryCluster;
use crate::options::BenchOptions;
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time, times};
use anyhow::{Context, Result, bail};
use serde_json::json;
use sluice_testkit::{GitServer, Repo};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 10_000;
/// The number of commits with one incompressible megabyte each.
const LARGE_COMMITS: usize = 200;
const MEGABYTE: usize = 1_000_000;
/// The number of measured promotions, without the first one, which has no cache.
const PROMOTIONS: usize = 5;
/// The file with the promoted version.
const FILE: &str = "apps/podinfo/staging/release.yaml";

/// Promotes by commit, with another commit before each.
pub async fn measure(
    options: &BenchOptions,
    cluster: &DeliveryCluster,
    table: &mut ResultTable,
) -> Result<()> {
    let server = GitServer::start()?;
    let repo = server.create_repo("fleet", &[(FILE, &marked_file())])?;
    let started = Instant::now();
    fill(repo.folder())?;
    progress(&format!(
        "{FILES} files and {LARGE_COMMITS} MB of history created in {}",
        time(started.elapsed())
    ));
    let secret = json!({"username": GitServer::USER, "password": GitServer::PASSWORD});
    let strategy = json!({"commit": {"url": repo.url(), "branch": "main", "secretRef": {"name": "git"}}});
    let application = cluster.application("podinfo", secret, strategy).await?;
    let mut controller = ControllerProcess::start(options, &cluster.cluster)?;
    controller.settled(0).await?;
    application.until_observed().await?;
    let (mut recorded, mut healthy) = (Vec::new(), Vec::new());
    for n in 0..=PROMOTIONS {
        let version = format!("6.2.{n}");
        repo.commit("main", "something else", &[("docs/notes.md", &format!("note {n}\n"))])?;
        let before = head(&repo)?;
        let record = tokio::spawn(application.next_record().await?);
        application.set_healthy("dev", &version).await?;
        let became_healthy = Instant::now();
        let pushed = until_pushed(&repo, &before, &controller).await?;
        recorded.push(pushed.saturating_duration_since(record.await??));
        healthy.push(pushed.saturating_duration_since(became_healthy));
        application.set_healthy("staging", &version).await?;
        application.until_phase(&version, "Succeeded", &controller).await?;
    }
    let requests = repo.requests();
    progress(&format!("{} promotions made these requests of the server: {requests:?}", PROMOTIONS + 1));
    let within =
        |times: &[Duration], most| BudgetVerdict::of(percentile(times, 100) <= Duration::from_millis(most));
    let what = format!("promotion into {FILES} files and {LARGE_COMMITS} MB of history: recorded → pushed");
    table.add(&what, "≤ 0.3 s", times(&recorded[1..]), within(&recorded[1..], 300));
    table.add("  workload becomes healthy → pushed", "", times(&healthy[1..]), BudgetVerdict::None);
    table.add(
        "  recorded → pushed without a cache",
        "≤ 0.5 s",
        times(&recorded[..1]),
        within(&recorded[..1], 500),
    );
    Ok(())
}

fn marked_file() -> String {
    "spec:\n  chart:\n    spec:\n      version: 6.1.5 # {\"$promotion\": \"podinfo:podinfo:staging\"}\n"
        .to_owned()
}

/// Returns the newest commit of `main` without running git.
fn head(repo: &Repo) -> Result<String> {
    std::fs::read_to_string(repo.folder().join("refs/heads/main")).context("no branch main")
}

async fn until_pushed(repo: &Repo, before: &str, controller: &ControllerProcess) -> Result<Instant> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if head(repo)? != before {
            return Ok(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("nothing was pushed:\n{}", controller.log())
}

/// Fills a bare repository through `git fast-import`.
fn fill(folder: &Path) -> Result<()> {
    let mut command = Command::new("git");
    command.args(["-c", "core.compression=0", "-c", "pack.compression=0", "fast-import", "--quiet"]);
    command.current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let mut git = command.stdin(Stdio::piped()).spawn().context("cannot run git")?;
    let input = git.stdin.take().context("git has no input")?;
    feed(&mut BufWriter::new(input))?;
    let status = git.wait()?;
    if !status.success() {
        bail!("git fast-import failed: {status}");
    }
    Ok(())
}

fn feed(input: &mut impl Write) -> Result<()> {
    commit(input, "all applications")?;
    writeln!(input, "from refs/heads/main^0")?;
    for n in 0..FILES {
        let text = manifest(n);
        writeln!(input, "M 100644 inline apps/team-{:02}/app-{n:05}/release.yaml", n % 50)?;
        write!(input, "data {}\n{text}\n", text.len())?;
    }
    let mut random = RandomBytes(0x9E37_79B9_7F4A_7C15);
    for n in 0..LARGE_COMMITS {
        commit(input, "a new picture")?;
        let bytes = random.bytes(MEGABYTE);
        writeln!(input, "M 100644 inline pictures/{}.png", n % 10)?;
        writeln!(input, "data {}", bytes.len())?;
        input.write_all(&bytes)?;
        writeln!(input)?;
    }
    commit(input, "no pictures")?;
    writeln!(input, "D pictures")?;
    Ok(input.flush()?)
}

fn commit(input: &mut impl Write, message: &str) -> Result<()> {
    writeln!(input, "commit refs/heads/main\ncommitter bench <bench@example.com> 1735689600 +0000")?;
    Ok(writeln!(input, "data {}\n{message}", message.len())?)
}

/// A HelmRelease of 40 lines without a marker.
fn manifest(n: usize) -> String {
    let mut text = format!(
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: app-{n:05}\n\
         spec:\n  interval: 10m\n  chart:\n    spec:\n      chart: app\n      version: 1.{n}.0\n  values:\n"
    );
    for line in 0..30 {
        text.push_str(&format!("    key{line}: value {line} of application {n}\n"));
    }
    text
}

/// Pseudorandom bytes, the same in each run.
struct RandomBytes(u64);

impl RandomBytes {
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.extend(self.0.to_le_bytes());
        }
        bytes.truncate(n);
        bytes
    }
}
