//! The commands of all pages but `docs/questions.md` that only read: each runs in the world of that page, and ends well.

use anyhow::{Context, Result, ensure};

use crate::docs::{DocumentedCommand, commands, pages};
use crate::questions::{Fixture, NAMESPACE};

/// The subcommands that change nothing and end. `export` needs keys that this world does not have: tests of the command
/// line run it.
const READING: [&str; 12] = [
    "get", "status", "explain", "tree", "trace", "charts", "images", "triggers", "clusters", "history",
    "events", "check",
];
/// What stands for a name on the pages, and the name here.
const NAMES: [(&str, &str); 9] = [
    // Jane may see one namespace.
    (" -A", " -n apps"),
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
    let is_live = command.text.split_whitespace().any(|word| ["-w", "--watch"].contains(&word));
    command.is_whole_line && READING.contains(&subcommand) && !is_live
}

/// Returns a command with the names of this world.
fn with_names_of_this_world(command: &str, promotion: &str) -> String {
    let mut command = command.to_owned();
    for (there, here) in NAMES {
        command = command.replace(there, here);
    }
    command = command.replace("PROMOTION", promotion);
    let has_namespace = command.split_whitespace().any(|word| ["-n", "-A", "--fleet"].contains(&word));
    if has_namespace { command } else { format!("{command} -n {NAMESPACE}") }
}

/// Runs the commands, as jane.
///
/// # Errors
/// One of them fails.
pub async fn run_reading_commands(fixture: &Fixture, promotion: &str) -> Result<()> {
    let mut run = 0;
    for path in pages()? {
        let page = std::fs::read_to_string(&path)?;
        if path.ends_with("questions.md") {
            continue;
        }
        for command in commands(&page).iter().filter(|command| reads(command)) {
            let command = with_names_of_this_world(&command.text, promotion);
            fixture.type_command(&command).with_context(|| path.display().to_string())?;
            run += 1;
        }
    }
    ensure!(run > 25, "only {run} commands were found");
    Ok(())
}
