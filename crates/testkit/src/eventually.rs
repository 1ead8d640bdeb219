//! Waits for a condition instead of sleeping: a test that sleeps is slow when it passes, and flaky on a busy machine.

use anyhow::{Result, anyhow};
use std::future::Future;
use std::time::{Duration, Instant};

/// The usual time limit of a test for one condition; long, because the machine may be busy.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Repeats `attempt` until it succeeds, and returns its value.
///
/// # Errors
/// The last error, if no attempt succeeds within `timeout`. An attempt that hangs fails with the timeout.
pub async fn eventually<T, F, Fut>(timeout: Duration, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = anyhow!("the attempt did not return");
    let mut tries = 0;
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(last.context(format!("not so within {timeout:?}, after {tries} tries")));
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
