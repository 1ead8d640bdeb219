//! Memory and processor time of a process, from /proc.

use anyhow::{Context, Result};
use std::time::Duration;

/// Returns the peak resident memory of a process, in bytes.
///
/// # Errors
/// The process does not exist.
pub fn peak_memory(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

/// Returns the resident memory of a process, in bytes.
///
/// # Errors
/// The process does not exist.
pub fn resident_memory(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: u64 = line.and_then(|l| l.trim().split(' ').next()).context("no memory field")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Returns the processor time of a process since its start.
///
/// # Errors
/// The process does not exist.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The fields follow the name, which is in brackets and may contain spaces.
    let (_, rest) = text.rsplit_once(") ").context("no fields of a process")?;
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    // USER_HZ is 100 on all supported architectures.
    Ok(Duration::from_millis(ticks * 10))
}

/// Formats bytes as megabytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
