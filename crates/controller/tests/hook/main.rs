//! Tests of the hook server: of its pure functions, of a server with a simulated API server, and of a controller
//! with a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod approvals;
mod bodies;
mod callbacks;
mod conditions;
mod connections;
mod events;
mod keys;
mod limits;
mod memory;
mod promotion_endpoint;
mod push;
mod random_calls;
mod reports;
mod rights;
mod server;
mod serving;
mod signatures;
mod triggers;
mod unreadable;

use std::path::PathBuf;

/// Returns the bodies of Flux in a folder, as file name, body and signature: `captured` has bodies of Flux's
/// controllers, and `composed` has bodies in the form of other versions.
fn bodies(folder: &str) -> Vec<(String, Vec<u8>, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/events").join(folder);
    let table = std::fs::read_to_string(folder.join("signatures.tsv")).unwrap();
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let read = |line: &str| {
        let mut columns = line.split('\t');
        let (file, signature) = (columns.next().unwrap(), columns.next().unwrap());
        (file.to_string(), std::fs::read(folder.join(file)).unwrap(), signature.to_string())
    };
    lines.map(read).collect()
}

/// Returns the bodies of both folders.
fn all_bodies() -> Vec<(String, Vec<u8>, String)> {
    let mut all = bodies("captured");
    all.extend(bodies("composed"));
    assert!(all.len() >= 40, "{} bodies", all.len());
    all
}
