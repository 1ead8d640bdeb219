//! Runs the git program, without the configuration of whoever runs the tests.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A git command in `folder` that sees no configuration but the repository's own.
pub(crate) fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    for (key, value) in hermetic() {
        command.env(key, value);
    }
    command
}

/// The environment that keeps git to itself: no user or system configuration, no questions.
pub(crate) fn hermetic() -> [(&'static str, &'static str); 8] {
    [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_AUTHOR_NAME", "testkit"),
        ("GIT_AUTHOR_EMAIL", "testkit@example.com"),
        ("GIT_COMMITTER_NAME", "testkit"),
        ("GIT_COMMITTER_EMAIL", "testkit@example.com"),
        ("LC_ALL", "C"),
    ]
}

/// Runs git and returns what it wrote; `input` is its standard input.
pub(crate) fn run(folder: &Path, args: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut child = git(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run git: install it")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input)?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Like [`run`] without input, for what git prints as text; the last line's end is cut off.
pub(crate) fn read(folder: &Path, args: &[&str]) -> Result<String> {
    let output =
        String::from_utf8(run(folder, args, b"")?).context("git wrote something that is not text")?;
    Ok(output.trim_end_matches('\n').to_owned())
}
