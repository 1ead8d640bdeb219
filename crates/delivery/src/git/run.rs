//! Runs the git program: with an empty environment, without a shell or a prompt, with no configuration but Sluice's, and
//! with a timeout that ends it with all its children.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};

use super::access::RepositoryAccess;
use super::error::{self, GitError, GitResult};
use super::limits::{self, MAX_OUTPUT_BYTES, ProcessLimits};
use super::memory_budget::{LargeSlot, MemoryBudget, RunSize};
use super::process_group::ProcessGroup;
use super::stale_locks::remove_stale_locks;
use crate::edit_slots::EditSlots;
use crate::fair_queue::{FairQueue, FairQueues, Slot, namespace};
use crate::fencing::FencingToken;
use crate::foreign_text::ForeignWords;

/// The environment variables that git inherits: where programs are, and how to reach the network.
const INHERITED: &str = "PATH HTTPS_PROXY HTTP_PROXY ALL_PROXY NO_PROXY https_proxy http_proxy all_proxy no_proxy \
    SSL_CERT_FILE SSL_CERT_DIR TMPDIR";

/// The configuration of git. It does not read configuration files.
const CONFIGURATION: [(&str, &str); 21] = [
    // A cache that a power cut breaks is built again.
    ("core.fsync", "none"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("credential.helper", ""),
    // A redirect would carry the Authorization header to another host.
    ("http.followRedirects", "false"),
    ("http.lowSpeedLimit", "100"),
    ("http.lowSpeedTime", "45"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("init.defaultBranch", "main"),
    ("advice.fetchShowForcedUpdates", "false"),
    // Limits for what a hostile repository makes git hold in memory: git streams larger files.
    ("core.bigFileThreshold", "4m"),
    ("core.packedGitWindowSize", "16m"),
    ("core.packedGitLimit", "64m"),
    ("core.deltaBaseCacheLimit", "16m"),
    ("pack.threads", "1"),
    ("pack.windowMemory", "32m"),
];

/// How long a local run may take: the longest one of a repository of 100,000 files takes 7 s on two busy cores.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a run may take after its token was revoked. A push that the server has received ends in this time, and its result is
/// known; one that waits for the server is ended.
const REVOKED_TIMEOUT: Duration = Duration::from_secs(2);

/// The slots that are reserved for namespaces without a run in progress. So even if the runs of eight namespaces all
/// last until their timeout, they do not delay the run of another namespace.
const RESERVED_RUNS: usize = 8;

/// Returns a queue with three quarters of `processes` as slots for all namespaces, and [`RESERVED_RUNS`] further slots
/// for namespaces without a run in progress.
fn queue_of_runs(processes: usize) -> Arc<FairQueue> {
    FairQueue::with_reserved(processes - processes / 4, RESERVED_RUNS)
}

/// How many runs of one namespace may connect to hosts at a time. From half of this number on, only one run at each host may
/// begin, so that runs at hosts that answer still begin. A run has three processes, and the kubelet may limit a pod to about a
/// thousand processes.
const MAX_REMOTE_RUNS: usize = 96;

/// Runs git, a limited number at a time, for each pipeline in turn. Local runs share one limit. Runs that connect to a host
/// share one limit for each host, so that a host that hangs delays no other. All runs share one memory budget. A namespace
/// with too many runs gets an error: if it waited, it would hold slots of hosts that others need.
#[derive(Debug)]
pub(crate) struct Git {
    local: Arc<FairQueue>,
    /// The queue of each host with current runs.
    hosts: FairQueues,
    /// The queue of each namespace with current runs that connect to hosts. Nobody waits in it.
    namespaces: FairQueues,
    processes: usize,
    timeout: Duration,
    limits: ProcessLimits,
    memory: Arc<MemoryBudget>,
    /// The slots for the work on files that git has read.
    pub(super) edits: EditSlots,
    home: PathBuf,
    pub(crate) allow_file: bool,
}

/// One run of git.
pub(super) struct GitRun<'a> {
    pub(super) dir: &'a Path,
    pub(super) access: &'a RepositoryAccess,
    pub(super) args: Vec<OsString>,
    pub(super) input: Vec<u8>,
    pub(super) remote: bool,
    /// The run begins only while this token is valid, and ends soon afterwards.
    fencing_token: Option<FencingToken>,
    /// Settings of this run alone.
    settings: Vec<(String, OsString)>,
    /// Another program instead of git, which does not see the repository.
    other: Option<OtherProgram>,
}

/// A program that runs with the same limits as git, such as `ssh-keygen`.
struct OtherProgram {
    program: &'static str,
    install: &'static str,
    environment: Vec<(&'static str, OsString)>,
}

impl<'a> GitRun<'a> {
    /// A run that stays on this machine.
    pub(super) fn local<S: Into<OsString>>(
        dir: &'a Path,
        access: &'a RepositoryAccess,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        let (input, remote, fencing_token, settings, other) = Default::default();
        GitRun { dir, access, args, input, remote, fencing_token, settings, other }
    }

    /// A run of another program than git. `install` says how to install it.
    pub(super) fn of<S: Into<OsString>>(
        (program, install): (&'static str, &'static str),
        access: &'a RepositoryAccess,
        args: impl IntoIterator<Item = S>,
        environment: Vec<(&'static str, OsString)>,
    ) -> Self {
        let other = Some(OtherProgram { program, install, environment });
        GitRun { other, ..GitRun::local(&access.folder, access, args) }
    }

    /// A run that connects to the host of the repository.
    pub(super) fn remote<S: Into<OsString>>(
        dir: &'a Path,
        access: &'a RepositoryAccess,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        GitRun { remote: true, ..GitRun::local(dir, access, args) }
    }

    /// Sets the standard input of the run.
    pub(super) fn with_input(self, input: Vec<u8>) -> Self {
        GitRun { input, ..self }
    }

    /// Makes the run one that others can see: it begins only while this token is valid, and ends within [`REVOKED_TIMEOUT`]
    /// afterwards.
    pub(super) fn while_valid(self, fencing_token: &FencingToken) -> Self {
        GitRun { fencing_token: Some(fencing_token.clone()), ..self }
    }

    /// Adds git configuration for this run.
    pub(super) fn configured(self, settings: Vec<(String, OsString)>) -> Self {
        GitRun { settings, ..self }
    }

    /// Waits until the run must end because its token was revoked.
    async fn must_end(&self) {
        match &self.fencing_token {
            Some(token) => token.invalid().await,
            None => std::future::pending().await,
        }
        tokio::time::sleep(REVOKED_TIMEOUT).await;
    }

    fn doing(&self) -> String {
        if let Some(other) = &self.other {
            return other.program.into();
        }
        self.args.first().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn not_run(&self, source: std::io::Error) -> GitError {
        let git = ("the git program", "install git 2.39 or newer");
        let (program, install) = self.other.as_ref().map_or(git, |o| (o.program, o.install));
        GitError::Program { program, install, source }
    }
}

/// The output of a run whose failure the caller interprets.
pub(super) struct Output {
    pub(super) success: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: ForeignWords,
}

/// A run that has ended, with or without success.
struct EndedRun<T> {
    success: bool,
    value: std::io::Result<T>,
    words: ForeignWords,
    lacks_memory: bool,
}

impl<T> EndedRun<T> {
    /// Returns whether the run succeeded, its result and its error output.
    fn checked(self, call: &GitRun<'_>) -> GitResult<(bool, T, ForeignWords)> {
        match self.value {
            Ok(value) => Ok((self.success, value, self.words)),
            Err(_) if self.lacks_memory => Err(error::read(call.access.name(), &call.doing(), &self.words)),
            Err(source) if source.kind() == std::io::ErrorKind::FileTooLarge => {
                let (repository, says) = (call.access.name().to_string(), source.to_string());
                Err(GitError::TooLarge { repository, doing: call.doing(), says })
            }
            Err(source) => Err(call.not_run(source)),
        }
    }
}

/// Returns the result of a successful run, or the error of a failed one.
fn successful<T>(call: &GitRun<'_>, ended: EndedRun<T>) -> GitResult<T> {
    let (success, value, words) = ended.checked(call)?;
    if success { Ok(value) } else { Err(error::read(call.access.name(), &call.doing(), &words)) }
}

/// Reads the whole output, up to [`MAX_OUTPUT_BYTES`].
async fn collect(mut stdout: ChildStdout) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut stdout).take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_OUTPUT_BYTES { Err(limits::too_large("its output")) } else { Ok(bytes) }
}

impl Git {
    /// `home` is an empty folder: git looks for a personal configuration there and finds none.
    pub(crate) fn new(
        home: PathBuf,
        processes: usize,
        timeout: Duration,
        max_file_bytes: u64,
        allow_file: bool,
    ) -> Self {
        let (local, limits) = (queue_of_runs(processes), ProcessLimits::new(max_file_bytes, timeout));
        let (hosts, namespaces, memory) = (FairQueues::default(), FairQueues::default(), MemoryBudget::new());
        let edits = EditSlots::new();
        Git { local, hosts, namespaces, processes, timeout, limits, memory, edits, home, allow_file }
    }

    /// Runs to a successful end and returns the output.
    pub(super) async fn run(&self, call: GitRun<'_>) -> GitResult<Vec<u8>> {
        self.read(call, collect).await
    }

    /// Runs to a successful end and returns the result of `read`, which gets the output while it comes. A run that needs
    /// more memory starts again, and so does `read`.
    pub(super) async fn read<T, F: Future<Output = std::io::Result<T>>>(
        &self,
        call: GitRun<'_>,
        read: impl Fn(ChildStdout) -> F,
    ) -> GitResult<T> {
        let ended = self.run_to_end(&call, read).await?;
        successful(&call, ended)
    }

    /// The same for a run that never needs much memory, so that the output is read once.
    pub(super) async fn read_once<T, F: Future<Output = std::io::Result<T>>>(
        &self,
        call: GitRun<'_>,
        read: impl FnOnce(ChildStdout) -> F,
    ) -> GitResult<T> {
        let ended = self.run_small(&call, read).await?;
        successful(&call, ended)
    }

    /// Runs to an end, with or without success.
    pub(super) async fn try_run(&self, call: GitRun<'_>) -> GitResult<Output> {
        let (success, stdout, stderr) = self.run_to_end(&call, collect).await?.checked(&call)?;
        Ok(Output { success, stdout, stderr })
    }

    /// Runs, and once more as the large run if it needs more memory. The effects of the first run are harmless: a push that
    /// has arrived is up to date the second time.
    async fn run_to_end<T, F: Future<Output = std::io::Result<T>>>(
        &self,
        call: &GitRun<'_>,
        read: impl Fn(ChildStdout) -> F,
    ) -> GitResult<EndedRun<T>> {
        let small = self.run_small(call, &read).await?;
        if !small.lacks_memory {
            return Ok(small);
        }
        let slot = self.memory.large(&call.access.pipeline).await;
        if call.other.is_none() {
            // Only one run at a time uses a cache: the locks are those of the run that was ended.
            let _ = remove_stale_locks(call.dir, 0);
        }
        let ended = self.run_once(call, read, Some(&slot)).await;
        self.memory.large_ended(&call.access.pipeline, matches!(ended, Err(GitError::GaveWay { .. })));
        ended
    }

    async fn run_small<T, F: Future<Output = std::io::Result<T>>>(
        &self,
        call: &GitRun<'_>,
        read: impl FnOnce(ChildStdout) -> F,
    ) -> GitResult<EndedRun<T>> {
        let pipeline = &call.access.pipeline;
        if !call.remote {
            let _slot = self.local.acquire(pipeline).await;
            return self.run_once(call, read, None).await;
        }
        let host = self.hosts.of(&call.access.address.host, || queue_of_runs(self.processes));
        let _slot = host.acquire(pipeline).await;
        let _namespace_slot = self.namespace_slot(call, &host)?;
        self.run_once(call, read, None).await
    }

    /// Counts a run that connects to a host for its namespace, until the slot is dropped. The run has a slot of the host.
    ///
    /// # Errors
    /// When the namespace has too many.
    fn namespace_slot(&self, call: &GitRun<'_>, host: &FairQueue) -> GitResult<Slot> {
        let pipeline = &call.access.pipeline;
        let namespace = namespace(pipeline);
        let runs = self.namespaces.of(namespace, || FairQueue::with_reserved(MAX_REMOTE_RUNS, 0));
        let is_one_of_many =
            runs.held_by_namespace(namespace) >= MAX_REMOTE_RUNS / 2 && host.held_by_namespace(namespace) > 1;
        let slot = if is_one_of_many { None } else { runs.try_acquire(pipeline) };
        slot.ok_or_else(|| GitError::TooManyRuns { repository: call.access.name().to_string() })
    }

    /// Runs, and passes the output to a reader while it comes. `large` is the slot of the large run.
    async fn run_once<T, F: Future<Output = std::io::Result<T>>>(
        &self,
        call: &GitRun<'_>,
        read: impl FnOnce(ChildStdout) -> F,
        large: Option<&LargeSlot>,
    ) -> GitResult<EndedRun<T>> {
        let size = if large.is_some() { RunSize::Large } else { RunSize::Small };
        // Not before the wait for a slot, which may take minutes.
        if call.fencing_token.as_ref().is_some_and(|token| token.check().is_err()) {
            return Err(GitError::Revoked);
        }
        let not_run = |source| call.not_run(source);
        let child = self.command(call, size).spawn().map_err(not_run)?;
        let mut group = ProcessGroup::new(child);
        let measured = group.pid().map(|pid| self.memory.measure(pid, &call.access.pipeline, size));
        let timeout = if call.remote { self.timeout } else { self.timeout.min(LOCAL_TIMEOUT) };
        let talk = converse(&mut group, &call.input, read);
        let give_way = async {
            match large {
                Some(slot) => slot.must_give_way().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = tokio::time::timeout(timeout, talk) => ended.map_err(|_| {
                let repository = call.access.name().to_string();
                GitError::Timeout { repository, doing: call.doing(), after: timeout }
            }),
            () = call.must_end() => Err(GitError::Revoked),
            () = give_way => {
                Err(GitError::GaveWay { repository: call.access.name().to_string(), doing: call.doing() })
            }
        };
        if ended.is_err() {
            // First by SIGTERM: git then removes its locks and half-written packs.
            group.end().await;
        }
        let (status, value, stderr) = ended?.map_err(not_run)?;
        group.record_end(status.success());
        let mut raw = String::from_utf8_lossy(&stderr).into_owned();
        if limits::is_missing(status, &raw) {
            return Err(not_run(std::io::ErrorKind::NotFound.into()));
        }
        if measured.is_some_and(|measured| measured.was_ended()) {
            raw.push_str("\nout of memory: all runs of git together took more than Sluice gives them");
        } else if let Some(signal) = status.signal() {
            raw.push_str(&format!("\ndied of signal {signal}"));
        }
        let words = error::stderr(raw, |text| call.access.redact(text));
        let lacks_memory = !status.success() && error::is_out_of_memory(&words);
        Ok(EndedRun { success: status.success(), value, words, lacks_memory })
    }

    fn command(&self, call: &GitRun<'_>, size: RunSize) -> Command {
        let program = call.other.as_ref().map_or("git", |other| other.program);
        let mut command = self.limits.command(program, size);
        command.args(&call.args).env_clear();
        let inherited = INHERITED.split_whitespace().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(inherited).env("HOME", &self.home).env("LC_ALL", "C");
        match &call.other {
            None => self.set_git_environment(&mut command, call),
            Some(other) => drop(command.envs(other.environment.iter().map(|(name, value)| (name, value)))),
        }
        command
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    /// The protocols that a run may use. A local run may use none: git would fetch objects that the server has left out, in
    /// the queue of local runs, where a server that hangs delays the runs of others.
    fn protocols(&self, call: &GitRun<'_>) -> &'static str {
        match (call.remote, self.allow_file) {
            (false, _) => "none",
            (true, false) => "https:http:ssh",
            (true, true) => "https:http:ssh:file",
        }
    }

    /// Sets the environment variables of git.
    fn set_git_environment(&self, command: &mut Command, call: &GitRun<'_>) {
        command
            .env("GIT_DIR", call.dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", self.protocols(call));
        let own = CONFIGURATION.iter().map(|(k, v)| (k.to_string(), OsString::from(v)));
        let configuration: Vec<_> =
            own.chain(call.access.configuration()).chain(call.settings.iter().cloned()).collect();
        command.env("GIT_CONFIG_COUNT", configuration.len().to_string());
        for (i, (key, value)) in configuration.into_iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{i}"), key).env(format!("GIT_CONFIG_VALUE_{i}"), value);
        }
        if let Some(ssh) = call.access.ssh_command() {
            command.env("GIT_SSH_COMMAND", ssh).env("GIT_SSH_VARIANT", "ssh");
        }
    }
}

/// Writes the input of a process, reads both of its outputs and waits for it, all at the same time.
async fn converse<T, F, R>(
    group: &mut ProcessGroup,
    input: &[u8],
    read: R,
) -> std::io::Result<(ExitStatus, std::io::Result<T>, Vec<u8>)>
where
    R: FnOnce(ChildStdout) -> F,
    F: Future<Output = std::io::Result<T>>,
{
    let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let child = group.child().ok_or_else(gone)?;
    let mut stdin = child.stdin.take().ok_or_else(gone)?;
    let stdout = child.stdout.take().ok_or_else(gone)?;
    let mut stderr = child.stderr.take().ok_or_else(gone)?;
    let feed = async move {
        // A process that ends without reading all of it prints why.
        let _ = stdin.write_all(input).await;
        let _ = stdin.shutdown().await;
    };
    let complain = async move {
        let mut bytes = Vec::new();
        (&mut stderr).take(64 * 1024).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
        Ok::<_, std::io::Error>(bytes)
    };
    let ((), value, complaints) = tokio::join!(feed, read(stdout), complain);
    let status = child.wait().await?;
    Ok((status, value, complaints?))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::address::RepositoryAddress;
    use crate::credentials::Credentials;

    fn access(pipeline: &str, address: &str, folder: &Path) -> RepositoryAccess {
        let address = RepositoryAddress::parse(address, false).unwrap();
        RepositoryAccess::new(address, None, &Credentials::default(), pipeline, folder).unwrap()
    }

    #[tokio::test]
    async fn a_namespace_whose_hosts_all_hang_runs_a_limited_number_and_keeps_no_slot_of_a_host() {
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new(folder.path().into(), 4, LOCAL_TIMEOUT, 1 << 20, false);
        // Nothing listens at port 1.
        let of = |pipeline: &str| access(pipeline, "https://127.0.0.1:1/a/b.git", folder.path());
        let [hostile, quiet] = ["hostile/app", "quiet/app"].map(of);
        let fetch = |access| git.run(GitRun::remote(folder.path(), access, ["ls-remote", "origin"]));
        let occupy = |runs: usize| -> Vec<Slot> {
            let hung = of("hostile/other");
            let run = GitRun::remote(folder.path(), &hung, ["fetch"]);
            (0..runs).map(|_| git.namespace_slot(&run, &queue_of_runs(4)).unwrap()).collect()
        };
        let is_refused = |ended: GitResult<Vec<u8>>| matches!(ended, Err(GitError::TooManyRuns { .. }));
        let running = occupy(MAX_REMOTE_RUNS);
        for _ in 0..3 {
            assert!(is_refused(fetch(&hostile).await));
        }
        assert!(!is_refused(fetch(&quiet).await), "another namespace runs");
        drop(running);
        let _running = occupy(MAX_REMOTE_RUNS / 2);
        assert!(!is_refused(fetch(&hostile).await), "the first run at a host");
        let at_host = git.hosts.of(&hostile.address.host, || queue_of_runs(4));
        let _other_run = at_host.acquire("hostile/other").await;
        assert!(is_refused(fetch(&hostile).await), "the second one");
    }

    #[tokio::test]
    async fn a_run_whose_token_is_revoked_while_it_waits_does_not_begin() {
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new(folder.path().into(), 1, LOCAL_TIMEOUT, 1 << 20, false);
        let access = access("apps/podinfo", "https://git.example.com/a/b.git", folder.path());
        for is_revoked in [false, true] {
            let queue = &git.local;
            let others: Vec<_> =
                (0..9).map(|n| queue.acquire(&format!("busy-{n}/app")).now_or_never().unwrap()).collect();
            let token = FencingToken::default();
            let run = GitRun::local(folder.path(), &access, ["version"]).while_valid(&token);
            let mut run = Box::pin(git.run(run));
            assert!((&mut run).now_or_never().is_none(), "it waits for a slot");
            if is_revoked {
                token.revoke();
            }
            drop(others);
            let ended = run.await;
            assert_eq!(matches!(ended, Err(GitError::Revoked)), is_revoked, "{ended:?}");
        }
    }

    #[tokio::test]
    async fn a_run_that_needs_much_memory_and_hangs_delays_another_for_a_few_seconds() {
        let [folder, hostile, quiet] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let git = Git::new(folder.path().into(), 4, LOCAL_TIMEOUT, 1 << 20, false);
        let of = |pipeline: &str| access(pipeline, "https://127.0.0.1:1/a/b.git", folder.path());
        let [of_hostile, of_quiet] = ["hostile/app", "quiet/app"].map(of);
        // The first run needs more memory, and the second one does what `then` says.
        let run = |access, files: &Path, then: &str| {
            let first = ": > again; echo 'fatal: Out of memory, malloc failed' >&2; exit 128";
            let script = format!("cd {} && test -e again && {then}; {first}", files.display());
            git.run(GitRun::of(("sh", "install a shell"), access, ["-c", &script], Vec::new()))
        };
        let hangs = run(&of_hostile, hostile.path(), ": > hangs && exec sleep 600");
        let quick = async {
            while !hostile.path().join("hangs").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            run(&of_quiet, quiet.path(), "exit 0").await
        };
        let (hung, quick) = tokio::join!(hangs, quick);
        assert!(matches!(hung, Err(GitError::GaveWay { .. })), "{hung:?}");
        quick.unwrap();
    }

    #[tokio::test]
    async fn output_over_the_limit_is_refused() {
        for (length, is) in [(MAX_OUTPUT_BYTES, true), (MAX_OUTPUT_BYTES + 1, false)] {
            let mut printer = Command::new("head");
            printer.args(["-c", &length.to_string(), "/dev/zero"]).stdout(Stdio::piped());
            let mut printer = printer.kill_on_drop(true).spawn().unwrap();
            let read = collect(printer.stdout.take().unwrap()).await;
            assert_eq!(read.is_ok_and(|bytes| bytes.len() as u64 == length), is, "{length} bytes");
        }
    }
}
