//! Runs the git program, without the configuration of whoever runs the tests.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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
    let child = git(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run git: install it")?;
    let output = converse(child, input)?;
    if !output.status.success() {
        bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Feeds a process and reads what it writes, at the same time: it may stop reading until somebody does.
fn converse(mut child: Child, input: &[u8]) -> std::io::Result<Output> {
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        let fed = scope.spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(input)));
        let output = child.wait_with_output()?;
        // One that failed says why itself, and may have hung up on us.
        match fed.join() {
            Ok(Err(error)) if output.status.success() => Err(error),
            _ => Ok(output),
        }
    })
}

/// Like [`run`] without input, for what git prints as text; the last line's end is cut off.
pub(crate) fn read(folder: &Path, args: &[&str]) -> Result<String> {
    let output =
        String::from_utf8(run(folder, args, b"")?).context("git wrote something that is not text")?;
    Ok(output.trim_end_matches('\n').to_owned())
}
