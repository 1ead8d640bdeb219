//! Errors of git, recognized by its messages in the C locale, with what to do about them.

use std::time::Duration;

use sluice_core::value_check::is_unsafe;

use crate::foreign_text::ForeignWords;
use crate::retry::Retry;

/// The result of a run of git.
pub(crate) type GitResult<T> = Result<T, GitError>;

/// Why git failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GitError {
    #[error("cannot run {program}: {source}; {install}")]
    Program { program: &'static str, install: &'static str, source: std::io::Error },

    #[error(
        "{repository}: ssh cannot run here ({says}); install OpenSSH's client where Sluice runs, and add the \
         user that Sluice runs as to /etc/passwd"
    )]
    NoSsh { repository: String, says: String },

    #[error(
        "{repository}: git {doing} did not end within {} seconds; if the server or the network is slow, raise \
         --delivery-timeout",
        after.as_secs_f32()
    )]
    Timeout { repository: String, doing: String, after: Duration },

    #[error(
        "{repository}: git {doing} needs much memory, which one run has at a time, and was ended because others waited for it; \
         a later try can succeed"
    )]
    GaveWay { repository: String, doing: String },

    #[error(
        "{repository}: the server does not accept the credentials ({says}); check username and password \
         (or token, or identity) in the Secret, and that they may write"
    )]
    Authentication { repository: String, says: String },

    #[error(
        "{repository}: there is no such repository, or the credentials give no access to it ({says}); \
         check the address and the Secret"
    )]
    NoRepository { repository: String, says: String },

    #[error(
        "{repository}: there is no branch {branch:?}; create it, or correct branch or url in the pipeline"
    )]
    NoBranch { repository: String, branch: String },

    #[error(
        "{repository}: cannot reach the server: {says}; check the server, its address, DNS and the network"
    )]
    Unreachable { repository: String, says: String },

    #[error(
        "{repository}: the server's certificate is not trusted ({says}); put the certificate of its \
         authority into the Secret as caFile"
    )]
    Certificate { repository: String, says: String },

    #[error(
        "{repository}: the key of the SSH server is not the one in known_hosts ({says}); put the right key \
         into the Secret as known_hosts (ssh-keyscan prints it)"
    )]
    HostKey { repository: String, says: String },

    #[error(
        "{repository}: the server redirects to another address ({says}); write that address into the pipeline"
    )]
    Redirected { repository: String, says: String },

    #[error("{repository}: the server limits the rate of calls ({says})")]
    TooManyCalls { repository: String, says: String },

    #[error(
        "{repository}: too many runs of git are in progress for pipelines of this namespace; a later try can succeed; \
         if this lasts, find the git servers that do not answer"
    )]
    TooManyRuns { repository: String },

    #[error(
        "{repository}: the push to {branch} was refused: {says}; let the user of the credentials push to {branch}, or use \
         the strategy pull-request if the branch must stay protected"
    )]
    Rejected { repository: String, branch: String, says: String },

    #[error("{repository}: the push to {branch} was refused: {says}")]
    RefInTheWay { repository: String, branch: String, says: String },

    #[error(
        "{repository}: other writers pushed to {branch} first, {tries} times in a row; a later try can succeed"
    )]
    Contended { repository: String, branch: String, tries: u32 },

    #[error("{repository}: the Secret has no {key}, which this address needs; add {key} to the Secret")]
    NoCredential { repository: String, key: &'static str },

    #[error("{repository}: the identity in the Secret {is}")]
    Identity { repository: String, is: &'static str },

    #[error("{repository}: the signingKey in the Secret {is}")]
    SigningKey { repository: String, is: String },

    #[error(
        "{repository}: git {doing} was stopped: {says}; take what is too large out of the repository, or \
         promote into another repository"
    )]
    TooLarge { repository: String, doing: String, says: String },

    #[error(
        "{repository}: Sluice refuses to read the newest commit of {branch}: {says}; delete the branch {branch}, and Sluice \
         makes it again"
    )]
    HeadTooLarge { repository: String, branch: String, says: String },

    #[error(
        "{repository}: git {doing} was stopped: {says}; the repository announces too many branches, tags and other \
         refs: delete those that nobody needs, or promote into another repository"
    )]
    TooManyRefs { repository: String, doing: String, says: String },

    #[error(
        "{repository}: credentials are not sent over plain http, where everybody on the network path can read \
         them; write an https or ssh address, or start the controller with --insecure-git-http"
    )]
    PlainHttp { repository: String },

    #[error("cannot use the cache of {repository}: {says}")]
    Cache { repository: String, says: String },

    #[error("{repository}: git {doing} failed: {says}")]
    Failed { repository: String, doing: String, says: String },

    /// The fencing token of the run was revoked before the run began.
    #[error("stopped before git wrote anything")]
    Revoked,
}

impl GitError {
    /// Whether the server may have taken a push that ended with this error.
    pub(crate) fn may_have_happened(&self) -> bool {
        use GitError::{Failed, GaveWay, Timeout, Unreachable};
        matches!(self, Unreachable { .. } | Timeout { .. } | GaveWay { .. } | Failed { .. })
    }

    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            GitError::Program { .. } | GitError::NoSsh { .. } => "GitUnavailable",
            GitError::Timeout { .. } => "Timeout",
            GitError::Authentication { .. } => "AuthenticationFailed",
            GitError::NoRepository { .. } => "RepositoryNotFound",
            GitError::NoBranch { .. } => "BranchNotFound",
            GitError::Unreachable { .. } => "Unreachable",
            GitError::Certificate { .. } => "CertificateInvalid",
            GitError::HostKey { .. } => "HostKeyUnknown",
            GitError::Redirected { .. } => "Redirected",
            GitError::TooManyCalls { .. } => "RateLimited",
            GitError::TooManyRuns { .. } => "TooManyRuns",
            GitError::GaveWay { .. } => "GaveWay",
            GitError::Rejected { .. } | GitError::RefInTheWay { .. } => "PushRejected",
            GitError::Contended { .. } => "BranchContended",
            GitError::NoCredential { .. } => "MissingCredential",
            GitError::Identity { .. } => "IdentityInvalid",
            GitError::SigningKey { .. } => "SigningKeyInvalid",
            GitError::TooLarge { .. } | GitError::HeadTooLarge { .. } | GitError::TooManyRefs { .. } => {
                "RepositoryTooLarge"
            }
            GitError::PlainHttp { .. } => "PlainHttpRefused",
            GitError::Cache { .. } => "CacheUnusable",
            GitError::Failed { .. } => "GitFailed",
            GitError::Revoked => "Stopped",
        }
    }

    /// Returns when to try again.
    pub fn retry(&self) -> Retry {
        match self {
            GitError::Redirected { .. } => Retry::OnChange,
            _ => Retry::Soon,
        }
    }

    /// Whether a new cache may fix it: every failure that is not clearly one of the server.
    pub(super) fn may_be_the_cache(&self) -> bool {
        matches!(self, GitError::Failed { .. } | GitError::Cache { .. })
    }
}

const BROKEN_KEY: &str = "cannot be read by ssh: put the whole file into the Secret that ssh-keygen wrote";

/// The phrases of a run that a limit has ended. Signals 24 and 25 are the limits for processor time and for the size of a
/// file. Signal 11 is the end of git's stack, by a tree in a tree in a tree.
const LIMIT_PHRASES: &str = "died of signal 24|died of signal 25|file too large|died of signal 11";

/// Makes the error of a repository whose git printed this.
type ErrorOfRun = fn(String, String) -> GitError;

/// Phrases of git, curl and ssh in lower case, separated by `|`, and their meaning. The first match counts.
const PHRASES: &[(&str, ErrorOfRun)] = &[
    ("cannot run ssh|ssh: not found|no user exists for uid", |repository, says| GitError::NoSsh {
        repository,
        says,
    }),
    ("host key verification failed|remote host identification has changed", |repository, says| {
        GitError::HostKey { repository, says }
    }),
    ("load key \"", |repository, _| GitError::Identity { repository, is: BROKEN_KEY }),
    ("permission denied (|too many authentication failures", |repository, says| GitError::Authentication {
        repository,
        says,
    }),
    (
        "ssl certificate problem|server certificate verification failed|certificate subject name\
         |no alternative certificate subject name|error setting certificate",
        |repository, says| GitError::Certificate { repository, says },
    ),
    (
        "unable to update url base from redirection|returned error: 301|returned error: 302\
         |returned error: 307|returned error: 308",
        |repository, says| GitError::Redirected { repository, says },
    ),
    ("returned error: 429", |repository, says| GitError::TooManyCalls { repository, says }),
    (
        "returned error: 401|returned error: 403|authentication failed|could not read username\
         |could not read password",
        |repository, says| GitError::Authentication { repository, says },
    ),
    ("returned error: 404", |repository, says| GitError::NoRepository { repository, says }),
    ("returned error: 5", |repository, says| GitError::Unreachable { repository, says }),
    ("repository not found|does not appear to be a git repository|could not be found", |repository, says| {
        GitError::NoRepository { repository, says }
    }),
    (
        "could not resolve host|failed to connect|couldn't connect|connection refused\
         |connection timed out|connection reset|connection closed|operation too slow\
         |operation timed out|empty reply from server|recv failure|unable to access\
         |hung up unexpectedly|unexpected disconnect|early eof|could not read from remote repository",
        |repository, says| GitError::Unreachable { repository, says },
    ),
];

/// Returns the error output of a program. If a secret is a common word, what is shown is hard to read.
pub(super) fn stderr(raw: String, redact: impl Fn(&str) -> String) -> ForeignWords {
    let shown = redact(&raw.lines().map(visible).collect::<Vec<_>>().join("\n"));
    ForeignWords::new(raw, shown)
}

/// Returns a line without the characters that nobody sees. A secret may have some in it, or a server may put some into it.
pub(super) fn visible(line: &str) -> String {
    line.chars().filter(|c| !is_unsafe(*c)).collect()
}

/// Whether a process on this machine ran out of memory, by the words of git, ssh, gpg and Sluice. A line with the words of a
/// server begins with other words, except over SSH.
pub(super) fn is_out_of_memory(stderr: &ForeignWords) -> bool {
    const BEGINNINGS: [&str; 5] = [
        "out of memory",
        "inflate: out of memory",
        "mmap failed: cannot allocate memory",
        "xmalloc: out of memory",
        "gpg: out of memory",
    ];
    let is_own = |line: &str| {
        let text = line.strip_prefix("fatal: ").or(line.strip_prefix("error: ")).unwrap_or(line);
        // What curl says stands after the address.
        let is_of_curl = text.starts_with("unable to access '") && text.ends_with("': out of memory");
        is_of_curl || BEGINNINGS.iter().any(|words| text.starts_with(words))
    };
    stderr.lower().lines().any(is_own)
}

/// How git marks the lines of the server in its output.
pub(super) const OF_SERVER: &str = "remote:";

/// Returns the error for the error output of git.
pub(super) fn read(repository: &str, doing: &str, words: &ForeignWords) -> GitError {
    let (repository, says) = (repository.to_string(), essence(&without_text_of_server(words)));
    let lower = words.lower();
    if let Some(branch) = missing_branch(words) {
        return GitError::NoBranch { repository, branch };
    }
    if lower.contains("repository '") && lower.contains("' not found") {
        return GitError::NoRepository { repository, says };
    }
    let (doing, has) =
        (doing.to_string(), |phrases: &str| phrases.split('|').any(|phrase| lower.contains(phrase)));
    let is_limited = has(LIMIT_PHRASES) || is_out_of_memory(words);
    match PHRASES.iter().find(|(phrases, _)| has(phrases)) {
        // What a local run says if it may not connect to fetch an object (`transport_check_allowed` in transport.c).
        _ if has("transport '") && has("' not allowed") && !matches!(&*doing, "fetch" | "push") => {
            let says = "the server has left out folders or files of a commit: repair or update the server";
            GitError::Failed { repository, doing, says: says.into() }
        }
        // The list of refs is the only one without a limit that a fetch or a push keeps in growing memory.
        _ if is_limited && matches!(&*doing, "fetch" | "push") && has("realloc failed") => {
            GitError::TooManyRefs { repository, doing, says }
        }
        _ if is_limited => GitError::TooLarge { repository, doing, says },
        Some((_, error)) => error(repository, says),
        None => GitError::Failed { repository, doing, says },
    }
}

/// Returns the branch that the server does not have, if git reports one. Git itself must print the line: lines of the
/// server begin with `remote:` or `remote error:`.
fn missing_branch(words: &ForeignWords) -> Option<String> {
    let mut lines = words.lines();
    let (_, shown) = lines.find(|(raw, _)| raw.starts_with("fatal: couldn't find remote ref "))?;
    let branch = shown.rsplit_once(' ').map_or("", |(_, name)| name);
    Some(branch.strip_prefix("refs/heads/").unwrap_or(branch).into())
}

/// Returns the output of git without the text of the server. After an HTTP error, git prints the whole answer in lines
/// with `remote:` (`show_http_message` in remote-curl.c). So the author of a Pipeline could read the answers of any
/// server that Sluice reaches, by naming it as a repository.
fn without_text_of_server(words: &ForeignWords) -> String {
    // A secret may be a part of the mark.
    let own = words.lines().filter(|(raw, _)| !raw.starts_with(OF_SERVER));
    own.map(|(_, shown)| shown).collect::<Vec<_>>().join("\n")
}

/// Returns the lines of git's output that say what failed, short enough for a condition.
pub(super) fn essence(stderr: &str) -> String {
    let noise = [
        "warning:",
        "gpg: WARNING",
        "Please make sure",
        "and the repository exists",
        "hint:",
        "@@@",
        // The advice of ssh about temporary files of Sluice.
        "Add correct host key",
        "Offending",
        "remove with:",
        "ssh-keygen -f",
    ];
    let clean = |line: &str| line.chars().filter(|c| !is_unsafe(*c)).collect::<String>().trim().to_string();
    let lines: Vec<String> = stderr
        .lines()
        .map(clean)
        .filter(|line| !line.is_empty() && !noise.iter().any(|n| line.starts_with(n)))
        .collect();
    match lines.join("; ") {
        text if text.is_empty() => "it printed nothing".into(),
        text => ends(&text),
    }
}

/// Returns the beginning and the end of a text: a hook prints first what it rejects, and git prints last what failed.
fn ends(text: &str) -> String {
    const BEGINNING: usize = 400;
    const END: usize = 250;
    let count = text.chars().count();
    if count <= BEGINNING + END {
        return text.into();
    }
    let (first, last): (String, String) =
        (text.chars().take(BEGINNING).collect(), text.chars().skip(count - END).collect());
    format!("{first} … {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_of_the_output_of_a_hook_are_kept() {
        let advice: String = (0..40).map(|nth| format!("line {nth} of what the hook advises\n")).collect();
        let says =
            essence(&format!("error: commits need a ticket\n{advice}[remote rejected] (hook declined)"));
        assert!(says.starts_with("error: commits need a ticket; line 0"), "{says}");
        assert!(
            says.contains(" … ")
                && says.ends_with("line 39 of what the hook advises; [remote rejected] (hook declined)"),
            "{says}"
        );
        assert!(says.chars().count() < 700);
        // A few lines are kept as they are, also more than four.
        assert_eq!(essence("a\nb\nc\nd\ne\nf\n"), "a; b; c; d; e; f");
        // Letters of several bytes are counted once, and never cut in two.
        assert!(essence(&"é".repeat(1000)).chars().count() == 400 + 3 + 250);
    }

    #[test]
    fn the_output_of_a_hook_has_no_character_that_reorders_or_hides_text() {
        assert_eq!(essence("remote: no\u{202e} to\u{7}ken\u{200b}\n"), "remote: no token");
    }

    #[test]
    fn a_secret_with_an_invisible_character_in_it_is_not_shown() {
        let words = stderr("remote: open\u{200b}sesame\n".into(), |text| text.replace("opensesame", "***"));
        assert_eq!(words.shown, "remote: ***");
    }

    #[test]
    fn only_the_memory_of_this_machine_counts() {
        for (line, is) in [
            ("fatal: Out of memory, malloc failed (tried to allocate 9 bytes)", true),
            ("error: mmap failed: Cannot allocate memory", true),
            ("out of memory: all runs of git together took more than Sluice gives them", true),
            ("fatal: unable to access 'https://git.example.com/a/b.git/': Out of memory", true),
            ("remote: fatal: Out of memory, malloc failed", false),
            ("fatal: remote error: out of memory", false),
            ("fatal: invalid ls-refs response: out of memory", false),
            ("fatal: expected 'packfile', received 'out of memory'", false),
            ("fatal: protocol error: unexpected 'out of memory'", false),
            ("error: remote unpack failed: Cannot allocate memory", false),
            ("error: failed to push some refs", false),
        ] {
            let words = stderr(format!("Cloning into 'x'...\n{line}\n"), str::to_string);
            assert_eq!(is_out_of_memory(&words), is, "{line}");
        }
    }

    #[test]
    fn endless_refs_are_named() {
        let of = |doing| {
            let words = stderr("fatal: Out of memory, realloc failed".into(), str::to_string);
            let error = read("http://h/a/b", doing, &words);
            (error.reason(), error.to_string())
        };
        assert_eq!(of("fetch").0, "RepositoryTooLarge");
        assert!(
            of("fetch").1.contains("announces too many branches, tags and other refs"),
            "{}",
            of("fetch").1
        );
        assert!(!of("ls-tree").1.contains("refs"), "{}", of("ls-tree").1);
    }

    #[test]
    fn a_missing_branch_is_named_by_git_and_not_by_the_server() {
        let read = |says: &str| read("r", "fetch", &stderr(says.into(), str::to_string));
        let GitError::NoBranch { branch, .. } = read("fatal: couldn't find remote ref refs/heads/Prod")
        else {
            panic!()
        };
        assert_eq!(branch, "Prod");
        // The branch is shown as it is written in the pipeline.
        let error = read("fatal: couldn't find remote ref refs/heads/refs/heads/main");
        assert!(error.to_string().contains("no branch \"refs/heads/main\";"), "{error}");
        for says in ["fatal: remote error: couldn't find remote ref x", "remote: couldn't find remote ref x"]
        {
            assert_eq!(read(says).reason(), "GitFailed", "{says}");
        }
    }

    #[test]
    fn messages_of_git_have_their_reason() {
        for (says, reason) in [
            ("fatal: Authentication failed for 'http://h/a/b/'", "AuthenticationFailed"),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                "AuthenticationFailed",
            ),
            (
                "fatal: unable to access 'http://h/': The requested URL returned error: 403",
                "AuthenticationFailed",
            ),
            ("remote: Not found.\nfatal: repository 'http://h/a/b/' not found", "RepositoryNotFound"),
            ("fatal: couldn't find remote ref refs/heads/main", "BranchNotFound"),
            ("fatal: unable to access 'https://h/': Could not resolve host: h", "Unreachable"),
            ("fatal: unable to access 'https://h/': The requested URL returned error: 502", "Unreachable"),
            (
                "fatal: unable to access 'https://h/': SSL certificate problem: self signed",
                "CertificateInvalid",
            ),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                "HostKeyUnknown",
            ),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote",
                "AuthenticationFailed",
            ),
            (
                "Load key \"/tmp/x\": error in libcrypto\ngit@h: Permission denied (publickey).",
                "IdentityInvalid",
            ),
            ("error: cannot run ssh: No such file or directory\nfatal: unable to fork", "GitUnavailable"),
            ("No user exists for uid 65532\nfatal: Could not read from remote", "GitUnavailable"),
            ("fatal: Out of memory, malloc failed (tried to allocate 9 bytes)", "RepositoryTooLarge"),
            ("error: index-pack died of signal 25", "RepositoryTooLarge"),
            ("fatal: bad object 123", "GitFailed"),
            ("", "GitFailed"),
        ] {
            let words = stderr(says.into(), str::to_string);
            assert_eq!(read("r", "fetch", &words).reason(), reason, "{says}");
            // Whatever the secret removes from it.
            for secret in ["r", "a", "t", "repository", "fatal", "error"] {
                let words = stderr(says.into(), |text| text.replace(secret, "***"));
                let error = read("r", "fetch", &words);
                assert_eq!(error.reason(), reason, "{says}");
            }
        }
    }
}
