//! `sluice completion`: the script by which a shell completes commands, flags and the names of live objects.

use std::io;

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, EnvCompleter, Fish, Powershell, Zsh};

use crate::complete::VARIABLE;
use crate::exit::Outcome;
use crate::sign::Io;

/// Arguments of `sluice completion`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # In this shell, or for good in ~/.bashrc or ~/.zshrc
  source <(sluice completion bash)
  source <(sluice completion zsh)

  # Fish, in ~/.config/fish/config.fish
  sluice completion fish | source

  # PowerShell
  sluice completion powershell | Out-String | Invoke-Expression

The script runs sluice for each completion: load it anew after an upgrade.")]
pub struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: KnownShell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

impl KnownShell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            KnownShell::Bash => &Bash,
            KnownShell::Zsh => &Zsh,
            KnownShell::Fish => &Fish,
            KnownShell::Powershell => &Powershell,
        }
    }
}

pub(crate) fn run(args: &Completion, program: &clap::Command, io: &mut Io<'_>) -> Outcome {
    let name = program.get_name();
    let mut script = Vec::new();
    let written = args.shell.completer().write_registration(VARIABLE, name, name, name, &mut script);
    written.map_err(io::Error::other)?;
    io.out.write_all(&script)?;
    Ok(())
}
