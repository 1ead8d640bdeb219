//! What is made of a call to the hook server, without a server: what events mean, which signatures
//! count, how many calls are taken, and what is answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod answers;
mod approvals;
mod bodies;
mod callbacks;
mod conditions;
mod events;
mod keys;
mod limits;
mod push;
mod reports;
mod router;
mod server;
mod serving;
mod signatures;
mod triggers;
mod unreadable;

use std::path::PathBuf;

/// The bodies that Flux posts: captured from its controllers, and composed for other versions; with
/// their signatures.
fn bodies(of: &str) -> Vec<(String, Vec<u8>, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/events").join(of);
    let table = std::fs::read_to_string(folder.join("signatures.tsv")).unwrap();
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let read = |line: &str| {
        let mut columns = line.split('\t');
        let (file, signature) = (columns.next().unwrap(), columns.next().unwrap());
        (file.to_string(), std::fs::read(folder.join(file)).unwrap(), signature.to_string())
    };
    lines.map(read).collect()
}

/// All of them.
fn all_bodies() -> Vec<(String, Vec<u8>, String)> {
    let mut all = bodies("captured");
    all.extend(bodies("composed"));
    assert!(all.len() >= 40, "{} bodies", all.len());
    all
}
