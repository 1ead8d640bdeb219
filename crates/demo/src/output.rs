//! The output of the demo on stdout: short lines with the signs of Flux's command line, and commands.

/// Prints that something begins.
pub fn action(text: &str) {
    println!("► {text}");
}

/// Prints that something is done.
pub fn done(text: &str) {
    println!("✔ {text}");
}

/// Prints that the demo waits for something.
pub fn waiting(text: &str) {
    println!("◎ {text}");
}

/// Prints an error.
pub fn failed(text: &str) {
    println!("✗ {text}");
}

/// Prints a line that continues the previous one.
pub fn more(text: &str) {
    println!("  {text}");
}

/// Prints a command as a person types it.
pub fn command(typed: &str) {
    println!("\n$ {typed}");
}

/// Prints the output of a command.
pub fn printed(text: &str) {
    println!("{}", text.trim_end());
}

/// Prints an empty line, before a new step.
pub fn pause() {
    println!();
}
