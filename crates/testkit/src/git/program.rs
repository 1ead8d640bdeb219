//! Runs the git program without the configuration of the user who runs the tests.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Returns a git command in `folder` that reads no configuration except the repository's.
pub(crate) fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    for (key, value) in hermetic() {
        command.env(key, value);
    }
    command
}

/// Environment variables for git: no user or system configuration, no prompts, a fixed author.
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

/// Runs git with `input` as its standard input, and returns its output.
pub(crate) fn run(folder: &Path, args: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let child = git(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run git: install it")?;
    let output = exchange(child, input)?;
    if !output.status.success() {
        bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Writes the input of a process and reads its output at the same time: a full output pipe would block the process.
fn exchange(mut child: Child, input: &[u8]) -> std::io::Result<Output> {
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(input)));
        let output = child.wait_with_output()?;
        // A process that failed may have closed its input. Its own message says why it failed.
        match writer.join() {
            Ok(Err(error)) if output.status.success() => Err(error),
            _ => Ok(output),
        }
    })
}

/// Runs git without input, and returns its output as text without the last line break.
pub(crate) fn read(folder: &Path, args: &[&str]) -> Result<String> {
    let output = String::from_utf8(run(folder, args, b"")?).context("the output of git is not text")?;
    Ok(output.trim_end_matches('\n').to_owned())
}
