//! `sluice completion`: prints the script with which a shell completes commands, flags and names of objects.

use std::io;

use clap::Args;
use clap_complete::env::Shells;

use crate::exit::Outcome;
use crate::name_completion::VARIABLE;
use crate::terminal::Io;

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

The script runs sluice for each completion: load it again after an upgrade.")]
pub struct Completion {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish", "powershell"])]
    shell: String,
}

pub(crate) fn run(args: &Completion, program: &clap::Command, io: &mut Io<'_>) -> Outcome {
    let name = program.get_name();
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(&args.shell) {
        let written = completer.write_registration(VARIABLE, name, name, name, &mut script);
        written.map_err(io::Error::other)?;
    }
    io.out.write_all(&script)?;
    Ok(())
}
