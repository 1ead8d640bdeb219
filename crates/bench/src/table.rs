//! The result table, and the format of figures.

use std::time::Duration;

/// The results so far.
#[derive(Debug, Default)]
pub struct ResultTable {
    lines: Vec<[String; 4]>,
}

/// Whether a figure is within its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetVerdict {
    /// Within the budget.
    Held,
    /// Over the budget.
    Missed,
    /// Without a budget: the figure is for comparison.
    None,
}

impl BudgetVerdict {
    /// Returns `Held` or `Missed`.
    pub fn of(good: bool) -> BudgetVerdict {
        if good { BudgetVerdict::Held } else { BudgetVerdict::Missed }
    }
}

impl ResultTable {
    /// Adds a line, and prints it immediately on stderr.
    pub fn add(&mut self, what: &str, budget: &str, measured: String, verdict: BudgetVerdict) {
        let mark = match verdict {
            BudgetVerdict::Held => "✔ held",
            BudgetVerdict::Missed => "✗ missed",
            BudgetVerdict::None => "",
        };
        progress(&format!("{what}: {measured} {mark}"));
        self.lines.push([what.into(), budget.into(), measured, mark.into()]);
    }

    /// Prints all lines as a Markdown table.
    pub fn print(&self) {
        let head = ["what", "budget", "measured", "verdict"].map(String::from);
        let width = |column: usize| {
            let all = std::iter::once(&head).chain(&self.lines);
            all.map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2), width(3)];
        let line = |cells: &[String; 4]| {
            let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            println!("| {} |", padded.collect::<Vec<_>>().join(" | "));
        };
        line(&head);
        line(&widths.map(|width| "-".repeat(width)));
        self.lines.iter().for_each(line);
    }
}

/// Prints progress on stderr.
pub fn progress(text: &str) {
    eprintln!("► {text}");
}

/// Formats a duration with a suitable unit.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Formats several durations, in order.
pub fn times(durations: &[Duration]) -> String {
    durations.iter().map(|d| time(*d)).collect::<Vec<_>>().join(", ")
}

/// Returns a percentile of durations.
pub fn percentile(durations: &[Duration], percent: usize) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}
