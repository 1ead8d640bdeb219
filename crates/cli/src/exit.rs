//! How a command ends: the exit codes of every command in one place, and the failure that carries
//! one of them together with the sentence for the person.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit codes of `sluice`. They are part of its interface: scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, also when there was nothing to show or to do.
    Ok = 0,
    /// 1: something went wrong that none of the other codes names.
    Error = 1,
    /// 2: the command line itself is wrong; clap ends the process with the same code.
    Usage = 2,
    /// 3: what was asked for by name does not exist.
    NotFound = 3,
    /// 4: the cluster cannot be used: no kubeconfig, not reachable, not logged in, not allowed.
    Cluster = 4,
    /// 5: the promotion exists, but is not where the command can do anything with it.
    Refused = 5,
    /// 6: `validate`: a Pipeline is not valid.
    Invalid = 6,
    /// 7: `validate`: the Pipelines are valid, and values in the checkout could not be set.
    Unset = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    /// The code the process ends with.
    pub exit: Exit,
    /// What happened, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What every command gives back.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Ends with `exit`, and says `message`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// Says, on a line of its own, what to do.
    pub fn hinted(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A reader that went away, as `head` does, has seen what it wanted: that is success, and silent.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
            _ => Failure::new(Exit::Error, format!("cannot write the output: {error}")),
        }
    }
}
