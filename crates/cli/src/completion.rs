//! `sluice completion`: the script that teaches a shell the commands and flags.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::sign::Io;

/// Arguments of `sluice completion`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # In this shell, or for good in ~/.bashrc or ~/.zshrc
  source <(sluice completion bash)
  source <(sluice completion zsh)

  # Fish
  sluice completion fish > ~/.config/fish/completions/sluice.fish

  # PowerShell
  sluice completion powershell | Out-String | Invoke-Expression")]
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

impl From<KnownShell> for Shell {
    fn from(shell: KnownShell) -> Shell {
        match shell {
            KnownShell::Bash => Shell::Bash,
            KnownShell::Zsh => Shell::Zsh,
            KnownShell::Fish => Shell::Fish,
            KnownShell::Powershell => Shell::PowerShell,
        }
    }
}

pub(crate) fn run(args: &Completion, mut program: clap::Command, io: &mut Io<'_>) -> Outcome {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(Shell::from(args.shell), &mut program, name, &mut script);
    io.out.write_all(&script)?;
    Ok(())
}
