//! Errors of reading a cluster, and the messages that say what to do about them.

use std::error::Error;
use std::io;

use http_body_util::LengthLimitError;

use super::limit::MAX_ERROR_BYTES;
use super::relist::{self, HeldBack};
use super::tls_error::{self, RefusedCertificate};
use super::too_large::TooLarge;
use sluice_core::fleet::{ClusterKey, Kind};
use sluice_core::value_check::is_unsafe;

/// Why a cluster, or a kind of objects on it, cannot be read. The texts are those of the server or the client.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The server does not accept the credentials (401).
    Unauthorized(String),
    /// The user has no permission (403).
    Forbidden(String),
    /// The path does not exist (404).
    NotFound,
    /// No connection, or no answer.
    Unreachable(String),
    /// The server answers, and its answer cannot be read.
    Unreadable(String),
    /// The client does not accept the server's certificate.
    Certificate(RefusedCertificate),
    /// The server sends more than Sluice reads.
    TooLarge(TooLarge),
    /// Sluice waits before it lists the objects again, because their watches have ended too often.
    HeldBack,
    /// Any other status.
    Other(String),
}

impl From<&kube::Error> for ReadError {
    fn from(error: &kube::Error) -> Self {
        if let Some(limit) = TooLarge::from_error(error) {
            return ReadError::TooLarge(limit);
        }
        if is_error_too_large(error) {
            return ReadError::Unreadable(error_too_large());
        }
        if relist::is_held_back(error) {
            return ReadError::HeldBack;
        }
        match error {
            kube::Error::Api(status) => match status.code {
                401 => ReadError::Unauthorized(message_of(status)),
                403 => ReadError::Forbidden(message_of(status)),
                404 => ReadError::NotFound,
                NO_CODE => ReadError::Other(message_of(status)),
                code => ReadError::Other(format!("{} ({code})", message_of(status))),
            },
            // The parser quotes what it reads.
            kube::Error::SerdeError(error) => ReadError::Other(format!(
                "no JSON of Kubernetes: line {}, column {}",
                error.line(),
                error.column()
            )),
            error => match tls_error::find(error).and_then(tls_error::refused_certificate) {
                Some(RefusedCertificate { cause, remedy }) => {
                    ReadError::Certificate(RefusedCertificate { cause: first_line(&cause), remedy })
                }
                None if is_unreadable(error) => ReadError::Unreadable(no_connection(error)),
                None => ReadError::Unreachable(no_connection(error)),
            },
        }
    }
}

/// Whether the body of an answer with an error status has more bytes than Sluice reads.
fn is_error_too_large(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

fn error_too_large() -> String {
    format!("the text of an error has more than {} KiB", MAX_ERROR_BYTES >> 10)
}

/// Whether an answer has arrived that cannot be read: it is not compressed as it says, or it is not a complete list. If the
/// connection breaks, the error is one of hyper.
fn is_unreadable(error: &kube::Error) -> bool {
    let kube::Error::ReadEvents(error) = error else { return false };
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<hyper::Error>() {
            return false;
        }
        // The source of an I/O error is the source of the error in it.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    error.kind() != io::ErrorKind::TimedOut
}

/// The reason that the client gives to an answer that is no error of Kubernetes; its message is then the whole answer
/// (`handle_api_errors` of kube-client 5.0).
const NO_STATUS: &str = "Failed to parse error data";

/// The code of an error whose JSON is no status of Kubernetes, such as `{}`.
const NO_CODE: u16 = 0;

/// Returns the message of an API server. The answer of a server that is none is not shown: who names it as a cluster could
/// read any server that Sluice reaches.
fn message_of(status: &kube::core::Status) -> String {
    if status.reason == NO_STATUS || status.code == NO_CODE {
        return "the answer is not of a Kubernetes API".into();
    }
    first_line(&status.message)
}

/// Returns an error of the client for logs and messages: the server's message and the status code. The client's
/// own text of an API error repeats the whole status in Rust's debug format.
pub fn api_error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", first_line(&status.message), status.code),
        error if is_error_too_large(error) => error_too_large(),
        // The client's own text says only that it has no connection, and not why.
        error @ kube::Error::Service(_) => {
            format!("no connection ({})", no_connection(error))
        }
        error => first_line(&error.to_string()),
    }
}

/// The most characters that are kept of a server's message. The server may be a proxy that answers with a whole
/// page.
const MAX_MESSAGE_CHARS: usize = 300;

/// Returns the first line of a message without characters that a terminal would interpret or hide.
fn first_line(message: &str) -> String {
    let line = message.trim().lines().next().unwrap_or_default().trim_end();
    let line: String = line.chars().filter(|c| !is_unsafe(*c)).take(MAX_MESSAGE_CHARS + 1).collect();
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Returns why there is no connection: the error of TLS, or the innermost source. The outer ones only say that the call
/// failed.
fn no_connection(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = tls_error::find(error) {
        return first_line(&match tls_error::refused_certificate(error) {
            Some(refused) => format!("the certificate of the server is not valid: {}", refused.cause),
            None => tls_error::message(error),
        });
    }
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    first_line(&innermost.to_string())
}

/// Returns why a cluster cannot be used, and what to do.
pub fn cluster_message(key: &ClusterKey, error: &ReadError) -> String {
    let secret = match key {
        ClusterKey::Local => "the controller's kubeconfig or service account".to_string(),
        ClusterKey::Remote { .. } => "the kubeconfig in its Secret".into(),
    };
    match error {
        ReadError::Unauthorized(message) => format!(
            "{key} does not accept the credentials (401 {message}): they may have expired; renew {secret}"
        ),
        ReadError::Forbidden(message) => {
            format!("{key} denies access: {message}; grant it to the user of {secret}")
        }
        ReadError::Certificate(RefusedCertificate { cause, remedy }) => {
            format!("the certificate of {key} is not valid: {cause}; {}", remedy.sentence(&secret))
        }
        ReadError::Unreachable(message) if message.contains("refused") => format!(
            "{key} refuses the connection ({message}): start its API server, or correct the address in {secret}"
        ),
        ReadError::Unreachable(message) if message.contains("lookup") => format!(
            "the address of {key} cannot be resolved ({message}): correct it in {secret}, or the cluster's DNS"
        ),
        ReadError::Unreachable(message) => format!(
            "{key} cannot be reached ({message}): check that its API server runs, and that the network allows the \
             connection"
        ),
        ReadError::Unreadable(message) => format!(
            "the answer of {key} cannot be read ({message}): look for the cause at its API server, and at proxies in \
             front of it"
        ),
        ReadError::TooLarge(limit) => format!(
            "{key} is too large: {limit}; check that a Kubernetes API server answers there, and correct the address \
             in {secret}"
        ),
        ReadError::NotFound => format!("{key} has no Kubernetes API at its address: correct it in {secret}"),
        ReadError::HeldBack => format!(
            "{key} {HeldBack}; look for the cause in the log of its API server and of proxies on the way to it"
        ),
        ReadError::Other(message) => format!("{key} answers with an error: {message}"),
    }
}

/// Returns why a kind cannot be read in a namespace, or in all, and what to do.
pub fn kind_message(key: &ClusterKey, kind: Kind, namespace: Option<&str>, error: &ReadError) -> String {
    let (group, plural) = kind.resource();
    let scope = namespace.map(|n| format!(" in namespace {n}")).unwrap_or_default();
    let user =
        if *key == ClusterKey::Local { "the controller's own user" } else { "the user of its kubeconfig" };
    match error {
        ReadError::Forbidden(_) => format!(
            "{key} forbids Sluice to read {plural}{scope}: grant the verbs get, list and watch on {plural} (API group \
             {group:?}) to {user}"
        ),
        ReadError::TooLarge(TooLarge::Namespace) => format!(
            "{plural}{scope} of {key} are too large to watch: {}; reduce them, or raise --observed-memory",
            TooLarge::Namespace
        ),
        ReadError::TooLarge(TooLarge::BothLists) => format!(
            "{plural}{scope} of {key} are being listed again, and {}: wait for the list, or raise --observed-memory",
            TooLarge::BothLists
        ),
        ReadError::TooLarge(limit) => format!(
            "{plural}{scope} of {key} are too large to watch: {limit}; reduce them, or allow {user} to read {plural} \
             in the targets' namespaces only"
        ),
        error => format!("{plural}{scope} cannot be read: {}", cluster_message(key, error)),
    }
}

/// Returns why the Secret with the kubeconfig of a cluster cannot be read, and what to do.
pub fn secret_message(key: &ClusterKey, error: &kube::Error) -> String {
    match ReadError::from(error) {
        ReadError::Forbidden(message) => format!(
            "{message}; grant the controller get, list and watch on that Secret, which holds the kubeconfig of {key}"
        ),
        other => cluster_message(&ClusterKey::Local, &other),
    }
}
