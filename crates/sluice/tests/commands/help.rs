//! The help of every command, and what every command says about a flag that it does not have.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::binary::{Call, without_colors};
use crate::cases::commands;
use crate::outputs::too_wide;

/// The narrowest terminal in which the help is readable.
const WIDTH: u16 = 80;

fn call(arguments: &str) -> Call {
    Call::new(arguments, Path::new("/"))
}

#[test]
fn the_help_of_each_command_has_examples_fits_into_a_terminal_and_may_be_cut() -> Result<()> {
    for command in commands()? {
        let ran = call(&format!("{command} --help")).run()?;
        ensure!(ran.exit == 0 && ran.err.is_empty() && !ran.out.contains('\x1b'), "{command}: {ran:#?}");
        let (_, examples) = ran.out.split_once("\nExamples:\n").context(command.clone())?;
        ensure!(examples.contains(&format!("\n  sluice {command}")), "{command}: {examples}");
        let cut = call(&format!("{command} --help")).run_unread()?;
        ensure!(cut.exit == 0 && cut.err.is_empty(), "{command}: {cut:#?}");
        let shown = call(&format!("{command} --help")).run_in_terminal(WIDTH)?;
        let wide = too_wide(&without_colors(&shown.out), WIDTH);
        ensure!(shown.exit == 0 && wide.is_empty(), "{command}: {wide:#?}");
    }
    Ok(())
}

#[test]
fn each_command_refuses_a_flag_that_it_does_not_have() -> Result<()> {
    for command in commands()? {
        let ran = call(&format!("{command} --nosuch")).run()?;
        ensure!(ran.exit == 2 && ran.out.is_empty(), "{command}: {ran:#?}");
        ensure!(ran.err.contains("unexpected argument '--nosuch'"), "{command}: {ran:#?}");
    }
    Ok(())
}
