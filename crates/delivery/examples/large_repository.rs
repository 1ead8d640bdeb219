//! How long a promotion takes into a repository of 10,000 YAML files beside 200 MB of history:
//! `cargo run --release -p sluice-delivery --example large_repository`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be taken has nothing to say")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sluice_core::Revision;
use sluice_delivery::{Credentials, Delivery, DeliveryOptions, DeliveryStrategy, FencingToken, Order};
use sluice_testkit::{GitServer, Repo};

const FILES: usize = 10_000;
const COMMITS: usize = 100;
const MARKED: &str = "version: 6.1.5 # {\"$promotion\": \"apps:podinfo:prod\"}\n";

#[tokio::main]
async fn main() {
    let server = GitServer::start().expect("a git server");
    let repo = server.create_repo("fleet", &[("apps/prod/podinfo.yaml", MARKED)]).expect("a repository");
    fill(repo.folder());
    let cache = tempfile::tempdir().expect("a folder");
    let delivery = Delivery::new(DeliveryOptions::new(cache.path())).expect("a delivery");
    measure("first time", &delivery, &repo, 0).await;
    for i in 1..=8 {
        // Somebody else has committed in between, to a file of the many.
        let path = format!("apps/team{i:03}/app042/release.yaml");
        repo.commit("main", "other", &[(&path, &format!("a: {i}\n"))]).expect("a commit");
        measure("warm", &delivery, &repo, i).await;
    }
    drop(delivery);
    let delivery = Delivery::new(DeliveryOptions::new(cache.path())).expect("a delivery");
    measure("restarted", &delivery, &repo, 9).await;
    measure("warm", &delivery, &repo, 10).await;
    println!("{:?}; cache {} kB", delivery.stats(), size(cache.path()) / 1024);
}

async fn measure(name: &str, delivery: &Delivery, repo: &Repo, i: usize) {
    let start = Instant::now();
    let done = delivery.deliver(&order(repo, i)).await;
    println!("{name:<12} {:>5} ms  {done:?}", start.elapsed().as_millis());
}

fn order(repo: &Repo, i: usize) -> Order {
    let facets = BTreeMap::from([("HelmRelease/podinfo:chart".to_string(), format!("7.0.{i}"))]);
    Order {
        promotion: format!("apps/podinfo-prod-{i}"),
        namespace: "apps".into(),
        pipeline: "podinfo".into(),
        environment: "prod".into(),
        target: None,
        revision: Revision::from_strings(&facets).expect("a revision"),
        replaces: String::new(),
        evidence: Vec::new(),
        created: jiff::Timestamp::now(),
        round: 0,
        retried: false,
        rebuild: None,
        checks_settled: true,
        reads_checks: false,
        open_beside: Vec::new(),
        recorded: Vec::new(),
        recorded_open: Vec::new(),
        withdrawn: Vec::new(),
        fencing_token: FencingToken::default(),
        strategy: DeliveryStrategy::Commit { url: repo.url().into(), branch: "main".into() },
        values: Default::default(),
        credentials: Credentials {
            username: Some(GitServer::USER.into()),
            password: Some(GitServer::PASSWORD.into()),
            ..Credentials::default()
        },
    }
}

/// Gives a repository its size.
fn fill(folder: &Path) {
    let mut git = Command::new("git")
        .arg("--git-dir")
        .arg(folder)
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("git");
    let mut out = std::io::BufWriter::new(git.stdin.take().expect("its input"));
    let mut noise = Noise(7);
    for commit in 0..COMMITS {
        write!(out, "commit refs/heads/main\ncommitter t <t@t> {commit} +0000\ndata 1\nx\n")
            .expect("written");
        if commit == 0 {
            writeln!(out, "from refs/heads/main^0").expect("written");
            for i in 0..FILES {
                let path = format!("apps/team{:03}/app{:03}/release.yaml", i / 100, i % 100);
                let text =
                    format!("kind: HelmRelease\nmetadata:\n  name: app{i}\nspec:\n  a: {}\n", noise.hex(600));
                file(&mut out, &path, text.as_bytes());
            }
        }
        let blob: Vec<u8> = (0..2_000_000).map(|_| noise.next() as u8).collect();
        file(&mut out, "assets/blob.bin", &blob);
        file(&mut out, "large/crds.yaml", format!("# {commit}\n{}\n", "# x\n".repeat(40_000)).as_bytes());
    }
    drop(out);
    assert!(git.wait().expect("git").success());
}

fn file(out: &mut impl Write, path: &str, content: &[u8]) {
    write!(out, "M 100644 inline {path}\ndata {}\n", content.len()).expect("written");
    out.write_all(content).expect("written");
    out.write_all(b"\n").expect("written");
}

/// Bytes that do not compress.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 24
    }

    fn hex(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from_digit(self.next() as u32 & 15, 16).unwrap_or('0')).collect()
    }
}

fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("a folder").map(|e| e.expect("an entry"));
    entries
        .map(|e| if e.path().is_dir() { size(&e.path()) } else { e.metadata().map_or(0, |m| m.len()) })
        .sum()
}
