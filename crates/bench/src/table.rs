//! The table at the end, and figures as people read them.

use std::time::Duration;

/// What was measured so far.
#[derive(Debug, Default)]
pub struct Table {
    lines: Vec<[String; 4]>,
}

/// Whether a budget was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Held,
    /// It was not.
    Missed,
    /// There is no budget: the figure is for comparison.
    None,
}

impl Verdict {
    /// Held when `good`.
    pub fn of(good: bool) -> Verdict {
        if good { Verdict::Held } else { Verdict::Missed }
    }
}

impl Table {
    /// Adds a line, and shows it at once to whoever waits.
    pub fn add(&mut self, what: &str, budget: &str, measured: String, verdict: Verdict) {
        let sign = match verdict {
            Verdict::Held => "✔ held",
            Verdict::Missed => "✗ missed",
            Verdict::None => "",
        };
        say(&format!("{what}: {measured} {sign}"));
        self.lines.push([what.into(), budget.into(), measured, sign.into()]);
    }

    /// Prints everything as a table that Markdown understands.
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

/// Tells what goes on, apart from the table.
pub fn say(text: &str) {
    eprintln!("► {text}");
}

/// A duration with a sensible unit.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Several durations, in the order in which they were measured.
pub fn times(durations: &[Duration]) -> String {
    durations.iter().map(|d| time(*d)).collect::<Vec<_>>().join(", ")
}

/// The duration that so many percent of all do not exceed.
pub fn percentile(durations: &[Duration], percent: usize) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}
