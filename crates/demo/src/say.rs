//! What the demo prints: short lines with the signs that Flux's users know, and commands as one
//! would type them. All of it goes to stdout: it is the demo's only result.

/// Something is being done.
pub fn action(text: &str) {
    println!("► {text}");
}

/// Something was done.
pub fn done(text: &str) {
    println!("✔ {text}");
}

/// Something is waited for.
pub fn waiting(text: &str) {
    println!("◎ {text}");
}

/// Something went wrong.
pub fn failed(text: &str) {
    println!("✗ {text}");
}

/// A line that belongs to the one above it.
pub fn more(text: &str) {
    println!("  {text}");
}

/// A command as one would type it.
pub fn command(typed: &str) {
    println!("\n$ {typed}");
}

/// What a command printed.
pub fn printed(text: &str) {
    println!("{}", text.trim_end());
}

/// An empty line: something new begins.
pub fn pause() {
    println!();
}
