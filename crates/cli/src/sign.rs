//! Where a command writes, and the signs that Flux's users know. Data goes to stdout, what is told
//! about the way there goes to stderr, so that output can be piped while progress stays visible.

use std::io::{self, Write};

use crate::exit::Failure;

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

    /// A line without a sign, as kubectl's `No resources found`.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
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
