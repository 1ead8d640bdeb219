//! What commands print: into a pipe, into a pipe that closes, and in a narrow terminal.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use sluice_testkit::eventually;

use crate::binary::{Call, Ran, without_colors};
use crate::cases::{CASES, Case, Prints};
use crate::fixture::{Place, SOON};
use crate::run;

/// The exit code of an error without a code of its own.
const ERROR: i32 = 1;
/// The exit code of a wrong command line.
const USAGE: i32 = 2;
/// The exit code of `--wait` if the promotion has ended without success.
const ENDED: i32 = 8;
/// The exit code of `validate` with a Pipeline that is not valid.
const INVALID: i32 = 6;
/// The width of a narrow terminal.
const NARROW: u16 = 40;

/// Returns the rows of commands that end on their own.
fn ending() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.prints != Prints::Server)
}

/// Runs a command until it has its exit code and its output. The controller follows changes a moment later.
async fn until_as_expected(
    place: &Place,
    case: &Case,
    run: impl Fn(&Call) -> Result<Ran>,
    is_complete: impl Fn(&Ran) -> bool,
) -> Result<Ran> {
    let call = place.call(case, case.arguments);
    eventually(SOON, || async {
        let ran = run(&call)?;
        ensure!(ran.exit == case.exit && is_complete(&ran), "{}: {ran:#?}", case.command);
        Ok(ran)
    })
    .await
}

fn has_all_parts(place: &Place, case: &Case, ran: &Ran) -> bool {
    let all = format!("{}{}", ran.out, ran.err);
    case.shows.iter().all(|part| all.contains(&place.named(part)))
}

#[test]
fn each_command_has_its_output_and_exit_code_in_a_pipe() -> Result<()> {
    run(async {
        let place = Place::new("outputs").await?;
        for case in ending() {
            let ran =
                until_as_expected(&place, case, Call::run, |ran| has_all_parts(&place, case, ran)).await?;
            ensure!(!ran.out.contains('\x1b') && !ran.err.contains('\x1b'), "{}: {ran:#?}", case.command);
            ensure!(ran.out.is_empty() == (case.prints == Prints::Nothing), "{}: {ran:#?}", case.command);
        }
        Ok(())
    })
}

#[test]
fn each_command_refuses_wrong_arguments_with_a_reason() -> Result<()> {
    run(async {
        let place = Place::new("wrong").await?;
        for case in &CASES {
            let (arguments, exit, says) = case.wrong;
            let ran = place.call(case, arguments).run()?;
            let said = format!("{}{}", ran.out, ran.err);
            ensure!(
                ran.exit == exit && said.contains(&place.named(says)),
                "{} {arguments}: {says}: {ran:#?}",
                case.command
            );
            // A report about what was wrong is data.
            ensure!(ran.out.is_empty() || exit == INVALID, "{}: {ran:#?}", case.command);
        }
        Ok(())
    })
}

#[test]
fn a_command_that_cannot_write_its_output_has_the_exit_code_of_other_errors() -> Result<()> {
    let full = Path::new("/dev/full");
    for arguments in ["version", "crds", "completion bash"] {
        let ran = Call::new(arguments, Path::new("/")).run_into(full)?;
        ensure!(
            ran.exit == ERROR && ran.err.contains("✗ cannot write the output: "),
            "{arguments}: {ran:#?}"
        );
    }
    Ok(())
}

#[test]
fn a_command_that_waits_says_that_the_promotion_has_ended() -> Result<()> {
    run(async {
        let place = Place::new("ended").await?;
        let call = |command: &str, arguments: &str| {
            let case = CASES.iter().find(|case| case.command == command).context("no row")?;
            anyhow::Ok(place.call(case, arguments))
        };
        let reject = call("reject", "podinfo -e eu --reason no")?;
        let ran = call("approve", "podinfo -e eu --wait")?.run_while(
            "waiting for podinfo 6.1.8 into eu",
            || {
                let rejected = reject.run()?;
                ensure!(rejected.exit == 0, "{rejected:#?}");
                Ok(())
            },
        )?;
        let ended = "✗ podinfo 6.1.8 into eu was rejected by ";
        let hint = place.named("  try it again: sluice retry PROMOTION -n NS");
        ensure!(ran.exit == ENDED && ran.err.contains(ended) && ran.err.contains(&hint), "{ran:#?}");
        Ok(())
    })
}

#[test]
fn each_command_ends_quietly_if_its_reader_has_closed_the_pipe() -> Result<()> {
    run(async {
        let place = Place::new("closed").await?;
        for case in ending() {
            // A command without output does not notice it.
            let exit = if case.prints == Prints::Nothing { case.exit } else { 0 };
            let call = place.call(case, case.arguments);
            let ran = eventually(SOON, || async {
                let ran = call.run_unread()?;
                ensure!(ran.exit == exit, "{}: {ran:#?}", case.command);
                Ok(ran)
            })
            .await?;
            for noise in ["panicked", "roken pipe", "os error", "cannot write"] {
                ensure!(!ran.err.contains(noise), "{}: {ran:#?}", case.command);
            }
        }
        Ok(())
    })
}

#[test]
fn a_live_view_ends_if_its_reader_has_closed_the_pipe() -> Result<()> {
    run(async {
        let place = Place::new("live").await?;
        for command in ["get pipelines", "get promotions", "get targets", "status"] {
            let case = CASES.iter().find(|case| case.command == command).context("no row")?;
            let name = if command == "get promotions" { "" } else { "podinfo" };
            let ran = place.call(case, &format!("{name} -w")).run_unread()?;
            ensure!(ran.exit == 0 && !ran.err.contains("roken pipe"), "{command} -w: {ran:#?}");
        }
        Ok(())
    })
}

/// Returns the lines that are wider than a terminal, except those that people copy, and words that are too long.
pub fn too_wide(text: &str, width: u16) -> Vec<String> {
    let is_too_wide = |line: &&str| {
        let text = line.trim_matches(|c: char| c.is_whitespace() || "│├└─".contains(c));
        line.chars().count() > width.into() && !text.starts_with('►') && text.contains(' ')
    };
    text.lines().filter(is_too_wide).map(String::from).collect()
}

#[test]
fn each_message_fits_into_a_narrow_terminal_unless_it_has_a_command() -> Result<()> {
    run(async {
        let place = Place::new("narrow-messages").await?;
        let mut broken = 0;
        // The others are messages of clap.
        for case in CASES.iter().filter(|case| case.wrong.1 != USAGE) {
            let ran = place.call(case, case.wrong.0).run_with_errors_in_terminal(NARROW)?;
            let mut wide = too_wide(&ran.out, NARROW);
            wide.retain(|line| !["sluice ", "kubectl "].iter().any(|program| line.contains(program)));
            ensure!(ran.exit == case.wrong.1 && wide.is_empty(), "{}: {wide:#?}\n{}", case.command, ran.out);
            broken += usize::from(ran.out.lines().filter(|line| !line.contains("sluice ")).count() > 1);
        }
        ensure!(broken > 5, "only {broken} messages were broken");
        Ok(())
    })
}

#[test]
fn each_command_fits_into_a_narrow_terminal_with_colours_unless_they_are_off() -> Result<()> {
    run(async {
        let place = Place::new("narrow").await?;
        let mut coloured = 0;
        for case in ending().filter(|case| case.prints == Prints::Text) {
            let shown = |call: &Call| call.run_in_terminal(NARROW);
            let ran = until_as_expected(&place, case, shown, |ran| !ran.out.is_empty()).await?;
            let wide = too_wide(&without_colors(&ran.out), NARROW);
            ensure!(wide.is_empty(), "{}: {wide:#?}\n{}", case.command, without_colors(&ran.out));
            coloured += usize::from(ran.out.contains("\x1b["));
            let plain = place.call(case, case.arguments).with("NO_COLOR", "1").run_in_terminal(NARROW)?;
            ensure!(!plain.out.contains('\x1b'), "{}: {plain:#?}", case.command);
        }
        ensure!(coloured > 5, "only {coloured} commands use colours in a terminal");
        Ok(())
    })
    .context("in a terminal of 40 columns")
}
