//! A child process that ends with this process. Destructors do not run when a test is killed, and the system calls for
//! this purpose need `unsafe`. A shell, the watchdog, starts the server and reads a pipe from this process. The pipe
//! ends when this process drops it or ends in any way; then the watchdog kills the server.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Starts `"$@"` with its output in the file `$1`, prints its process id, and kills it at the end of standard input.
/// If the server ends first, the watchdog ends with the same exit code.
const WATCHDOG: &str = r#"
log=$1; shift
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
server=$!
echo "$server"
( cat <&3 >/dev/null 2>&1; kill -KILL "$server" 2>/dev/null ) </dev/null >/dev/null 2>&1 &
watch=$!
exec 3<&- 0</dev/null 1>/dev/null
wait "$server"; code=$?
kill -KILL "$watch" 2>/dev/null
exit "$code"
"#;

/// How long drop waits for the end of a killed server.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server. Dropping it kills the server and waits until it has ended.
#[derive(Debug)]
pub struct ProcessGuard {
    name: String,
    log: PathBuf,
    pid: u32,
    watchdog: Child,
    pipe: Option<ChildStdin>,
}

impl ProcessGuard {
    /// Starts `command` (program, arguments, folder and environment) and appends its output to `log`.
    ///
    /// # Errors
    /// There is no `sh`, or the process cannot be started. A program that ends immediately is no error here: see
    /// [`ProcessGuard::ended`].
    pub fn start(name: &str, command: &Command, log: &Path) -> Result<ProcessGuard> {
        let mut sh = Command::new("sh");
        sh.args(["-c", WATCHDOG, "watchdog"]).arg(log).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            sh.current_dir(folder);
        }
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => sh.env(key, value),
                None => sh.env_remove(key),
            };
        }
        let mut watchdog = spawn_watchdog(&mut sh).with_context(|| format!("cannot start {name}"))?;
        let pipe = watchdog.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = watchdog.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid =
            line.trim().parse().with_context(|| format!("{name} did not start: see {}", log.display()))?;
        Ok(ProcessGuard { name: name.to_owned(), log: log.to_owned(), pid, watchdog, pipe })
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the exit status of a server that ended on its own.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.watchdog.try_wait().ok().flatten()
    }

    /// Checks that the server runs.
    ///
    /// # Errors
    /// The server has ended; the error holds the end of its log.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.ended() else { return Ok(()) };
        bail!("{} ended early ({status}); the end of its log:\n{}", self.name, self.log_tail());
    }

    /// Returns the last 20 lines of the server's log.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Stops the server with SIGSTOP: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Continues a frozen server.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Sends SIGTERM to the server, and does not wait: see [`ProcessGuard::ended`].
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn terminate(&self) -> Result<()> {
        self.signal("TERM")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.pid.to_string();
        let sent = Command::new("sh").args(["-c", r#"kill -"$1" "$2""#, "kill", signal, &pid]).status()?;
        if !sent.success() {
            bail!("cannot send {signal} to {} (process {pid}): it has probably ended", self.name);
        }
        Ok(())
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        wait_for_end(&mut self.watchdog);
    }
}

/// Starts a watchdog with a pipe to this process, in its own process group: Ctrl-C in a terminal must reach this
/// process only, and not end the servers first.
pub(crate) fn spawn_watchdog(sh: &mut Command) -> Result<Child> {
    sh.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    sh.spawn().context("cannot run sh: it must be on PATH")
}

/// Waits for a watchdog whose pipe was closed.
pub(crate) fn wait_for_end(watchdog: &mut Child) {
    let started = Instant::now();
    while started.elapsed() < END_TIMEOUT {
        if !matches!(watchdog.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    tracing::warn!(pid = watchdog.id(), "a killed server has not ended after {END_TIMEOUT:?}");
}
