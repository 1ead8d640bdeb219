//! The commands of all pages but `docs/questions.md` that only read: each runs on the fleet of that page, and ends well.
//! Those with `-w`, which do not end, print what they watch.

use anyhow::{Context, Result, ensure};

use crate::docs::{DocumentedCommand, commands, pages};

/// The subcommands that change nothing and end. `export` needs keys that this fleet does not have: tests of the command
/// line run it, with the commands that act.
const READING: [&str; 12] = [
    "get", "status", "explain", "tree", "trace", "charts", "images", "triggers", "clusters", "history",
    "events", "check",
];
/// What stands for a name on the pages, and the name here.
const NAMES: [(&str, &str); 11] = [
    // Jane may see one namespace.
    (" -A", " -n apps"),
    ("podinfo-prod-6-1-8", "PROMOTION"),
    ("podinfo-prod-5f1c9a", "PROMOTION"),
    (" NAME", " podinfo"),
    (" NS", " apps"),
    (" ENVIRONMENT", " prod"),
    (" PIPELINE", " podinfo"),
    ("podinfo -n podinfo", "podinfo -n apps"),
    ("apps/prod-eu", "apps/prod"),
    ("images nginx --fleet --version 1.27.0", "images podinfo --fleet"),
    ("get promotion podinfo", "get promotion PROMOTION"),
];

fn reads(command: &DocumentedCommand) -> bool {
    let subcommand = command.text.split_whitespace().nth(1).unwrap_or_default();
    command.is_whole_line && READING.contains(&subcommand)
}

/// Returns a command in a form that ends: one with `-w` is ended after its first line, and fails if it prints none.
fn ended(command: String) -> String {
    if !command.split_whitespace().any(|word| ["-w", "--watch"].contains(&word)) {
        return command;
    }
    format!(
        "sh -c 'echo $$; exec {command}' | {{ read -r pid; read -r first; kill $pid; echo \"$first\"; test -n \"$first\"; }}"
    )
}

/// Returns a command with the names of this fleet.
fn with_names_of_this_fleet(command: &str, namespace: &str, promotion: &str) -> String {
    let mut command = command.to_owned();
    for (there, here) in NAMES {
        command = command.replace(there, here);
    }
    command = command.replace("PROMOTION", promotion);
    let has_namespace = command.split_whitespace().any(|word| ["-n", "-A", "--fleet"].contains(&word));
    if has_namespace { command } else { format!("{command} -n {namespace}") }
}

/// Runs the commands in a namespace that has this promotion. `type_command` runs one as jane.
///
/// # Errors
/// One of them fails.
pub fn run_reading_commands(
    namespace: &str,
    promotion: &str,
    type_command: impl Fn(&str) -> Result<String>,
) -> Result<()> {
    let mut run = 0;
    for path in pages()? {
        let page = std::fs::read_to_string(&path)?;
        if path.ends_with("questions.md") {
            continue;
        }
        for command in commands(&page).iter().filter(|command| reads(command)) {
            let command = with_names_of_this_fleet(&command.text, namespace, promotion);
            type_command(&ended(command)).with_context(|| path.display().to_string())?;
            run += 1;
        }
    }
    ensure!(run > 25, "only {run} commands were found");
    Ok(())
}
