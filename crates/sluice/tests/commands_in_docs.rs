//! The binary accepts every `sluice` command in the docs: its name, arguments and flags. Those that need no cluster run.

#[path = "support/docs.rs"]
mod docs;

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use docs::{commands, pages};
use sluice_testkit::Scratch;

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

/// The subcommands that need no cluster, and end.
const OFFLINE: [&str; 4] = ["validate", "crds", "completion", "version"];

const PIPELINE: &str = r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {commit: {url: "https://git.example.com/fleet.git", branch: main}}}
  environments: [{name: dev, targets: [{namespace: dev}]}, {name: prod, targets: [{namespace: prod}]}]
"#;

#[test]
fn the_commands_of_the_docs_that_need_no_cluster_end_well() -> Result<()> {
    let folder = Scratch::new("commands-in-docs")?;
    std::fs::write(folder.path().join("pipeline.yaml"), PIPELINE)?;
    let marked = "version: 6.1.5 # {\"$promotion\": \"apps:podinfo:prod\"}\n";
    std::fs::write(folder.path().join("release.yaml"), marked)?;
    let mut run = BTreeSet::new();
    for path in pages()? {
        let page = std::fs::read_to_string(&path)?;
        for command in commands(&page).into_iter().filter(|command| command.is_whole_line) {
            let subcommand = command.text.split(' ').nth(1).unwrap_or_default();
            let Some(subcommand) = OFFLINE.into_iter().find(|offline| *offline == subcommand) else {
                continue;
            };
            let line = command.text.replacen("sluice", env!("CARGO_BIN_EXE_sluice"), 1);
            let output = Command::new("sh")
                .args(["-c", &line])
                .env("KUBECONFIG", "/dev/null")
                .current_dir(folder.path())
                .output()?;
            let is_well = output.status.success() && !output.stdout.is_empty();
            ensure!(is_well, "{}: `{}`: {output:?}", path.display(), command.text);
            run.insert(subcommand);
        }
    }
    ensure!(run.len() == OFFLINE.len(), "the pages have only {run:?}");
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
