//! The screen of one pipeline, as lines that are safe to print and fit into the terminal.

use std::io;

use jiff::Timestamp;
use sluice_core::revision::shortened;
use sluice_view::explain::Explanation;
use sluice_view::pipeline_screen::{EnvironmentLine, PipelineScreen};

use crate::table::{Cell, Row, Table};
use crate::terminal::{Symbol, wrapped};
use sluice_view::safe_text;

/// The columns, in their order.
const COLUMNS: [&str; 8] =
    ["ENVIRONMENT", "RUNS", "HEALTH", "SINCE", "TARGETS", "AFTER", "INCOMING", "STATE"];
/// The columns that a narrow terminal does not show, the least important first.
const OPTIONAL: [&str; 4] = ["AFTER", "TARGETS", "SINCE", "HEALTH"];

/// How the screen is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// The time to which ages refer.
    pub now: Timestamp,
    /// True with colours.
    pub color: bool,
    /// The width of the terminal.
    pub width: Option<usize>,
}

impl Page {
    /// Returns the lines of the screen.
    ///
    /// # Errors
    /// When the table is not text.
    pub(super) fn lines(self, shown: &PipelineScreen) -> io::Result<Vec<String>> {
        let PipelineScreen {
            namespace,
            name,
            application: _,
            suspended,
            trouble,
            summarized,
            environments,
            cause,
        } = shown;
        let mut lines = Vec::new();
        let title = format!("{namespace}/{name}{}", if *suspended { " (suspended)" } else { "" });
        self.text(&title, "", &mut lines);
        for problem in trouble.iter().chain(summarized) {
            self.text(problem, "  ", &mut lines);
        }
        lines.push(String::new());
        lines.extend(self.table(environments)?);
        if let Some(cause) = cause {
            lines.push(String::new());
            self.cause(cause, &mut lines);
        }
        Ok(lines)
    }

    fn cause(self, cause: &Explanation, lines: &mut Vec<String>) {
        let runs = cause.runs.as_deref().map_or("several revisions, or none".into(), shortened);
        self.text(&cause.heading(&runs), "", lines);
        for sentence in &cause.sentences {
            self.text(sentence, "  ", lines);
        }
        // Commands are not wrapped, so that they can be copied.
        let command = |command: &String| {
            safe_text::line(&format!("  {} {command}", Symbol::Action.glyph())).into_owned()
        };
        lines.extend(cause.next.iter().map(command));
    }

    /// Adds a text, broken between words if it is longer than the terminal is wide.
    fn text(self, text: &str, indent: &str, lines: &mut Vec<String>) {
        let width = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()).max(20));
        lines
            .extend(wrapped(&safe_text::line(text), width).into_iter().map(|line| format!("{indent}{line}")));
    }

    fn table(self, environments: &[EnvironmentLine]) -> io::Result<Vec<String>> {
        let rows: Vec<Row> = environments.iter().map(|line| row(line, self.now)).collect();
        let mut table = Table::new(COLUMNS.to_vec(), self.color);
        let rows = match self.width {
            Some(width) => table.fit_into(rows, width, &OPTIONAL),
            None => {
                table.fit(&rows);
                rows
            }
        };
        table.lines(&rows, true)
    }
}

fn row(line: &EnvironmentLine, now: Timestamp) -> Row {
    let incoming = line.incoming.as_ref().map(|(revision, phase)| format!("{} {phase}", shortened(revision)));
    vec![
        Cell::new(&line.environment),
        Cell::new(line.runs.as_deref().map(shortened).unwrap_or_default()),
        Cell::new(line.health.to_string()).tone(line.health.into()),
        Cell::age(line.since.as_deref().copied(), now),
        Cell::new(format!("{}/{}", line.ready.0, line.ready.1)),
        Cell::new(line.after.join(",")),
        Cell::new(incoming.unwrap_or_default()),
        Cell::new(line.situation.words()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown() -> PipelineScreen {
        let environment = |name: &str, runs: &str, incoming: serde_json::Value, situation: &str| {
            json!({"environment": name, "after": ["staging"], "runs": runs, "health": "Ready",
                "since": "2026-11-21T11:50:00Z", "ready": [3, 3], "incoming": incoming, "situation": situation})
        };
        let runs = "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f";
        serde_json::from_value(json!({
            "namespace": "apps", "name": "podinfo", "suspended": false,
            "environments": [
                environment("staging", runs, json!(null), "UpToDate"),
                environment("production", "6.1.5", json!([runs, "Pending"]), "Blocked")],
            "cause": {"environment": "production", "runs": runs, "health": "Ready", "situation": "Blocked",
                "sentences": ["The delivery failed: the forge refused the token\u{1b}[2J of this repository; renew it in its Secret"],
                "next": ["sluice retry podinfo-production-5f1c9a3b7d -n apps"]},
        }))
        .unwrap()
    }

    fn page(width: Option<usize>) -> String {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        Page { now, color: false, width }.lines(&shown()).unwrap().join("\n")
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns() {
        insta::assert_snapshot!(page(None), @r#"
        apps/podinfo

        ENVIRONMENT   RUNS                 HEALTH   SINCE   TARGETS   AFTER     INCOMING                     STATE
        staging       main@sha1:1eabc9a4   Ready    10m     3/3       staging   -                            up to date
        production    6.1.5                Ready    10m     3/3       staging   main@sha1:1eabc9a4 Pending   needs a person

        production: main@sha1:1eabc9a4, Ready
          The delivery failed: the forge refused the token\u{1b}[2J of this repository; renew it in its Secret
          ► sluice retry podinfo-production-5f1c9a3b7d -n apps
        "#);
        insta::assert_snapshot!(page(Some(80)), @r#"
        apps/podinfo

        ENVIRONMENT   RUNS                 INCOMING                     STATE
        staging       main@sha1:1eabc9a4   -                            up to date
        production    6.1.5                main@sha1:1eabc9a4 Pending   needs a person

        production: main@sha1:1eabc9a4, Ready
          The delivery failed: the forge refused the token\u{1b}[2J of this repository;
          renew it in its Secret
          ► sluice retry podinfo-production-5f1c9a3b7d -n apps
        "#);
        insta::assert_snapshot!(page(Some(60)), @r#"
        apps/podinfo

        ENVIRONMENT   RUNS             INCOMING        STATE
        staging       main@sha1:1ea…   -               up to date
        production    6.1.5            main@sha1:1e…   needs a pers…

        production: main@sha1:1eabc9a4, Ready
          The delivery failed: the forge refused the token\u{1b}[2J
          of this repository; renew it in its Secret
          ► sluice retry podinfo-production-5f1c9a3b7d -n apps
        "#);
        for width in [20, 40, 60, 80] {
            let fits = |line: &str| line.chars().count() <= width || line.contains('►');
            assert!(width < 40 || page(Some(width)).lines().all(fits), "{width}\n{}", page(Some(width)));
        }
    }
}
