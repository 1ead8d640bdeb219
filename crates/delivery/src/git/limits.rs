//! Limits of a run of git, whatever a repository or a server makes git do.

use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use super::memory_budget::RunSize;

/// The most that a process may map into its memory, files included, in KiB.
const MAX_ADDRESS_SPACE: u64 = 384 * 1024;

/// The most output of a run that is kept, in bytes.
pub(super) const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// The longest record of a list, in bytes: a path of Linux has 4,096 at most.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// Sets the limits and becomes the program, so that the programs that it starts have the limits, too. A lower limit
/// stays. Units of ulimit: KiB, KiB, blocks of 512 bytes (POSIX), seconds. `-d` counts all memory that
/// is private and writable, so no packs (getrlimit(2), `RLIMIT_DATA`: "since Linux 4.7, also private writable mappings").
const SCRIPT: &str = r#"ulimit -v "$1" 2>/dev/null; ulimit -d "$2" 2>/dev/null; ulimit -f "$3" 2>/dev/null
ulimit -t "$4" 2>/dev/null; ulimit -c 0 2>/dev/null; shift 4; exec "$@""#;

/// The limits of every process.
#[derive(Debug)]
pub(super) struct ProcessLimits {
    /// In blocks of 512 bytes.
    file_blocks: u64,
    cpu_seconds: u64,
}

impl ProcessLimits {
    /// The kernel ends a process that works for longer than the timeout.
    pub(super) fn new(max_file_bytes: u64, timeout: Duration) -> Self {
        ProcessLimits { file_blocks: (max_file_bytes / 512).max(1), cpu_seconds: timeout.as_secs() + 10 }
    }

    /// A command for a program under these limits.
    pub(super) fn command(&self, program: &str, size: RunSize) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "sh"]);
        let limits = [MAX_ADDRESS_SPACE, size.process_limit(), self.file_blocks, self.cpu_seconds];
        command.args(limits.map(|limit| limit.to_string()));
        command.arg(program);
        command
    }
}

/// Whether the shell reports that there is no such program (POSIX: "127 if the command is not found").
pub(super) fn is_missing(status: ExitStatus, stderr: &str) -> bool {
    status.code() == Some(127) && stderr.contains("not found")
}

/// The error for something that is larger than Sluice reads.
pub(super) fn too_large(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::FileTooLarge, format!("{what} is larger than Sluice reads"))
}

/// Passes each record of the output of a process to `each`, while it comes. An error of `each` ends the process.
pub(super) async fn each_record(
    stdout: ChildStdout,
    separator: u8,
    mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(128 * 1024, stdout);
    let mut record = Vec::new();
    loop {
        record.clear();
        let read = (&mut reader).take(MAX_RECORD_BYTES).read_until(separator, &mut record).await?;
        if read == 0 {
            return Ok(());
        }
        if record.pop_if(|last| *last == separator).is_none() && read as u64 == MAX_RECORD_BYTES {
            return Err(too_large("a path"));
        }
        each(&record)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the limits in a program that the started program starts, by `ulimit` of POSIX.
    #[tokio::test]
    async fn every_started_program_has_the_limits() {
        let mut command = ProcessLimits::new(5 << 20, Duration::from_secs(20)).command("sh", RunSize::Small);
        command.args(["-c", "sh -c 'ulimit -d; ulimit -v; ulimit -f; ulimit -t'"]);
        let output = command.output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let [data, memory, blocks, seconds] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(data.parse().ok(), Some(RunSize::Small.process_limit()), "{text}");
        assert!(memory.parse::<u64>().is_ok_and(|kib| kib <= 512 << 10), "{text}");
        assert_eq!((blocks, seconds), ("10240", "30"), "{text}");
    }

    #[tokio::test]
    async fn a_record_without_an_end_is_refused_and_not_passed_on() {
        let mut printer = Command::new("head");
        printer.args(["-c", "1000000", "/dev/zero"]).stdout(std::process::Stdio::piped());
        let mut printer = printer.kill_on_drop(true).spawn().unwrap();
        let mut records = 0;
        let read = each_record(printer.stdout.take().unwrap(), b'\n', |_| {
            records += 1;
            Ok(())
        });
        assert_eq!(read.await.unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
        assert_eq!(records, 0);
    }

    #[tokio::test]
    async fn the_writer_of_a_too_large_file_is_ended() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = ProcessLimits::new(1 << 20, Duration::from_secs(20)).command("dd", RunSize::Small);
        command.args(["if=/dev/zero", "bs=65536", "count=64"]).stderr(std::process::Stdio::null());
        command.arg(format!("of={}", file.path().display()));
        assert!(!command.status().await.unwrap().success());
        assert_eq!(file.as_file().metadata().unwrap().len(), 1 << 20);
    }
}
