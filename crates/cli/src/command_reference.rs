//! The reference of all commands in Markdown, from their definitions: `docs/reference/commands.md`.

use std::fmt::Write;

use clap::{Arg, ArgAction, Args, Command};

use crate::exit::{Failure, Outcome};
use crate::terminal::Io;

/// Arguments of `sluice command-reference`, which is hidden: it writes a page of the documentation.
#[derive(Args, Clone, Debug)]
pub struct CommandReference {}

/// The beginning of the page.
const INTRODUCTION: &str = "<!-- Generated from the definitions of the commands: make reference -->\n\n# Reference of the commands\n\n\
After this page you know every command of `sluice` with its arguments. [Commands](../commands.md) says which one to use,\n\
and what the exit codes mean.\n";

/// The heading of the flags that most commands have.
const CLUSTER: &str = "Cluster";

pub(crate) fn run(mut cli: Command, io: &mut Io<'_>) -> Outcome {
    cli.build();
    let page = page(&cli).map_err(|error| Failure::new(crate::exit::Exit::Error, error.to_string()))?;
    Ok(io.out.write_all(page.as_bytes())?)
}

/// Returns the page.
fn page(cli: &Command) -> Result<String, std::fmt::Error> {
    let mut commands = Vec::new();
    collect(cli, &mut commands);
    let mut page = INTRODUCTION.to_owned();
    writeln!(page, "\n| command | what it does |\n| --- | --- |")?;
    for command in &commands {
        let name = name(command);
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), cell(&about))?;
    }
    let with_flags = commands.iter().find(|command| !cluster_flags(command).is_empty());
    if let Some(command) = with_flags {
        writeln!(page, "\n## Cluster flags\n\nCommands that use a cluster have these flags, too:\n")?;
        table(&mut page, "flag", &cluster_flags(command))?;
    }
    commands.iter().try_for_each(|command| section(&mut page, command))?;
    Ok(page)
}

/// Adds the commands that users see, in their order.
fn collect<'a>(command: &'a Command, into: &mut Vec<&'a Command>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        into.push(sub);
        collect(sub, into);
    }
}

/// Returns the name with those of the commands above it: `sluice get pipelines`.
fn name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

fn section(page: &mut String, command: &Command) -> std::fmt::Result {
    writeln!(page, "\n## {}\n", name(command))?;
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    writeln!(page, "{about}.\n")?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    writeln!(page, "```\n{}\n```", lines(usage))?;
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        writeln!(page, "\nAlso: {}.", aliases.join(", "))?;
    }
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let positional: Vec<&Arg> = shown().filter(|argument| argument.is_positional()).collect();
    if !positional.is_empty() {
        writeln!(page)?;
        table(page, "argument", &positional)?;
    }
    let cluster = cluster_flags(command);
    let is_own = |argument: &&Arg| {
        !argument.is_positional() && !is_help(argument) && argument.get_help_heading() != Some(CLUSTER)
    };
    let flags: Vec<&Arg> = shown().filter(is_own).collect();
    if !flags.is_empty() {
        writeln!(page)?;
        table(page, "flag", &flags)?;
    }
    if !cluster.is_empty() {
        writeln!(page, "\nAnd the [cluster flags](#cluster-flags).")?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    after_help(page, &after)
}

/// Writes the text after the help. Its examples become a block of code.
fn after_help(page: &mut String, text: &str) -> std::fmt::Result {
    let mut paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.is_empty()).peekable();
    while let Some(paragraph) = paragraphs.next() {
        let Some(first) = paragraph.strip_prefix("Examples:\n") else {
            writeln!(page, "\n{paragraph}")?;
            continue;
        };
        let mut code = vec![first];
        while let Some(next) = paragraphs.next_if(|next| next.starts_with("  ")) {
            code.push(next);
        }
        writeln!(page, "\n```\n{}\n```", lines(&code.join("\n\n")))?;
    }
    Ok(())
}

/// Returns a text without the indent of its lines.
fn lines(text: &str) -> String {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let least =
        text.lines().skip(1).filter(|line| !line.is_empty()).map(|line| indent(&line)).min().unwrap_or(0);
    let least = least.min(text.lines().next().map_or(0, |line| indent(&line)));
    let cut = |line: &str| line.get(least..).unwrap_or_default().trim_end().to_owned();
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

fn cluster_flags(command: &Command) -> Vec<&Arg> {
    let is_cluster = |argument: &&Arg| argument.get_help_heading() == Some(CLUSTER);
    command.get_arguments().filter(is_cluster).collect()
}

fn is_help(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

/// Writes arguments as a table.
fn table(page: &mut String, heading: &str, arguments: &[&Arg]) -> std::fmt::Result {
    writeln!(page, "| {heading} | meaning |\n| --- | --- |")?;
    for argument in arguments {
        let help =
            argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut meaning = cell(&help);
        let values = argument.get_possible_values();
        let values: Vec<&str> =
            values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
        if !values.is_empty() && !argument.is_hide_possible_values_set() && takes_value(argument) {
            let _ = write!(meaning, ": `{}`", values.join("`, `"));
        }
        let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
        let defaults: Vec<String> = defaults.filter(|value| !value.is_empty()).collect();
        if !defaults.is_empty() && !argument.is_hide_default_value_set() && takes_value(argument) {
            let _ = write!(meaning, " (default `{}`)", defaults.join(","));
        }
        if let Some(variable) = argument.get_env() {
            let _ = write!(meaning, " (environment variable `{}`)", variable.to_string_lossy());
        }
        writeln!(page, "| {} | {meaning} |", flag(argument))?;
    }
    Ok(())
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns how an argument is written: `-n`, `--namespace NAME`.
fn flag(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value: Vec<String> = names.iter().map(ToString::to_string).collect();
    let value = value.join(" ");
    if argument.is_positional() {
        return format!("`{value}`");
    }
    let value = match takes_value(argument) {
        true if argument.is_require_equals_set() => format!("={value}"),
        true => format!(" {value}"),
        false => String::new(),
    };
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let long = argument.get_long().map(|long| format!("`--{long}{value}`")).unwrap_or_default();
    format!("{short}{long}")
}

/// Returns a text as one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_section_with_its_arguments_and_examples() {
        let cluster =
            Arg::new("context").long("context").value_name("NAME").help("The context").help_heading(CLUSTER);
        let get = Command::new("get")
            .about("Show objects")
            .visible_alias("g")
            .after_help("Examples:\n  # One\n  sluice get a\n\n  # All | of them\n  sluice get -A\n\nIt needs rights.")
            .arg(Arg::new("name").value_name("NAME").help("The object"))
            .arg(Arg::new("all").short('A').long("all").action(ArgAction::SetTrue).help("All\nof them"))
            .arg(Arg::new("form").long("form").value_name("FORM").default_value("x").value_parser(["x", "y"]).help("a|b"))
            .arg(Arg::new("secret").long("secret").hide(true))
            .arg(cluster);
        let mut cli = Command::new("sluice").subcommand(get).subcommand(Command::new("hidden").hide(true));
        cli.build();
        insta::assert_snapshot!(page(&cli).unwrap().split_once("exit codes mean.\n").unwrap().1, @r#"
        | command | what it does |
        | --- | --- |
        | [`sluice get`](#sluice-get) | Show objects |

        ## Cluster flags

        Commands that use a cluster have these flags, too:

        | flag | meaning |
        | --- | --- |
        | `--context NAME` | The context |

        ## sluice get

        Show objects.

        ```
        sluice get [OPTIONS] [NAME]
        ```

        Also: `g`.

        | argument | meaning |
        | --- | --- |
        | `NAME` | The object |

        | flag | meaning |
        | --- | --- |
        | `-A`, `--all` | All of them |
        | `--form FORM` | a\|b: `x`, `y` (default `x`) |

        And the [cluster flags](#cluster-flags).

        ```
        # One
        sluice get a

        # All | of them
        sluice get -A
        ```

        It needs rights.
        "#);
    }
}
