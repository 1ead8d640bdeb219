//! The exit codes of all commands, and the failure of a command with its exit code, message and hint.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit codes of `sluice`. Scripts depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: success, also if there was nothing to show or to do.
    Ok = 0,
    /// 1: an error that has no other code.
    Error = 1,
    /// 2: a wrong command line. clap ends the process with the same code.
    Usage = 2,
    /// 3: the named object does not exist.
    NotFound = 3,
    /// 4: the cluster cannot be used: no kubeconfig, no connection, no login, or no permission.
    Cluster = 4,
    /// 5: the command does not apply to the promotion in its current phase.
    Refused = 5,
    /// 6: `validate` found a Pipeline that is not valid.
    Invalid = 6,
    /// 7: `validate` found only valid Pipelines, but values in the checkout cannot be set.
    Unset = 7,
    /// 8: `--wait`: the promotion has ended, and did not succeed; or Flux could not reconcile an object.
    Ended = 8,
    /// 9: `--wait`: the time is up.
    TimedOut = 9,
    /// 10: `--wait`: a person has to act before the promotion continues.
    NeedsPerson = 10,
    /// 11: `check` found an error.
    Faulty = 11,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    /// What failed, as one sentence.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// The result of a command, or of a part of it.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns a failure without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// Adds the hint, which is printed on its own line.
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

/// A closed pipe is a success without a message: a reader such as `head` ends when it has read enough.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
            _ => Failure::new(Exit::Error, format!("cannot write the output: {error}")),
        }
    }
}
