//! The output of a command. Data goes to stdout; progress and errors go to stderr, with the symbols of Flux's command
//! line, so that they stay visible when the data is piped.

use std::io::{self, Write};

use crate::exit::Failure;
use sluice_view::safe_text;

/// The kind of a progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// An action starts.
    Action,
    /// An action succeeded.
    Done,
    /// An action failed.
    Failed,
    /// The command, or an object, waits.
    Waiting,
}

impl Symbol {
    /// Returns the character that Flux prints.
    pub fn glyph(self) -> &'static str {
        match self {
            Symbol::Action => "►",
            Symbol::Done => "✔",
            Symbol::Failed => "✗",
            Symbol::Waiting => "◎",
        }
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of columns.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl Size {
    /// Returns the size of the terminal of stdout; `None` if stdout is none, or the terminal cannot move its cursor.
    pub fn of_stdout() -> Option<Size> {
        if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return None;
        }
        let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
        Some(Size { width: width.0.into(), height: height.0.into() })
    }
}

/// Returns the width of the terminal of stderr; `None` if stderr is no terminal.
pub fn width_of_stderr() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into())
}

/// How many characters of a text a line has at least, however narrow the terminal is.
const MIN_WIDTH: usize = 20;

/// The two outputs of a command.
pub struct Io<'a> {
    /// The output for data.
    pub out: &'a mut dyn Write,
    /// The output for progress and errors.
    pub err: &'a mut dyn Write,
    /// True if `out` shows colours.
    pub color: bool,
    /// The size of the terminal, if `out` is one whose cursor can move.
    pub terminal: Option<Size>,
    /// The width of the terminal, if `err` is a terminal.
    pub err_width: Option<usize>,
}

/// The programs whose commands are in messages. People copy them.
const PROGRAMS: [&str; 3] = ["sluice ", "kubectl ", "flux "];

impl Io<'_> {
    /// Returns the size of the terminal now, if `out` is one.
    pub fn current_size(&self) -> Option<Size> {
        self.terminal.map(|first| Size::of_stdout().unwrap_or(first))
    }

    /// Writes a progress line to stderr. Errors of the write are ignored.
    pub fn progress(&mut self, sign: Symbol, text: &str) {
        self.note(&format!("{} {text}", sign.glyph()));
    }

    /// Writes a line without a sign to stderr, as kubectl's `No resources found`; the text is made safe to print. If the
    /// terminal is narrower, the text is broken as by [`Io::line`], unless it has a command.
    pub fn note(&mut self, text: &str) {
        let text = safe_text::line(text);
        let width = self.err_width.filter(|_| !PROGRAMS.iter().any(|program| text.contains(program)));
        let (indent, words) = split_indent(&text);
        for line in broken((indent, &format!("{indent}  ")), words, width) {
            let _ = writeln!(self.err, "{line}");
        }
    }

    /// Writes a line to stdout; the text is made safe to print. If the terminal is narrower, the text is broken between words,
    /// and its further lines are indented by two more characters.
    ///
    /// # Errors
    /// When the reader has closed the pipe or the disk is full.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        let (indent, words) = split_indent(text.as_ref());
        self.paragraph(indent, &format!("{indent}  "), words)
    }

    /// Writes a text to stdout, as [`Io::line`]. The first line begins with `first`, and further ones with `rest`, which must
    /// be safe to print.
    ///
    /// # Errors
    /// When the reader has closed the pipe or the disk is full.
    pub fn paragraph(&mut self, first: &str, rest: &str, text: &str) -> io::Result<()> {
        let lines = broken((first, rest), &safe_text::line(text), self.terminal.map(|size| size.width));
        lines.iter().try_for_each(|line| writeln!(self.out, "{line}"))
    }

    /// Writes a line to stdout in one piece, such as a command that people copy; the text is made safe to print.
    ///
    /// # Errors
    /// When the reader has closed the pipe or the disk is full.
    pub fn copyable_line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", safe_text::line(text.as_ref()))
    }

    /// Writes the message and the hint of a failure to stderr, unless the message is empty.
    pub fn fail(&mut self, failure: &Failure) {
        if !failure.message.is_empty() {
            self.progress(Symbol::Failed, &failure.message);
        }
        if let Some(hint) = &failure.hint {
            self.note(&format!("  {hint}"));
        }
    }

    /// Flushes stdout.
    ///
    /// # Errors
    /// When the reader has closed the pipe or the disk is full.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the spaces at the beginning of a text, and the rest.
fn split_indent(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(' ').len())
}

/// Returns the lines of a text for a terminal of this width. The first begins with the first of `begins`, and further ones
/// with the second. Without a width there is one line.
fn broken(begins: (&str, &str), text: &str, width: Option<usize>) -> Vec<String> {
    let (first, rest) = begins;
    let length = |text: &str| text.chars().count();
    let width = match width {
        Some(width) if length(first) + length(text) > width => width.saturating_sub(length(rest)),
        _ => usize::MAX,
    };
    let begins = std::iter::once(first).chain(std::iter::repeat(rest));
    let lines = wrapped(text, width.max(MIN_WIDTH));
    lines.iter().zip(begins).map(|(line, begin)| format!("{begin}{line}")).collect()
}

/// Returns the lines of a text, broken between words. A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_becomes_one_safe_line() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io { out: &mut out, err: &mut err, color: true, terminal: None, err_width: None };
        io.progress(Symbol::Failed, "not found\n\u{2714} approved\u{1b}[1A\u{9b}2K");
        io.fail(&Failure::new(crate::exit::Exit::Error, "a\rb").hinted("c\u{202e}d"));
        io.line("e\nf\u{7}").unwrap();
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "✗ not found \u{2714} approved\\u{1b}[1A\\u{9b}2K\n✗ a b\n  c\\u{202e}d\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), "e f\\u{7}\n");
    }

    #[test]
    fn a_text_is_broken_between_words_in_a_narrow_terminal_only() {
        let shown = |terminal: Option<Size>| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut io = Io { out: &mut out, err: &mut err, color: false, terminal, err_width: None };
            io.line("  6.1.8 waits for an approval").unwrap();
            io.paragraph("├── ", "│   ", "podinfo (namespace podinfo)").unwrap();
            io.copyable_line("  ► sluice approve podinfo -n apps").unwrap();
            String::from_utf8(out).unwrap()
        };
        insta::assert_snapshot!(shown(Some(Size { width: 24, height: 9 })), @r"
          6.1.8 waits for an
            approval
        ├── podinfo (namespace
        │   podinfo)
          ► sluice approve podinfo -n apps
        ");
        let whole = "  6.1.8 waits for an approval\n├── podinfo (namespace podinfo)\n  ► sluice approve podinfo -n apps\n";
        assert_eq!(shown(None), whole);
        assert_eq!(shown(Some(Size { width: 80, height: 9 })), whole);
    }

    #[test]
    fn a_message_is_broken_between_words_in_a_narrow_terminal_unless_it_has_a_command() {
        let shown = |err_width: Option<usize>| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut io = Io { out: &mut out, err: &mut err, color: false, terminal: None, err_width };
            io.fail(
                &Failure::new(crate::exit::Exit::NotFound, "there is no pipeline nosuch in namespace apps")
                    .hinted("see what there is: sluice get pipelines -n apps"),
            );
            io.note("  nothing of this is on the hub");
            String::from_utf8(err).unwrap()
        };
        insta::assert_snapshot!(shown(Some(30)), @"
        ✗ there is no pipeline
          nosuch in namespace apps
          see what there is: sluice get pipelines -n apps
          nothing of this is on the
            hub
        ");
        let whole = "✗ there is no pipeline nosuch in namespace apps\n  see what there is: sluice get pipelines -n apps\n  nothing of this is on the hub\n";
        assert_eq!(shown(None), whole);
        assert_eq!(shown(Some(80)), whole);
    }

    /// A new command cannot print text past [`safe_text::line`] by mistake.
    #[test]
    fn only_this_file_writes_lines() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut read = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("terminal.rs") {
                    read += 1;
                    let text = std::fs::read_to_string(&path).unwrap();
                    for (n, line) in (1..).zip(text.lines()) {
                        let prints = ["writeln!(io.", "write!(io.", "println!(", "print!("];
                        let document = line.trim() == "writeln!(io.out, \"---\")?;";
                        assert!(
                            document || !prints.iter().any(|print| line.contains(print)),
                            "{}:{n}: write this line with Io::line, progress or note",
                            path.display()
                        );
                    }
                }
            }
        }
        assert!(read > 20, "{read}");
    }
}
