//! A row for each command. The list of commands is that of the definitions: a command without a row fails a test.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::binary::Call;

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No cluster.
    Nothing,
    /// Objects of Sluice on the hub.
    Hub,
    /// A hub, also one without the kinds of Sluice.
    AnyHub,
    /// The controller's API.
    Controller,
}

/// What a command writes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prints {
    /// Text for people, which fits into a terminal.
    Text,
    /// A document for another program, such as YAML.
    Document,
    /// Nothing: it reports on stderr.
    Nothing,
    /// It runs until somebody ends it.
    Server,
}

/// One call of a command, and another one that fails.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The command, without `sluice`.
    pub command: &'static str,
    /// Its arguments. Names in capital letters are those of the fixture.
    pub arguments: &'static str,
    /// Its exit code.
    pub exit: i32,
    /// Parts of its output.
    pub shows: &'static [&'static str],
    pub needs: Needs,
    pub prints: Prints,
    /// Arguments that are wrong, the exit code, and a part of the error.
    pub wrong: (&'static str, i32, &'static str),
}

const fn reads(
    command: &'static str,
    arguments: &'static str,
    shows: &'static [&'static str],
    wrong: (&'static str, i32, &'static str),
) -> Case {
    Case { command, arguments, exit: 0, shows, needs: Needs::Hub, prints: Prints::Text, wrong }
}

const fn acts(
    command: &'static str,
    arguments: &'static str,
    shows: &'static [&'static str],
    wrong: (&'static str, i32, &'static str),
) -> Case {
    Case { prints: Prints::Nothing, ..reads(command, arguments, shows, wrong) }
}

const fn document(
    command: &'static str,
    arguments: &'static str,
    shows: &'static [&'static str],
    needs: Needs,
    wrong: (&'static str, i32, &'static str),
) -> Case {
    Case { prints: Prints::Document, needs, ..reads(command, arguments, shows, wrong) }
}

/// A script that completes the words of a command line in a shell.
const fn script(shell: &'static str, shows: &'static [&'static str]) -> Case {
    document("completion", shell, shows, Needs::Nothing, ("", 2, "<SHELL>"))
}

/// The exit code if a command does not apply to the phase of a promotion.
const REFUSED: i32 = 5;
/// The exit code of `validate` if values cannot be set in the checkout.
const UNSET: i32 = 7;
/// The exit code of `--wait` if a person has to act.
const NEEDS_PERSON: i32 = 10;
/// The exit code if the time of `--wait` is up. Nobody reconciles here.
const TIMED_OUT: i32 = 9;
/// The exit code of `check` with an error.
pub const FAULTY: i32 = 11;
const NO_PIPELINE: &str = "there is no pipeline nosuch in namespace NS";
const NO_ENVIRONMENT: &str = "has no environment nosuch";

/// The rows, in an order in which each one can follow the one before.
pub const CASES: [Case; 41] = [
    reads("get pipelines", "", &["podinfo", "dev:6.1.8"], ("nosuch", 3, NO_PIPELINE)),
    reads("get promotions", "", &["podinfo", "Pending"], ("--pipeline nosuch", 3, NO_PIPELINE)),
    reads("get targets", "podinfo", &["HelmRelease/podinfo", "6.1.8"], ("nosuch", 3, NO_PIPELINE)),
    reads(
        "get targets",
        "-o wide",
        &["ghcr.io/stefanprodan/podinfo:6.1.8"],
        ("-o xml", 2, "possible values"),
    ),
    reads("status", "podinfo", &["NS/podinfo", "needs a person"], ("nosuch", 3, NO_PIPELINE)),
    reads("explain", "podinfo -e eu", &["waits for approval"], ("podinfo -e nosuch", 3, NO_ENVIRONMENT)),
    reads("explain", "PROMOTION", &["podinfo 6.1.8 into eu", "was started"], ("nosuch", 3, NO_PIPELINE)),
    reads("tree", "podinfo", &["└── ", "HelmRelease/podinfo 6.1.8 Ready"], ("nosuch", 3, NO_PIPELINE)),
    reads("triggers", "podinfo", &["dev", "HelmRelease NS/podinfo"], ("nosuch", 3, NO_PIPELINE)),
    Case {
        needs: Needs::Controller,
        ..reads("trace", "helmrelease/podinfo", &["HelmRelease/podinfo"], ("podinfo", 2, "write KIND/NAME"))
    },
    reads("charts", "", &["podinfo", "6.1.8"], ("-e nosuch", 3, "has an environment nosuch")),
    Case {
        needs: Needs::Controller,
        ..reads("charts", "--fleet", &["podinfo", "6.1.8"], ("--on hub", 2, "--fleet"))
    },
    reads("images", "", &["podinfo", "6.1.8"], ("-e nosuch", 3, "has an environment nosuch")),
    Case {
        needs: Needs::Controller,
        ..reads("images", "--fleet", &["podinfo", "6.1.8"], ("--on hub", 2, "--fleet"))
    },
    Case {
        needs: Needs::Controller,
        ..reads("clusters", "--fleet", &["NS/asia-south-1", "missing"], ("--fleet=x", 2, "unexpected value"))
    },
    reads("clusters", "", &["NS/europe-west-1"], ("--fleet -A", 2, "cannot be used with")),
    reads("history", "podinfo", &["eu", "Pending"], ("podinfo --limit 0", 2, "--limit")),
    reads("events", "podinfo", &["promotion/podinfo-"], ("podinfo -A", 2, "cannot be used with")),
    acts("approve", "podinfo -e eu", &["approved podinfo 6.1.8 into eu"], ("nosuch", 3, "nosuch")),
    acts("reject", "podinfo -e us --reason no", &["rejected"], ("podinfo -e us", 2, "--reason")),
    Case {
        exit: NEEDS_PERSON,
        ..acts(
            "retry",
            "podinfo -e us --wait",
            &["requested another try of podinfo 6.1.8 into us", "a person has to act"],
            ("nosuch", 3, "nosuch"),
        )
    },
    Case {
        exit: REFUSED,
        ..acts(
            "retry",
            "podinfo -e us",
            &["podinfo 6.1.8 into us was not tried yet"],
            ("PROMOTION", REFUSED, "was not tried yet: it is Pending"),
        )
    },
    acts("suspend", "podinfo", &["suspended"], ("nosuch", 3, NO_PIPELINE)),
    acts("resume", "podinfo", &["resumed"], ("nosuch", 3, NO_PIPELINE)),
    acts("reconcile", "podinfo -e dev", &["podinfo"], ("podinfo -e nosuch", 3, NO_ENVIRONMENT)),
    Case {
        exit: TIMED_OUT,
        ..acts(
            "reconcile",
            "podinfo -e dev --wait --timeout 1s",
            &["podinfo"],
            ("podinfo --timeout 1s", 2, "--wait"),
        )
    },
    Case {
        exit: FAULTY,
        ..reads(
            "check",
            "",
            &["GitopsCluster NS/europe-west-1 does not exist"],
            ("--repository x", 2, "--checkout"),
        )
    },
    Case {
        needs: Needs::AnyHub,
        ..reads("add cluster", "eu --cluster-kubeconfig OTHER", &["GitopsCluster NS/eu"], ("", 2, "<NAME>"))
    },
    Case {
        needs: Needs::Nothing,
        ..reads("validate", "-f FILE", &["podinfo"], ("-f WRONG", 6, "environments"))
    },
    Case {
        exit: UNSET,
        needs: Needs::Nothing,
        ..reads(
            "validate",
            "-f FILE --checkout CHECKOUT",
            &["values that cannot be set"],
            ("-f FILE --checkout nosuch", 3, "cannot read nosuch"),
        )
    },
    document(
        "export alert",
        "podinfo --address https://hooks.example.com",
        &["kind: Provider"],
        Needs::Hub,
        ("podinfo", 2, "--address"),
    ),
    document("export receiver", "podinfo", &["kind: Receiver"], Needs::Hub, ("nosuch", 3, NO_PIPELINE)),
    document(
        "crds",
        "",
        &["kind: CustomResourceDefinition"],
        Needs::Nothing,
        ("x", 2, "unexpected argument"),
    ),
    document(
        "completion",
        "bash",
        &["_clap_complete_sluice"],
        Needs::Nothing,
        ("tcsh", 2, "possible values"),
    ),
    script("zsh", &["compdef _clap_dynamic_completer_sluice sluice"]),
    script("fish", &["--command sluice", "SLUICE_COMPLETE=fish sluice"]),
    script("powershell", &["-CommandName sluice", "$env:SLUICE_COMPLETE = \"powershell\"", "& sluice --"]),
    document("version", "", &["."], Needs::Nothing, ("x", 2, "unexpected argument")),
    document(
        "get pipelines",
        "podinfo -o yaml",
        &["kind: Pipeline"],
        Needs::Hub,
        ("-o xml", 2, "possible values"),
    ),
    Case { prints: Prints::Server, ..reads("web", "--no-browser", &[], ("x", 2, "unexpected argument")) },
    Case {
        prints: Prints::Server,
        ..reads("controller", "--leader-elect=false", &[], ("x", 2, "unexpected argument"))
    },
];

/// Returns the commands of the definitions, without those that only group others.
pub fn commands() -> Result<Vec<String>> {
    let reference = Call::new("command-reference", Path::new("/")).run()?;
    ensure!(reference.exit == 0, "{reference:?}");
    let names = reference.out.lines().filter_map(|line| line.strip_prefix("## sluice "));
    let all: Vec<String> = names.map(String::from).collect();
    let is_group = |name: &String| all.iter().any(|other| other.starts_with(&format!("{name} ")));
    Ok(all.iter().filter(|name| !is_group(name)).cloned().collect())
}

#[test]
fn every_command_has_a_row() -> Result<()> {
    let commands: BTreeSet<String> = commands()?.into_iter().collect();
    let rows: BTreeSet<String> = CASES.iter().map(|case| case.command.to_owned()).collect();
    ensure!(commands.len() > 25, "only {commands:?}");
    let without: Vec<_> = commands.difference(&rows).collect();
    ensure!(without.is_empty(), "add rows to tests/commands/cases.rs for {without:?}");
    let unknown: Vec<_> = rows.difference(&commands).collect();
    ensure!(unknown.is_empty(), "there are no commands {unknown:?}");
    Ok(())
}
