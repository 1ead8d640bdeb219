//! What the kernel says of a process.

use anyhow::{Context, Result};
use std::time::Duration;

/// The most memory that a process ever held, in bytes.
///
/// # Errors
/// When there is no such process.
pub fn peak_memory(pid: u32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

/// The memory that a process holds now, in bytes.
///
/// # Errors
/// When there is no such process.
pub fn held_memory(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: u64 =
        line.and_then(|l| l.trim().split(' ').next()).context("no memory figure")?.parse()?;
    Ok(kilobytes * 1024)
}

/// The processor time that a process has used.
///
/// # Errors
/// When there is no such process.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold spaces: what counts comes after its closing bracket.
    let (_, rest) = text.rsplit_once(") ").context("this is no process")?;
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    // Linux counts in hundredths of a second on every architecture that we run on.
    Ok(Duration::from_millis(ticks * 10))
}

/// Bytes as millions of them.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
