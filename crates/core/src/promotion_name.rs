//! The names of promotions, which follow from their purpose: a promotion cannot be recorded twice.

use sha2::{Digest, Sha256};

use crate::hex::hex;
use crate::pipeline::{Environment, Pipeline};
use crate::revision::Revision;

/// The most bytes that the name of a Kubernetes object may have.
const MAX_NAME_BYTES: usize = 253;

/// Returns the name of a promotion of a proven revision.
pub fn promotion_name(pipeline: &Pipeline, into: &Environment, revision: &Revision, run: u32) -> String {
    let facets: String = revision.facets().map(|(key, value)| format!("{key}\0{value}\0")).collect();
    name(pipeline, into, &[&pipeline.uid, &into.name, &run.to_string()], facets)
}

/// Returns the name of a promotion that is requested by a call of `/trigger`. The same key has the same name, whatever
/// revision it requests.
pub fn trigger_name(pipeline: &Pipeline, into: &Environment, key: &str) -> String {
    name(pipeline, into, &[&pipeline.uid, &into.name, "trigger", key], String::new())
}

fn name(pipeline: &Pipeline, into: &Environment, purpose: &[&str], mut facets: String) -> String {
    let mut place = into.name.clone();
    if let Some(target) = &into.only_target {
        facets.push_str(&format!("target\0{target}\0"));
        let shortened: String = target.chars().take(63).collect();
        place = format!("{place}-{}", shortened.trim_end_matches(['.', '-']));
    }
    let mut hash = Sha256::new();
    for part in purpose {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(facets.as_bytes());
    let digest = &hex(hash.finalize())[..10];
    let max_prefix_chars = MAX_NAME_BYTES.saturating_sub(place.len() + digest.len() + 2);
    let prefix: String = pipeline.name.chars().take(max_prefix_chars).collect();
    let prefix = prefix.trim_end_matches(['.', '-']);
    format!("{prefix}-{place}-{digest}")
}
