//! With many clusters, a log line is useful only if it names the cluster, in a field by which operators search.

use anyhow::{Result, ensure};

use super::debug_output::without_tests;
use crate::{code, fail_if_any};

/// The folders whose log lines are about one cluster.
const OF_ONE_CLUSTER: [&str; 2] = ["crates/controller/src/watch/", "crates/controller/src/observe/"];

/// The fields that name a cluster: its name, or the cluster and kind of a watch.
const NAMES_CLUSTER: [&str; 2] = ["cluster", "source"];

/// Returns the log calls of a text: for each, its line and the names of its fields.
fn log_calls(text: &str) -> Vec<(usize, Vec<&str>)> {
    let calls = text.match_indices("tracing::").filter_map(|(at, path)| {
        let (level, arguments) = text[at + path.len()..].split_once("!(")?;
        let fields = arguments.split('"').next()?.split(',').map(|field| {
            let name = field.split('=').next().unwrap_or_default().trim();
            name.trim_start_matches(['%', '?'])
        });
        let line = text[..at].matches('\n').count() + 1;
        level.chars().all(|c| c.is_ascii_lowercase()).then(|| (line, fields.collect()))
    });
    calls.collect()
}

#[test]
fn log_lines_about_a_cluster_name_it() -> Result<()> {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (path, text) in code()?.iter().filter(|(path, _)| OF_ONE_CLUSTER.iter().any(|f| path.starts_with(f)))
    {
        for (line, fields) in log_calls(text) {
            count += 1;
            if !fields.iter().any(|field| NAMES_CLUSTER.contains(field)) {
                broken.push(format!("{path}:{line}: add the field cluster to the log line"));
            }
        }
        if text.contains("use tracing") {
            broken.push(format!("{path}: write tracing::warn!, which this test finds"));
        }
    }
    ensure!(count >= 9, "only {count} log lines were found: adapt this test to how they are written");
    fail_if_any(&broken)
}

/// The text of the line is its field `message`: another one of this name would replace it in JSON.
#[test]
fn no_field_of_a_log_line_has_the_name_of_its_text() -> Result<()> {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (path, text) in code()?.iter().filter(|(path, _)| path.contains("/src/")) {
        for (line, fields) in log_calls(without_tests(text)) {
            count += 1;
            if fields.contains(&"message") {
                broken.push(format!("{path}:{line}: name the field message otherwise, such as why"));
            }
        }
    }
    ensure!(count >= 50, "only {count} log lines were found: adapt this test to how they are written");
    fail_if_any(&broken)
}

#[test]
fn fields_of_log_lines_are_found_in_each_form() {
    let text = "tracing::warn!(%cluster, error = %why, \"cluster: {}\", a);\n\
        tracing::error!(\n    cluster = %self.key,\n    name,\n    \"source\"\n);\ntracing::Level::INFO;\n\
        tracing::info!(\"cluster\");";
    let found = log_calls(text);
    assert_eq!(found[..2], [(1, vec!["cluster", "error", ""]), (2, vec!["cluster", "name", ""])]);
    assert_eq!(found[2..], [(8, vec![""])]);
}
