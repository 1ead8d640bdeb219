//! Programs that Sluice starts read what strangers wrote, so each has limits.

use anyhow::{Result, ensure};

use super::debug_output::{test_modules, without_tests};
use crate::{code, fail_if_any};

/// The one file that makes commands. It adds the limits.
const LIMITS: &str = "crates/delivery/src/git/limits.rs";
/// Crates that only tests and developers run.
const OF_TESTS: [&str; 3] = ["crates/testkit/", "crates/bench/", "crates/demo/"];

#[test]
fn each_program_is_started_with_limits() -> Result<()> {
    let code = code()?;
    let test_modules = test_modules(&code);
    let (mut broken, mut has_limits) = (Vec::new(), false);
    let is_product = |path: &str| path.contains("/src/") && !test_modules.contains(path);
    for (path, text) in code.iter().filter(|(path, _)| is_product(path)) {
        let starts = without_tests(text).contains("Command::new(");
        has_limits |= starts && path == LIMITS;
        if starts && path != LIMITS && !OF_TESTS.iter().any(|folder| path.starts_with(folder)) {
            broken.push(format!("{path}: start the program with ProcessLimits::command of {LIMITS}"));
        }
    }
    ensure!(has_limits, "{LIMITS} makes no command any more: adapt this test to what does");
    fail_if_any(&broken)
}
