//! A child process that cannot outlive us. Destructors do not run when a test is killed, and the
//! system calls that would help need `unsafe`; a pipe does the same. A shell starts the server and
//! reads a pipe that only we hold the other end of: when we drop it, or die in any way, the shell
//! sees the end of the pipe and kills the server.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Starts `"$@"` with its output in the file `$1`, prints its process id, and kills it at the end
/// of standard input. Ends with the server's own exit code when that ends first.
const KEEPER: &str = r#"
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

/// How long a killed server may take to be gone.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// A running server. Dropping it ends the server and waits until it is gone.
#[derive(Debug)]
pub struct Leash {
    name: String,
    log: PathBuf,
    pid: u32,
    keeper: Child,
    pipe: Option<ChildStdin>,
}

impl Leash {
    /// Starts `command` (its program, arguments, folder and environment) with its output appended
    /// to `log`.
    ///
    /// # Errors
    /// When there is no `sh`, or the process cannot be started. A program that ends at once is not
    /// an error here: see [`Leash::ended`].
    pub fn start(name: &str, command: &Command, log: &Path) -> Result<Leash> {
        let mut sh = Command::new("sh");
        sh.args(["-c", KEEPER, "keeper"]).arg(log).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            sh.current_dir(folder);
        }
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => sh.env(key, value),
                None => sh.env_remove(key),
            };
        }
        let mut keeper = spawn_keeper(&mut sh).with_context(|| format!("cannot start {name}"))?;
        let pipe = keeper.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = keeper.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid =
            line.trim().parse().with_context(|| format!("{name} did not start: see {}", log.display()))?;
        Ok(Leash { name: name.to_owned(), log: log.to_owned(), pid, keeper, pipe })
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The server's exit status, once it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.keeper.try_wait().ok().flatten()
    }

    /// Fails, with the end of its log, when the server has ended.
    ///
    /// # Errors
    /// The server is gone.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.ended() else { return Ok(()) };
        bail!("{} ended early ({status}); the end of its log:\n{}", self.name, self.log_tail());
    }

    /// The last lines that the server wrote.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Stops the server's clock, so to say: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets a frozen server go on.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Asks the server to end; [`Leash::ended`] tells when it has.
    ///
    /// # Errors
    /// When the signal cannot be sent.
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

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.pipe.take());
        await_end(&mut self.keeper);
    }
}

/// Starts a shell that reads our pipe, in its own process group: Ctrl-C in a terminal is for us to
/// handle, and must not take the servers away under our feet.
pub(crate) fn spawn_keeper(sh: &mut Command) -> Result<Child> {
    sh.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    sh.spawn().context("cannot run sh: it must be on PATH")
}

/// Waits for a keeper whose pipe was closed.
pub(crate) fn await_end(keeper: &mut Child) {
    let started = Instant::now();
    while started.elapsed() < END_DEADLINE {
        if !matches!(keeper.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    tracing::warn!(pid = keeper.id(), "a server is still there {END_DEADLINE:?} after it was killed");
}
