//! Completion of `flux pipelines`. Flux runs its plugin as `flux-pipelines __complete ARGUMENT… TEXT`, and expects a line
//! for each candidate, with a description after a tab, and a last line with a directive (RFC-0013 of flux2).

use std::ffi::OsString;
use std::io::{self, Write};

use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;

/// The first argument of a completion.
pub(crate) const COMPLETE: &str = "__complete";

/// The directive that tells the shell not to offer files as well, in the numbers of Cobra.
const NO_FILES: u32 = 4;

/// Prints the candidates if the arguments of this process ask for them. Returns false if they do not.
pub(crate) fn complete_for_flux(mut cli: clap::Command) -> bool {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_none_or(|word| word != COMPLETE) {
        return false;
    }
    words.remove(1);
    let (last, folder) = (words.len() - 1, std::env::current_dir().ok());
    let candidates = complete(&mut cli, words, last, folder.as_deref()).unwrap_or_default();
    // A shell that does not read the candidates any more needs no error.
    let _ = write_candidates(&candidates, &mut io::stdout());
    true
}

fn write_candidates(candidates: &[CompletionCandidate], out: &mut impl Write) -> io::Result<()> {
    for candidate in candidates.iter().filter(|candidate| !candidate.is_hide_set()) {
        write!(out, "{}", candidate.get_value().to_string_lossy())?;
        if let Some(help) = candidate.get_help() {
            write!(out, "\t{}", help.to_string().lines().next().unwrap_or_default())?;
        }
        writeln!(out)?;
    }
    writeln!(out, ":{NO_FILES}")
}
