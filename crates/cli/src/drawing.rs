//! A screen that is updated in place: only changed lines are written again. It stays in the terminal when the command
//! ends.

use std::fmt::Write;

use crate::terminal::Size;

/// What is on the screen now. The cursor is at the beginning of the line below it.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    lines: Vec<String>,
    size: Option<Size>,
}

impl Drawing {
    /// Returns the text that turns what is on the screen into these lines; empty if nothing changes. Lines that do not fit
    /// into the height of the terminal are left out, because the cursor cannot go back to a line that has scrolled away.
    pub(crate) fn update(&mut self, mut lines: Vec<String>, size: Size) -> String {
        let most = size.height.saturating_sub(1).max(1);
        if lines.len() > most {
            let hidden = lines.len() - (most - 1);
            lines.truncate(most - 1);
            lines.push(format!("… {hidden} more lines: the terminal is too small"));
        }
        // The terminal has wrapped the old lines in another way: they cannot be replaced.
        if self.size.is_some_and(|old| old != size) {
            self.lines.clear();
        }
        self.size = Some(size);
        let mut text = String::new();
        if lines == self.lines {
            return text;
        }
        let old = std::mem::replace(&mut self.lines, lines);
        if !old.is_empty() {
            let _ = write!(text, "\x1b[{}A", rows(&old, size));
        }
        let mut is_in_place = true;
        for (n, line) in self.lines.iter().enumerate() {
            let before = old.get(n);
            let is_one_row = |line: &str| rows_of(line, size) == 1;
            is_in_place &=
                before.is_none_or(|before| before == line || is_one_row(before) && is_one_row(line));
            match before {
                Some(before) if before == line && is_in_place => {
                    let _ = write!(text, "\x1b[{}B", rows_of(line, size));
                }
                None if is_in_place => {
                    let _ = writeln!(text, "{line}");
                }
                // Erase to the end of the screen if the lines below move.
                _ if !is_in_place => {
                    let _ = writeln!(text, "\x1b[J{line}");
                }
                _ => {
                    let _ = writeln!(text, "\x1b[2K{line}");
                }
            }
        }
        if old.len() > self.lines.len() {
            text.push_str("\x1b[J");
        }
        text
    }
}

/// Returns the number of rows of the terminal that the lines take.
fn rows(lines: &[String], size: Size) -> usize {
    lines.iter().map(|line| rows_of(line, size)).sum()
}

fn rows_of(line: &str, size: Size) -> usize {
    visible(line).div_ceil(size.width.max(1)).max(1)
}

/// Returns the number of characters without colours.
fn visible(line: &str) -> usize {
    let mut in_color = false;
    let is_visible = |c: &char| {
        let was_in_color = in_color;
        in_color = *c == '\x1b' || in_color && *c != 'm';
        !in_color && !was_in_color
    };
    line.chars().filter(is_visible).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { width: 20, height: 10 };

    /// A terminal that understands what [`Drawing`] writes. Counts the written characters.
    #[derive(Default)]
    struct Terminal {
        rows: Vec<String>,
        row: usize,
        written: usize,
    }

    impl Terminal {
        fn write(&mut self, text: &str) {
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                if let Some(sequence) = rest.strip_prefix("\x1b[") {
                    let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    let n = sequence[..end].parse().unwrap_or(1);
                    match &sequence[end..=end] {
                        "A" => self.row = self.row.checked_sub(n).unwrap(),
                        "B" => self.row += n,
                        "K" => self.row_mut().clear(),
                        "J" => self.rows.truncate(self.row),
                        other => panic!("{other}"),
                    }
                    rest = &sequence[end + 1..];
                    continue;
                }
                rest = &rest[c.len_utf8()..];
                if c == '\n' {
                    self.row_mut();
                    self.row += 1;
                } else {
                    self.written += 1;
                    if self.row_mut().chars().count() == SIZE.width {
                        self.row += 1;
                    }
                    self.row_mut().push(c);
                }
            }
        }

        fn row_mut(&mut self) -> &mut String {
            self.rows.resize(self.rows.len().max(self.row + 1), String::new());
            &mut self.rows[self.row]
        }
    }

    #[test]
    fn the_screen_shows_the_last_lines_and_only_changes_are_written() {
        let (mut drawing, mut terminal) = (Drawing::default(), Terminal::default());
        let long = "a command of more than twenty characters";
        for (lines, written) in [
            (vec!["apps/podinfo", "dev 6.1.8", "prod 6.1.5"], 31),
            (vec!["apps/podinfo", "dev 6.1.8", "prod 6.1.8"], 10),
            (vec!["apps/podinfo", "dev 6.1.8", "prod 6.1.8"], 0),
            (vec!["apps/podinfo", "dev 6.1.8", "prod 6.1.8", "", "why"], 3),
            (vec!["apps/podinfo", "dev 6.1.9", "prod 6.1.8"], 9),
            (vec!["apps/podinfo", long, "prod 6.1.8"], 50),
            (vec!["apps/podinfo", long, "prod 6.1.9"], 10),
            (vec!["apps/podinfo", "dev 6.1.8", "prod 6.1.9"], 19),
        ] {
            let before = terminal.written;
            let lines: Vec<String> = lines.into_iter().map(String::from).collect();
            terminal.write(&drawing.update(lines.clone(), SIZE));
            assert_eq!(terminal.rows[..terminal.row].concat(), lines.concat(), "{lines:?}");
            assert_eq!(terminal.rows[terminal.row..].concat(), "", "{lines:?}");
            assert_eq!(terminal.written - before, written, "{lines:?}");
        }
    }

    #[test]
    fn a_screen_is_not_higher_than_the_terminal() {
        let lines: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let text = Drawing::default().update(lines, SIZE);
        assert_eq!(text.lines().count(), 9);
        assert!(text.ends_with("… 12 more lines: the terminal is too small\n"), "{text}");
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(visible("\x1b[1;31mFailed\x1b[0m x"), 8);
    }
}
