//! Runs the built binary: into pipes, into a pipe that nobody reads, and in a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

/// How a command is called.
#[derive(Clone, Debug)]
pub struct Call {
    pub arguments: Vec<String>,
    /// The environment variables. A command gets no others but `PATH`.
    pub variables: Vec<(&'static str, String)>,
}

impl Call {
    /// Returns a call with these arguments and a home folder without a kubeconfig.
    pub fn new(arguments: &str, home: &Path) -> Call {
        let arguments = arguments.split_whitespace().map(String::from).collect();
        let home = home.to_string_lossy().into_owned();
        Call { arguments, variables: vec![("HOME", home.clone()), ("TMPDIR", home)] }
    }

    /// Adds a variable of the environment.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Call {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(&self.arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command
    }

    /// Runs it into pipes.
    pub fn run(&self) -> Result<Ran> {
        let output = self.command().output()?;
        Ok(Ran {
            exit: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        })
    }

    /// Runs it with its output into a file. Its errors go into a pipe.
    pub fn run_into(&self, file: &Path) -> Result<Ran> {
        let file = File::options().write(true).open(file)?;
        let output = self.command().stdout(file).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        Ok(Ran { exit: output.status.code().unwrap_or(-1), out: String::new(), err: text(output.stderr) })
    }

    /// Runs it until its errors have a line with this text, and then on to its end. Meanwhile `act` does something.
    pub fn run_while(&self, says: &str, act: impl FnOnce() -> Result<()>) -> Result<Ran> {
        let mut child = self.command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("no pipe")?).lines();
        let mut err = Vec::new();
        while !err.last().is_some_and(|line: &String| line.contains(says)) {
            err.push(lines.next().with_context(|| format!("it has ended: {err:?}"))??);
        }
        act()?;
        for line in lines {
            err.push(line?);
        }
        Ok(Ran { exit: child.wait()?.code().unwrap_or(-1), out: String::new(), err: err.join("\n") })
    }

    /// Runs it into a pipe that nobody reads.
    pub fn run_unread(&self) -> Result<Ran> {
        let (reader, writer) = pipe()?;
        drop(reader);
        let output = self.command().stdout(writer).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        Ok(Ran { exit: output.status.code().unwrap_or(-1), out: String::new(), err: text(output.stderr) })
    }

    /// Runs it in a terminal of this width, with its errors into a pipe.
    pub fn run_in_terminal(&self, width: u16) -> Result<Ran> {
        self.with_terminal(width, |command, terminal| command.stdout(terminal).stderr(Stdio::piped()))
    }

    /// Runs it with its errors in a terminal of this width, where they are the output.
    pub fn run_with_errors_in_terminal(&self, width: u16) -> Result<Ran> {
        self.with_terminal(width, |command, terminal| command.stdout(Stdio::null()).stderr(terminal))
    }

    /// Runs it after `attach` has given it a terminal of this width.
    fn with_terminal(
        &self,
        width: u16,
        attach: impl FnOnce(&mut Command, OwnedFd) -> &mut Command,
    ) -> Result<Ran> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let size = Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size)?;
        let name = ptsname(&master, Vec::new())?;
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let terminal = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        let mut command = self.command();
        let child = attach(&mut command, terminal).env("TERM", "xterm").spawn()?;
        // The command's copy of the terminal would keep it open.
        drop(command);
        let reader = std::thread::spawn(move || read_to_end(File::from(master)));
        let output = child.wait_with_output()?;
        let out = reader.join().ok().context("the reader of the terminal has panicked")??;
        let out = text(out).replace("\r\n", "\n");
        Ok(Ran { exit: output.status.code().unwrap_or(-1), out, err: text(output.stderr) })
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads what is written to a terminal. Linux reports EIO when nobody has it open any more.
fn read_to_end(mut master: File) -> Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match master.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(part.get(..n).unwrap_or_default()),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                return Ok(all);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns a text without the escape sequences that set colours.
pub fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}
