//! Orders, credentials and repositories for the tests.

use std::collections::BTreeMap;

use sluice_core::Revision;
use sluice_delivery::{Credentials, Delivery, DeliveryOptions, DeliveryStrategy, Order};
use sluice_testkit::GitServer;
use tempfile::TempDir;

/// The file that carries the marker for prod.
pub const FILE: &str = "apps/prod/podinfo.yaml";

/// Its content at a version.
pub fn yaml(version: &str) -> String {
    format!("spec:\n  chart:\n    version: {version} # {{\"$promotion\": \"apps:podinfo:prod\"}}\n")
}

pub fn chart(version: &str) -> Revision {
    let facets = BTreeMap::from([("HelmRelease/podinfo:chart".to_string(), version.to_string())]);
    Revision::from_strings(&facets).unwrap()
}

pub fn git_user() -> Credentials {
    Credentials {
        username: Some(GitServer::USER.into()),
        password: Some(GitServer::PASSWORD.into()),
        token: Some("t0ken".into()),
        ..Credentials::default()
    }
}

/// An order to bring a version into prod; every version is a promotion of its own.
pub fn order(strategy: DeliveryStrategy, version: &str) -> Order {
    Order {
        promotion: format!("apps/podinfo-prod-{version}"),
        namespace: "apps".into(),
        pipeline: "podinfo".into(),
        environment: "prod".into(),
        target: None,
        revision: chart(version),
        replaces: "6.1.5".into(),
        evidence: vec!["staging ran it healthily".into()],
        created: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap(),
        round: 0,
        retried: false,
        fencing_token: Default::default(),
        rebuild: None,
        checks_settled: true,
        reads_checks: false,
        open_beside: Vec::new(),
        recorded: Vec::new(),
        recorded_open: Vec::new(),
        withdrawn: Vec::new(),
        strategy,
        values: Default::default(),
        credentials: git_user(),
    }
}

pub fn again(order: &Order) -> Order {
    Order { retried: true, ..order.clone() }
}

/// A delivered order that is started again.
pub fn started_again(order: &Order) -> Order {
    Order { round: order.round + 1, ..again(order) }
}

/// A delivery with a cache of its own.
pub struct Bench {
    pub delivery: Delivery,
    pub cache: TempDir,
}

pub fn bench() -> Bench {
    bench_with(|_| {})
}

pub fn bench_with(change: impl FnOnce(&mut DeliveryOptions)) -> Bench {
    let cache = tempfile::tempdir().unwrap();
    let mut options = DeliveryOptions { insecure_http: true, ..DeliveryOptions::new(cache.path()) };
    change(&mut options);
    Bench { delivery: Delivery::new(options).unwrap(), cache }
}

/// Runs git by hand and returns what it printed.
pub fn git(dir: &std::path::Path, args: &[&str], input: &str) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("git")
        .arg("--git-dir")
        .arg(dir)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {args:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}
