//! How many requests each caller may make, so that one caller does not occupy the API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use sluice_core::lock::lock;
use tokio::time::Instant;

use crate::problem::Problem;

/// Requests a second that a caller may make on average.
const RATE: f64 = 50.0;
/// Requests that a caller may make at once.
const BURST: f64 = 200.0;
/// How many callers are counted. Beyond, those that have not called for a while are forgotten.
const MAX_CALLERS: usize = 10_000;

/// The budgets of all callers.
#[derive(Clone, Default)]
pub(crate) struct CallerBudgets(Arc<Mutex<HashMap<String, Budget>>>);

#[derive(Clone, Copy)]
struct Budget {
    left: f64,
    updated: Instant,
}

impl Budget {
    fn at(self, now: Instant) -> Budget {
        let earned = now.duration_since(self.updated).as_secs_f64() * RATE;
        Budget { left: (self.left + earned).min(BURST), updated: now }
    }
}

impl CallerBudgets {
    /// Counts something that costs as much as some requests of a caller.
    ///
    /// # Errors
    /// When the caller has made too many.
    pub(crate) fn spend(&self, caller: &str, requests: usize) -> Result<(), Problem> {
        // Tests stop this clock.
        let now = Instant::now();
        let mut budgets = lock(&self.0);
        if budgets.len() >= MAX_CALLERS {
            budgets.retain(|_, budget| budget.at(now).left < BURST);
        }
        let full = Budget { left: BURST, updated: now };
        let budget = budgets.entry(caller.into()).or_insert(full);
        *budget = budget.at(now);
        if budget.left < requests as f64 {
            let detail = format!(
                "you made more than {RATE} requests a second, or asked for too many rows: wait a second, then ask less often"
            );
            let seconds = ((requests as f64 - budget.left) / RATE).ceil();
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).after(seconds as u32));
        }
        budget.left -= requests as f64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_too_often_waits_and_delays_no_other() {
        let budgets = CallerBudgets::default();
        let asked = (0..1000).filter(|_| budgets.spend("eve", 1).is_ok()).count();
        assert_eq!(asked, BURST as usize);
        assert!(budgets.spend("jane", 1).is_ok());
        assert_eq!(budgets.spend("eve", 1).unwrap_err().retry_after, Some(1));
        assert_eq!(budgets.spend("eve", 100).unwrap_err().retry_after, Some(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..1000).filter(|_| budgets.spend("eve", 1).is_ok()).count(), RATE as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_of_many_rows_costs_as_much_as_many_requests() {
        let budgets = CallerBudgets::default();
        let pages = (0..1000).filter(|_| budgets.spend("eve", 10).is_ok()).count();
        assert_eq!(pages, BURST as usize / 10);
    }
}
