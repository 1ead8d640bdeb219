//! The wall clock, read here and nowhere else on the way to a decision: tests set it. Where
//! `SLUICE_CLOCK_FILE` names a file, the clock is off by the seconds that stand in it.

use std::path::PathBuf;
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};

static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

/// The time.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("SLUICE_CLOCK_FILE").map(PathBuf::from)) else {
        return now;
    };
    let off = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    now.checked_add(SignedDuration::from_secs(off)).unwrap_or(now)
}

/// A time as Kubernetes writes it.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
