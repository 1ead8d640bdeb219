//! What commands say without a cluster, without the kinds of Sluice, and without rights: the problem, what to do, and the
//! exit code.

use anyhow::{Result, ensure};

use crate::binary::Ran;
use crate::cases::{CASES, Case, FAULTY, Needs};
use crate::fixture::{NOBODY, Servers, servers};
use crate::run;

/// The exit code of a command that cannot use the cluster.
const CLUSTER: i32 = 4;
/// The name of no file.
const NONE: &str = "nosuch";

/// Runs each command that needs a cluster, with a kubeconfig of the fixture. The controller does not end if it cannot use its
/// cluster, but waits for it.
fn each(servers: &Servers, kubeconfig: &str, check: impl Fn(&Case, &Ran) -> Result<()>) -> Result<()> {
    let mut count = 0;
    let ends = |case: &&Case| case.command != "controller" || kubeconfig == NONE;
    for case in CASES.iter().filter(|case| case.needs != Needs::Nothing).filter(ends) {
        let ran = servers.call(case, case.arguments, "default", kubeconfig).run()?;
        ensure!(!ran.err.contains("panicked"), "{}: {ran:#?}", case.command);
        check(case, &ran)?;
        count += 1;
    }
    ensure!(count > 20, "only {count} commands were run");
    Ok(())
}

/// Makes sure that a command has failed with a message of this text and, on a line below it, what to do.
fn failed(case: &Case, ran: &Ran, says: &str) -> Result<()> {
    ensure!(ran.exit == CLUSTER && ran.out.is_empty(), "{}: {ran:#?}", case.command);
    let lines: Vec<&str> = ran.err.lines().collect();
    let message = lines.iter().position(|line| line.starts_with("✗ ") && line.contains(says));
    let hint = message.and_then(|at| lines.get(at + 1)).filter(|line| line.starts_with("  "));
    ensure!(hint.is_some(), "{}: {says}: {ran:#?}", case.command);
    Ok(())
}

#[test]
fn without_a_kubeconfig_each_command_says_how_to_name_one() -> Result<()> {
    run(async { each(servers().await?, NONE, |case, ran| failed(case, ran, "no kubeconfig: ")) })
}

#[test]
fn each_command_names_a_cluster_that_it_cannot_reach() -> Result<()> {
    let says = "cannot reach https://127.0.0.1:1/: ";
    run(async { each(servers().await?, "away", |case, ran| failed(case, ran, says)) })
}

#[test]
fn without_the_kinds_each_command_says_how_to_install_them() -> Result<()> {
    let install = "sluice crds | kubectl apply";
    let check = |case: &Case, ran: &Ran| match case {
        Case { command: "check", .. } => {
            ensure!(ran.exit == FAULTY && ran.out.contains(install), "{ran:#?}");
            Ok(())
        }
        Case { needs: Needs::Hub, .. } => {
            failed(case, ran, "Sluice's custom resource definitions are not installed")?;
            ensure!(ran.err.contains(install), "{}: {ran:#?}", case.command);
            Ok(())
        }
        Case { needs: Needs::Controller, .. } => {
            failed(case, ran, "no pod of the controller is in namespace")
        }
        // The new cluster is the hub here.
        _ => Ok(()),
    };
    run(async { each(servers().await?, "bare", check) })
}

#[test]
fn without_rights_each_command_says_which_one_is_missing() -> Result<()> {
    let check = |case: &Case, ran: &Ran| match case {
        Case { command: "check", .. } => {
            ensure!(ran.exit == FAULTY && ran.out.contains("you lack "), "{ran:#?}");
            Ok(())
        }
        Case { needs: Needs::Controller, .. } => failed(case, ran, "you lack list on pods"),
        _ => failed(case, ran, "not allowed: "),
    };
    run(async { each(servers().await?, NOBODY, check) })
}
