//! Errors of git, recognized by its messages in the C locale, with what to do about them.

use std::time::Duration;

use crate::retry::Retry;

/// Why git failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GitError {
    #[error("cannot run {program}: {source}; {install}")]
    Program { program: &'static str, install: &'static str, source: std::io::Error },

    #[error(
        "{repository}: ssh cannot run here ({says}); install OpenSSH's client beside Sluice, and let the user \
         that Sluice runs as stand in /etc/passwd"
    )]
    NoSsh { repository: String, says: String },

    #[error("{repository}: git {doing} did not end within {after:?}")]
    Timeout { repository: String, doing: String, after: Duration },

    #[error(
        "{repository}: the server does not accept the credentials ({says}); check username and password \
         (or token, or identity) in the Secret, and that they may write"
    )]
    Authentication { repository: String, says: String },

    #[error(
        "{repository}: there is no such repository, or the credentials may not see it ({says}); check the \
         address and the Secret"
    )]
    NoRepository { repository: String, says: String },

    #[error("{repository}: there is no branch {branch:?}; create it or correct the pipeline")]
    NoBranch { repository: String, branch: String },

    #[error("{repository}: cannot reach the server: {says}")]
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
        "{repository}: the server sends on to another address ({says}); write that address into the pipeline"
    )]
    Redirected { repository: String, says: String },

    #[error("{repository}: the server asks to call less often ({says})")]
    TooManyCalls { repository: String, says: String },

    #[error("{repository}: the push to {branch} was refused: {says}")]
    Rejected { repository: String, branch: String, says: String },

    #[error("{repository}: {branch} was changed by others {tries} times while a commit was made for it")]
    Contended { repository: String, branch: String, tries: u32 },

    #[error("{repository}: the Secret has no {key}, which this address needs")]
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
        "{repository}: the newest commit of the branch {branch} is not read: {says}; delete the branch {branch}, and \
         Sluice makes it again"
    )]
    HeadTooLarge { repository: String, branch: String, says: String },

    #[error(
        "{repository}: git {doing} was stopped: {says}; the repository announces too many branches, tags and other \
         refs: delete those that nobody needs, or promote into another repository"
    )]
    TooManyRefs { repository: String, doing: String, says: String },

    #[error(
        "{repository}: credentials are not sent over plain http, where everybody on the way can read them; \
         write an https or ssh address, or start the controller with --insecure-git-http"
    )]
    PlainHttp { repository: String },

    #[error("cannot use the cache of {repository}: {says}")]
    Cache { repository: String, says: String },

    #[error("{repository}: git {doing} failed: {says}")]
    Failed { repository: String, doing: String, says: String },
}

impl GitError {
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
            GitError::Rejected { .. } => "PushRejected",
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

/// Phrases of git, curl and ssh, and their meaning. The first match counts.
const PHRASES: &[(&str, Kind)] = &[
    // Signals 24 and 25: the limits for processor time and for the size of a file.
    ("out of memory", Kind::TooLarge),
    ("cannot allocate memory", Kind::TooLarge),
    ("died of signal 24", Kind::TooLarge),
    ("died of signal 25", Kind::TooLarge),
    ("file too large", Kind::TooLarge),
    // A tree in a tree in a tree: git has no more stack.
    ("died of signal 11", Kind::TooLarge),
    ("cannot run ssh", Kind::NoSsh),
    ("ssh: not found", Kind::NoSsh),
    ("no user exists for uid", Kind::NoSsh),
    ("host key verification failed", Kind::HostKey),
    ("remote host identification has changed", Kind::HostKey),
    ("load key \"", Kind::Identity),
    ("permission denied (", Kind::Authentication),
    ("too many authentication failures", Kind::Authentication),
    ("ssl certificate problem", Kind::Certificate),
    ("server certificate verification failed", Kind::Certificate),
    ("certificate subject name", Kind::Certificate),
    ("no alternative certificate subject name", Kind::Certificate),
    ("error setting certificate", Kind::Certificate),
    ("unable to update url base from redirection", Kind::Redirected),
    ("returned error: 301", Kind::Redirected),
    ("returned error: 302", Kind::Redirected),
    ("returned error: 307", Kind::Redirected),
    ("returned error: 308", Kind::Redirected),
    ("returned error: 429", Kind::TooManyCalls),
    ("returned error: 401", Kind::Authentication),
    ("returned error: 403", Kind::Authentication),
    ("authentication failed", Kind::Authentication),
    ("could not read username", Kind::Authentication),
    ("could not read password", Kind::Authentication),
    ("returned error: 404", Kind::NoRepository),
    ("returned error: 5", Kind::Unreachable),
    ("repository not found", Kind::NoRepository),
    ("does not appear to be a git repository", Kind::NoRepository),
    ("could not be found", Kind::NoRepository),
    ("could not resolve host", Kind::Unreachable),
    ("failed to connect", Kind::Unreachable),
    ("couldn't connect", Kind::Unreachable),
    ("connection refused", Kind::Unreachable),
    ("connection timed out", Kind::Unreachable),
    ("connection reset", Kind::Unreachable),
    ("connection closed", Kind::Unreachable),
    ("operation too slow", Kind::Unreachable),
    ("operation timed out", Kind::Unreachable),
    ("empty reply from server", Kind::Unreachable),
    ("recv failure", Kind::Unreachable),
    ("unable to access", Kind::Unreachable),
    ("hung up unexpectedly", Kind::Unreachable),
    ("unexpected disconnect", Kind::Unreachable),
    ("early eof", Kind::Unreachable),
    ("could not read from remote repository", Kind::Unreachable),
];

const BROKEN_KEY: &str = "cannot be read by ssh: put the whole file into the Secret that ssh-keygen wrote";

#[derive(Clone, Copy)]
enum Kind {
    Authentication,
    NoRepository,
    Unreachable,
    Certificate,
    HostKey,
    Identity,
    NoSsh,
    Redirected,
    TooManyCalls,
    TooLarge,
}

/// The error output of a program.
pub(super) struct Stderr {
    /// Never shown: only the meaning is read from it.
    raw: String,
    /// The same without secrets. If a secret is a common word, the rest is unreadable.
    pub(super) shown: String,
}

impl Stderr {
    pub(super) fn new(raw: String, redact: impl Fn(&str) -> String) -> Self {
        let shown = redact(&raw);
        Stderr { raw, shown }
    }

    /// Whether a process ran out of memory. A server may print that, too.
    pub(super) fn say_out_of_memory(&self) -> bool {
        ["out of memory", "cannot allocate memory"].iter().any(|phrase| self.has(phrase))
    }

    /// Whether it has a phrase, given in lower case.
    pub(super) fn has(&self, phrase: &str) -> bool {
        self.raw.to_ascii_lowercase().contains(phrase)
    }
}

/// The error for the error output of git.
pub(super) fn read(repository: &str, doing: &str, words: &Stderr) -> GitError {
    let (repository, says) = (repository.to_string(), essence(&words.shown));
    let lower = words.raw.to_ascii_lowercase();
    if lower.contains("couldn't find remote ref ") {
        let shown = words.shown.to_ascii_lowercase();
        let rest = shown.split_once("remote ref ").map_or("", |(_, rest)| rest);
        let branch = rest.lines().next().unwrap_or_default().trim();
        return GitError::NoBranch { repository, branch: branch.trim_start_matches("refs/heads/").into() };
    }
    let kind = PHRASES.iter().find(|(phrase, _)| lower.contains(phrase)).map(|(_, kind)| *kind);
    let no_repository = lower.contains("repository '") && lower.contains("' not found");
    match kind {
        _ if no_repository => GitError::NoRepository { repository, says },
        Some(Kind::Authentication) => GitError::Authentication { repository, says },
        Some(Kind::NoRepository) => GitError::NoRepository { repository, says },
        Some(Kind::Unreachable) => GitError::Unreachable { repository, says },
        Some(Kind::Certificate) => GitError::Certificate { repository, says },
        Some(Kind::HostKey) => GitError::HostKey { repository, says },
        Some(Kind::Identity) => GitError::Identity { repository, is: BROKEN_KEY },
        Some(Kind::NoSsh) => GitError::NoSsh { repository, says },
        Some(Kind::Redirected) => GitError::Redirected { repository, says },
        Some(Kind::TooManyCalls) => GitError::TooManyCalls { repository, says },
        // The list of refs is the only one without a limit that a fetch or a push keeps in growing memory.
        Some(Kind::TooLarge) if matches!(doing, "fetch" | "push") && lower.contains("realloc failed") => {
            GitError::TooManyRefs { repository, doing: doing.into(), says }
        }
        Some(Kind::TooLarge) => GitError::TooLarge { repository, doing: doing.into(), says },
        None => GitError::Failed { repository, doing: doing.into(), says },
    }
}

/// The lines of git's output with information, short enough for a condition.
pub(super) fn essence(stderr: &str) -> String {
    let noise = [
        "warning:",
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
    let clean = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_string();
    let lines: Vec<String> = stderr
        .lines()
        .map(clean)
        .filter(|line| !line.is_empty() && !noise.iter().any(|n| line.starts_with(n)))
        .collect();
    match lines.join("; ") {
        text if text.is_empty() => "it said nothing".into(),
        text => ends(&text),
    }
}

/// The beginning and the end of a text: a hook prints first what it rejects, and git prints last what failed.
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
    fn endless_refs_are_named() {
        let of = |doing| {
            let words = Stderr::new("fatal: Out of memory, realloc failed".into(), str::to_string);
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
            let words = Stderr::new(says.into(), str::to_string);
            assert_eq!(read("r", "fetch", &words).reason(), reason, "{says}");
            // Whatever the secret removes from it.
            for secret in ["r", "a", "t", "repository", "fatal", "error"] {
                let words = Stderr::new(says.into(), |text| text.replace(secret, "***"));
                let error = read("r", "fetch", &words);
                assert_eq!(error.reason(), reason, "{says}");
            }
        }
    }
}
