//! The binary accepts every `sluice` command in the docs: its name, arguments and flags.

#[path = "support/docs.rs"]
mod docs;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use docs::{commands, pages};

/// Runs a command with `--help`, which reads its arguments and does nothing.
fn check(command: &str) -> Result<()> {
    let line = command.replacen("sluice", env!("CARGO_BIN_EXE_sluice"), 1).replace("-n NS", "-n apps");
    let output = Command::new("sh").args(["-c", &format!("{line} --help")]).output()?;
    ensure!(output.status.success(), "`{command}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn the_binary_accepts_every_command_of_the_docs() -> Result<()> {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for path in pages()? {
        let page = std::fs::read_to_string(&path)?;
        for command in commands(&page) {
            checked += 1;
            wrong.extend(check(&command.text).err().map(|error| format!("{}: {error:#}", path.display())));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(checked > 100, "only {checked} commands were found");
    Ok(())
}

#[test]
fn a_command_that_does_not_exist_is_found() -> Result<()> {
    let page = "Run `sluice get pipelines -A` or `kubectl get`:\n```\n$ sluice approve podinfo \\\n  --for jane | cat\nprints\n```\n";
    let found = commands(page);
    let found: Vec<_> = found.iter().map(|command| (&*command.text, command.is_whole_line)).collect();
    let expected = [("sluice get pipelines -A", false), ("sluice approve podinfo    --for jane", true)];
    ensure!(found == expected, "{found:?}");
    check(found[0].0)?;
    let error = check(found[1].0).err().context("--for was accepted")?;
    ensure!(error.to_string().contains("--for"), "{error}");
    Ok(())
}
