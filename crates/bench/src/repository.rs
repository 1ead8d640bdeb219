//! A promotion into a repository with many files and a long history of large ones.

use crate::controller::Controller;
use crate::delivery::Ground;
use crate::options::Options;
use crate::table::{Table, Verdict, percentile, say, time, times};
use anyhow::{Context, Result, bail};
use serde_json::json;
use sluice_testkit::{GitServer, Repo};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 10_000;
/// Commits, each with another megabyte that nothing can make smaller.
const LARGE_COMMITS: usize = 200;
const MEGABYTE: usize = 1_000_000;
/// Promotions that are measured, after the first one, which finds no cache.
const PROMOTIONS: usize = 5;
/// The file that is promoted.
const FILE: &str = "apps/podinfo/staging/release.yaml";

/// Promotes by commit, with a commit of somebody else's before each.
pub async fn measure(options: &Options, ground: &Ground, table: &mut Table) -> Result<()> {
    let server = GitServer::start()?;
    let repo = server.create_repo("fleet", &[(FILE, &marked())])?;
    let begun = Instant::now();
    fill(repo.folder())?;
    say(&format!("{FILES} files and {LARGE_COMMITS} MB of history made in {}", time(begun.elapsed())));
    let secret = json!({"username": GitServer::USER, "password": GitServer::PASSWORD});
    let strategy = json!({"commit": {"url": repo.url(), "branch": "main", "secretRef": {"name": "git"}}});
    let application = ground.application("podinfo", secret, strategy).await?;
    let mut controller = Controller::start(options, &ground.cluster)?;
    controller.settled(0).await?;
    application.observed().await?;
    let (mut recorded, mut healthy) = (Vec::new(), Vec::new());
    for n in 0..=PROMOTIONS {
        let version = format!("6.2.{n}");
        repo.commit("main", "something else", &[("docs/notes.md", &format!("note {n}\n"))])?;
        let before = head(&repo)?;
        let record = tokio::spawn(application.next_record().await?);
        application.runs("dev", &version).await?;
        let turned = Instant::now();
        let pushed = pushed_after(&repo, &before, &controller).await?;
        recorded.push(pushed.saturating_duration_since(record.await??));
        healthy.push(pushed.saturating_duration_since(turned));
        application.runs("staging", &version).await?;
        application.reaches(&version, "Succeeded", &controller).await?;
    }
    let requests = repo.requests();
    say(&format!("{} promotions made these requests of the server: {requests:?}", PROMOTIONS + 1));
    let good = percentile(&recorded[1..], 100) <= Duration::from_millis(500);
    let what = format!("promotion into {FILES} files and {LARGE_COMMITS} MB of history: recorded → pushed");
    table.add(&what, "≤ 0.5 s", times(&recorded[1..]), Verdict::of(good));
    table.add("  workload turns healthy → pushed", "", times(&healthy[1..]), Verdict::None);
    table.add("  recorded → pushed without a cache", "", times(&recorded[..1]), Verdict::None);
    Ok(())
}

fn marked() -> String {
    "spec:\n  chart:\n    spec:\n      version: 6.1.5 # {\"$promotion\": \"podinfo:podinfo:staging\"}\n"
        .to_owned()
}

/// The end of `main`, without running git for it.
fn head(repo: &Repo) -> Result<String> {
    std::fs::read_to_string(repo.folder().join("refs/heads/main")).context("no branch main")
}

async fn pushed_after(repo: &Repo, before: &str, controller: &Controller) -> Result<Instant> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
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
    let ended = git.wait()?;
    if !ended.success() {
        bail!("git fast-import failed: {ended}");
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
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    for n in 0..LARGE_COMMITS {
        commit(input, "a new picture")?;
        let bytes = noise.bytes(MEGABYTE);
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

/// A HelmRelease of 40 lines that nobody promotes.
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

/// Bytes without any order in them, the same each time.
struct Noise(u64);

impl Noise {
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
