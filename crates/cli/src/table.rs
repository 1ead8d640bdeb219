//! Tables as kubectl prints them: left-aligned, three spaces between columns, no borders. A cell has only text that is
//! safe to print ([`safe_text::line`]).

use std::io::{self, Write};

use jiff::Timestamp;
use sluice_core::observed::Health;

use crate::age;
use crate::terminal::Io;
use sluice_view::safe_text;

/// The meaning of a cell's colour, on outputs with colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// Healthy or succeeded.
    Good,
    /// In progress.
    Busy,
    /// Waiting, suspended or unknown.
    Held,
    /// Failed: a person should look at it.
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "\x1b[32m",
            Tone::Busy => "\x1b[34m",
            Tone::Held => "\x1b[33m",
            Tone::Bad => "\x1b[1;31m",
        }
    }
}

impl From<Health> for Tone {
    fn from(health: Health) -> Tone {
        match health {
            Health::Ready => Tone::Good,
            Health::Progressing => Tone::Busy,
            Health::Suspended | Health::Pending => Tone::Held,
            Health::Failed | Health::Unknown => Tone::Bad,
        }
    }
}

/// One field of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
    ticks: bool,
}

/// One line of a table.
pub type Row = Vec<Cell>;

impl Cell {
    /// Returns a cell with this text on one line, its words one space apart, and safe to print: a message from
    /// a cluster neither breaks the table nor controls the terminal.
    pub fn new(text: impl AsRef<str>) -> Cell {
        let words = text.as_ref().split_whitespace().collect::<Vec<_>>().join(" ");
        Cell { text: safe_text::line(&words).into_owned(), ..Cell::default() }
    }

    /// Returns a cell with the time since `then`. A row in which only ages are different has not changed.
    pub fn age(then: Option<Timestamp>, now: Timestamp) -> Cell {
        let text = then.map(|then| age::since(then, now)).unwrap_or_default();
        Cell { text, ticks: true, ..Cell::default() }
    }

    /// Cuts the text to a number of characters.
    fn cut(&mut self, most: usize) {
        if self.text.chars().count() > most {
            self.text = self.text.chars().take(most.saturating_sub(1)).chain(['…']).collect();
        }
    }

    /// Returns the cell with this tone.
    pub fn tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }
}

/// Returns true if two rows are equal except for ages.
pub fn same(a: &Row, b: &Row) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a.ticks && b.ticks))
}

/// The columns whose texts are so long that a terminal may cut them before other columns are left out.
const MESSAGES: [&str; 4] = ["ERROR", "MESSAGE", "PROBLEM", "OUTLIERS"];

/// How much of a message is always shown, in characters, if other columns can be left out.
const MIN_MESSAGE: usize = 16;

/// The columns of a table with their widths. A watch prints more rows later.
pub struct Table {
    columns: Vec<&'static str>,
    widths: Vec<usize>,
    color: bool,
}

impl Table {
    /// Returns a table with these columns and no rows.
    pub fn new(columns: Vec<&'static str>, color: bool) -> Table {
        let widths = columns.iter().map(|c| c.len()).collect();
        Table { columns, widths, color }
    }

    /// Prints a table with these columns and rows, not wider than the terminal. A narrow terminal does not show the columns
    /// in `optional`, the first ones first. A pipe gets all of it.
    ///
    /// # Errors
    /// When the reader has closed the pipe.
    pub(crate) fn print(
        columns: Vec<&'static str>,
        rows: Vec<Row>,
        optional: &[&str],
        io: &mut Io<'_>,
    ) -> io::Result<()> {
        let mut table = Table::new(columns, io.color);
        let rows = table.fit_terminal(rows, optional, io);
        table.header(io.out)?;
        table.rows(&rows, io.out)
    }

    /// Makes the columns wide enough for these rows, and not wider than the terminal, if the output is one. Returns the
    /// rows without what was cut.
    pub(crate) fn fit_terminal(&mut self, rows: Vec<Row>, optional: &[&str], io: &Io<'_>) -> Vec<Row> {
        match io.terminal {
            Some(size) => self.fit_into(rows, size.width, optional),
            None => {
                self.fit(&rows);
                rows
            }
        }
    }

    /// Makes the columns wide enough for these rows.
    pub fn fit(&mut self, rows: &[Row]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
    }

    /// Makes the columns wide enough for these rows, and not wider than the terminal. Leaves out columns without a text,
    /// then optional ones, the first ones first, and then cuts the widest ones. Returns the rows without what was left out.
    pub(crate) fn fit_into(&mut self, mut rows: Vec<Row>, width: usize, optional: &[&str]) -> Vec<Row> {
        let mut optional = optional.iter();
        while self.excess(&rows, width, MIN_MESSAGE) > 0 {
            let is_empty = |at: &usize| rows.iter().all(|row| row[*at].text.is_empty());
            // The first column says what the row is about.
            let at = (1..self.columns.len()).rev().find(is_empty).or_else(|| {
                optional
                    .by_ref()
                    .find_map(|name| self.columns.iter().skip(1).position(|column| column == name))
                    .map(|at| at + 1)
            });
            let Some(at) = at else { break };
            self.columns.remove(at);
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
            // Rows that differ only in what is left out.
            rows.dedup();
        }
        for _ in 0..self.excess(&rows, width, usize::MAX) {
            let widest = self.widths.iter_mut().max_by_key(|width| **width);
            widest.into_iter().for_each(|width| *width = width.saturating_sub(1).max(1));
        }
        for row in &mut rows {
            row.iter_mut().zip(&self.widths).for_each(|(cell, width)| cell.cut(*width));
        }
        rows
    }

    /// Makes the columns wide enough for these rows. Returns by how much the table is wider than the terminal, if of a
    /// column of messages only so much counts.
    fn excess(&mut self, rows: &[Row], width: usize, of_messages: usize) -> usize {
        self.widths = self.columns.iter().map(|column| column.len()).collect();
        self.fit(rows);
        let counted = self.columns.iter().zip(&self.widths).map(|(column, width)| {
            if MESSAGES.contains(column) { (*width).min(of_messages) } else { *width }
        });
        (counted.sum::<usize>() + 3 * self.widths.len().saturating_sub(1)).saturating_sub(width)
    }

    /// Returns rows as lines, and with `headed` a first line with the names of the columns.
    ///
    /// # Errors
    /// When a cell is not text.
    pub(crate) fn lines(&self, rows: &[Row], headed: bool) -> io::Result<Vec<String>> {
        let mut out = Vec::new();
        if headed {
            self.header(&mut out)?;
        }
        self.rows(rows, &mut out)?;
        let text = String::from_utf8(out).map_err(io::Error::other)?;
        Ok(text.lines().map(String::from).collect())
    }

    /// Prints the names of the columns.
    ///
    /// # Errors
    /// When the reader has closed the pipe.
    pub fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut cells: Row = self.columns.iter().map(Cell::new).collect();
        cells.iter_mut().zip(&self.widths).for_each(|(cell, width)| cell.cut(*width));
        self.line(&cells, out)
    }

    /// Prints rows.
    ///
    /// # Errors
    /// When the reader has closed the pipe.
    pub fn rows(&self, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
        rows.iter().try_for_each(|row| self.line(row, out))
    }

    fn line(&self, row: &Row, out: &mut dyn Write) -> io::Result<()> {
        let last = row.iter().rposition(|c| !c.text.is_empty()).unwrap_or_default();
        for (n, (cell, width)) in row.iter().zip(&self.widths).enumerate().take(last + 1) {
            // An empty cell in the middle is printed as `-`, so that awk and cut count the columns correctly.
            let text = if cell.text.is_empty() { "-" } else { cell.text.as_str() };
            match (self.color, cell.tone.code()) {
                (false, _) | (true, "") => out.write_all(text.as_bytes())?,
                (true, code) => write!(out, "{code}{text}\x1b[0m")?,
            }
            if n < last {
                write!(out, "{:1$}", "", width + 3 - text.chars().count().min(*width))?;
            }
        }
        writeln!(out)
    }
}

/// Prints a line of a list: a mark in its colour, and a text that continues below itself if the terminal is narrow.
///
/// # Errors
/// When the reader has closed the pipe.
pub(crate) fn marked(mark: &str, tone: Tone, text: &str, io: &mut Io<'_>) -> io::Result<()> {
    let mark = match (io.color, tone.code()) {
        (false, _) | (true, "") => mark.to_owned(),
        (true, code) => format!("{code}{mark}\x1b[0m"),
    };
    io.paragraph(&format!("  {mark} "), "    ", text)
}

/// Returns a table as text, for comparisons in tests.
#[cfg(test)]
pub fn text(columns: Vec<&'static str>, rows: &[Row]) -> String {
    let mut table = Table::new(columns, false);
    table.fit(rows);
    let mut out = Vec::new();
    table.header(&mut out).unwrap();
    table.rows(rows, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Size;

    #[test]
    fn columns_are_aligned_and_lines_do_not_end_with_spaces() {
        let rows = [
            vec![Cell::new("a"), Cell::new(""), Cell::new("x y")],
            vec![Cell::new("längst"), Cell::new("b"), Cell::new("")],
        ];
        insta::assert_snapshot!(text(vec!["NAME", "B", "MESSAGE"], &rows), @"
        NAME     B   MESSAGE
        a        -   x y
        längst   b
        ");
        assert!(!text(vec!["NAME", "B", "MESSAGE"], &rows).contains(" \n"));
    }

    #[test]
    fn a_message_cannot_break_lines_or_control_the_terminal() {
        assert_eq!(Cell::new("one\n  two\r\x1b[31mred\x07").text, "one two \\u{1b}[31mred\\u{7}");
    }

    #[test]
    fn a_message_cannot_change_its_reading_order() {
        let turned =
            "well \u{202e}deliaf\u{202c} \u{2066}a\u{2069}\u{200f}b\u{200b}c\u{feff}d\u{e0041}e\u{2029}f";
        assert_eq!(
            Cell::new(turned).text,
            "well \\u{202e}deliaf\\u{202c} \\u{2066}a\\u{2069}\\u{200f}b\\u{200b}c\\u{feff}d\\u{e0041}e f"
        );
        // Letters of all scripts are kept, with their diacritics.
        assert_eq!(Cell::new("schön שלום ガ ✔").text, "schön שלום ガ ✔");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let rows = [vec![Cell::new("Failed").tone(Tone::Bad), Cell::new("x")]];
        let mut table = Table::new(vec!["HEALTH", "E"], true);
        table.fit(&rows);
        let mut out = Vec::new();
        table.rows(&rows, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[1;31mFailed\x1b[0m   x\n");
    }

    /// Prints a row to an output of this size.
    fn printed(terminal: Option<Size>) -> String {
        let message =
            "cluster fleet/prod refuses the connection: start its API server, or correct the address";
        let rows = vec![vec![Cell::new("fleet/prod"), Cell::new("0/1"), Cell::new(message)]];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io { out: &mut out, err: &mut err, color: false, terminal, err_width: None };
        Table::print(vec!["CLUSTER", "READY", "PROBLEM"], rows, &[], &mut io).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_fits_into_the_terminal_and_a_pipe_gets_all_of_it() {
        insta::assert_snapshot!(printed(Some(Size { width: 40, height: 20 })), @r"
        CLUSTER      READY   PROBLEM
        fleet/prod   0/1     cluster fleet/prod…
        ");
        assert!(printed(None).contains("correct the address\n"));
    }

    #[test]
    fn empty_and_optional_columns_go_before_a_text_is_cut() {
        let columns = vec!["NAME", "AGE", "LINK", "PLACE", "ERROR"];
        let fitted = |width: usize, error: &str| {
            let row: Row = ["podinfo", "5m", "", "apps/live", error].iter().map(Cell::new).collect();
            let mut table = Table::new(columns.clone(), false);
            let rows = table.fit_into(vec![row], width, &["AGE", "PLACE"]);
            table.lines(&rows, true).unwrap().join("\n")
        };
        assert_eq!(
            fitted(80, ""),
            "NAME      AGE   LINK   PLACE       ERROR\npodinfo   5m    -      apps/live"
        );
        assert_eq!(fitted(30, ""), "NAME      AGE   PLACE\npodinfo   5m    apps/live");
        let long = "cluster apps/live cannot be reached: connection refused";
        assert_eq!(
            fitted(48, long),
            "NAME      AGE   PLACE       ERROR\npodinfo   5m    apps/live   cluster apps/live c…"
        );
        assert_eq!(fitted(30, long), "NAME      ERROR\npodinfo   cluster apps/live c…");
    }

    #[test]
    fn a_different_age_is_no_change() {
        let row = |health, seconds| {
            vec![Cell::new(health), Cell::age(Some(Timestamp::UNIX_EPOCH), Timestamp::constant(seconds, 0))]
        };
        assert!(same(&row("Ready", 1), &row("Ready", 2)));
        assert!(!same(&row("Ready", 1), &row("Failed", 1)));
    }
}
