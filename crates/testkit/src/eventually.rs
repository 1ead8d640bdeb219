//! Waiting for a condition instead of sleeping: a test that sleeps is slow when it passes and
//! flaky when the machine is busy.

use anyhow::{Result, anyhow};
use std::future::Future;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Tries `attempt` again and again until it succeeds, and returns what it returned.
///
/// # Errors
/// The last error, when the deadline passes first; an attempt that hangs counts as such.
pub async fn eventually<T, F, Fut>(deadline: Duration, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = anyhow!("the attempt never came back");
    let mut tries = 0;
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(last.context(format!("not so within {deadline:?}, after {tries} tries")));
        }
        tries += 1;
        match tokio::time::timeout(left, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => continue,
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
