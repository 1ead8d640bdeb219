//! The command line with a real API server: the output, and the objects in the cluster.

#![allow(clippy::expect_used, clippy::panic, reason = "tests say it by failing")]

mod acting_in_docs;
mod add;
mod approve;
mod calls;
mod check;
mod crds;
mod documents;
mod errors;
mod export;
mod get;
mod hostile;
mod hostile_api;
mod hub;
mod live;
mod reconcile;
mod retry;
mod rights;
mod suspend;
mod triggers;
mod unreadable;
mod validate;
mod views;
mod wait;
mod watch;

use std::collections::BTreeSet;

#[test]
fn every_test_file_is_a_module() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .filter(|name| name != "main")
        .collect();
    let main = include_str!("main.rs");
    for file in files {
        assert!(main.contains(&format!("mod {file};")), "main.rs does not name {file}.rs");
    }
}
