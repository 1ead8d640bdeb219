//! Where a command writes, and the signs that Flux's users know. Data goes to stdout, what is told
//! about the way there goes to stderr, so that output can be piped while progress stays visible.

use std::io::{self, Write};

use crate::exit::Failure;
use crate::plain;

/// What a line of progress is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Something is being done.
    Action,
    /// Something was done.
    Done,
    /// Something went wrong.
    Failed,
    /// Something is waited for.
    Waiting,
}

impl Sign {
    /// As Flux prints it.
    pub fn glyph(self) -> &'static str {
        match self {
            Sign::Action => "►",
            Sign::Done => "✔",
            Sign::Failed => "✗",
            Sign::Waiting => "◎",
        }
    }
}

/// The two ends that a command writes to.
pub struct Io<'a> {
    /// Data.
    pub out: &'a mut dyn Write,
    /// Progress and errors.
    pub err: &'a mut dyn Write,
    /// Whether `out` shows colours.
    pub color: bool,
}

impl Io<'_> {
    /// Tells the person at the terminal something. That nobody listens is no error.
    pub fn tell(&mut self, sign: Sign, text: &str) {
        self.note(&format!("{} {text}", sign.glyph()));
    }

    /// Writes a line without a sign to stderr, as kubectl's `No resources found`; the text is made safe to print.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{}", plain::line(text));
    }

    /// Writes a line to stdout; the text is made safe to print.
    ///
    /// # Errors
    /// When the reader is gone or the disk is full.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", plain::line(text.as_ref()))
    }

    /// Tells how a command failed; says nothing when it did not.
    pub fn fail(&mut self, failure: &Failure) {
        if !failure.message.is_empty() {
            self.tell(Sign::Failed, &failure.message);
        }
        if let Some(hint) = &failure.hint {
            self.note(&format!("  {hint}"));
        }
    }

    /// Hands everything written so far to the reader.
    ///
    /// # Errors
    /// When the reader is gone or the disk is full.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_one_safe_line() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io { out: &mut out, err: &mut err, color: true };
        io.tell(Sign::Failed, "not found\n\u{2714} approved\u{1b}[1A\u{9b}2K");
        io.fail(&Failure::new(crate::exit::Exit::Error, "a\rb").hinted("c\u{202e}d"));
        io.line("e\nf\u{7}").unwrap();
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "✗ not found \u{2714} approved\\u{1b}[1A\\u{9b}2K\n✗ a b\n  c\\u{202e}d\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), "e f\\u{7}\n");
    }

    /// A new command cannot print text past [`plain::line`] by mistake.
    #[test]
    fn every_line_is_written_here() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut read = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("sign.rs") {
                    read += 1;
                    let text = std::fs::read_to_string(&path).unwrap();
                    for (n, line) in (1..).zip(text.lines()) {
                        let prints = ["writeln!(io.", "write!(io.", "println!(", "print!("];
                        let document = line.trim() == "writeln!(io.out, \"---\")?;";
                        assert!(
                            document || !prints.iter().any(|print| line.contains(print)),
                            "{}:{n}: write this line with Io::line, tell or note",
                            path.display()
                        );
                    }
                }
            }
        }
        assert!(read > 20, "{read}");
    }
}
