//! Why a cluster or a kind cannot be read, as a sentence that says what to do.

use std::error::Error;

use super::limit::TooLarge;
use super::relist::{self, HeldBack};
use crate::observe::facts::{ClusterKey, Kind};

/// What kind of trouble it is.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The server does not know who we are.
    Unauthorized(String),
    /// We may not.
    Forbidden(String),
    /// There is no such thing.
    NotFound,
    /// The server was not reached, or did not answer.
    Unreachable(String),
    /// It sends more than Sluice reads.
    TooLarge(TooLarge),
    /// It is listed less often, since its watches have ended again and again.
    HeldBack,
    /// Anything else that the server said.
    Other(String),
}

impl From<&kube::Error> for ReadError {
    fn from(error: &kube::Error) -> Self {
        if let Some(what) = TooLarge::from_error(error) {
            return ReadError::TooLarge(what);
        }
        if relist::is_held_back(error) {
            return ReadError::HeldBack;
        }
        match error {
            kube::Error::Api(status) => match status.code {
                401 => ReadError::Unauthorized(brief(&status.message)),
                403 => ReadError::Forbidden(brief(&status.message)),
                404 => ReadError::NotFound,
                code => ReadError::Other(format!("{} ({code})", brief(&status.message))),
            },
            error => ReadError::Unreachable(brief(&root(error))),
        }
    }
}

/// The error in a log line or a sentence. That of the client shows the status of an API error a second time, as Rust
/// writes it.
pub fn api_error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", brief(&status.message), status.code),
        error => brief(&error.to_string()),
    }
}

/// The longest that a server's own words may be: what answers may be no Kubernetes at all, and send a
/// whole page.
const LONGEST: usize = 300;

/// The first line of what was said, without control characters, which a terminal would obey.
fn brief(said: &str) -> String {
    let line = said.trim().lines().next().unwrap_or_default().trim_end();
    let line: String = line.chars().filter(|c| !c.is_control()).take(LONGEST + 1).collect();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// The innermost of an error's reasons, which is the one that tells something.
fn root(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Why a cluster cannot be used, and what to do.
pub fn cluster_message(key: &ClusterKey, cause: &ReadError) -> String {
    let secret = match key {
        ClusterKey::Local => "the controller's kubeconfig or service account".to_string(),
        ClusterKey::Remote { .. } => "the kubeconfig in its Secret".into(),
    };
    match cause {
        ReadError::Unauthorized(said) => format!(
            "{key} does not accept the credentials (401 {said}): they may have expired; renew {secret}"
        ),
        ReadError::Forbidden(said) => {
            format!("{key} refuses access: {said}; grant it to the user of {secret}")
        }
        ReadError::Unreachable(said) if is_certificate(said) => format!(
            "the certificate of {key} is not accepted ({said}): renew it, or correct certificate-authority-data \
             in {secret}"
        ),
        ReadError::Unreachable(said) if said.contains("refused") => format!(
            "{key} refuses the connection ({said}): start its API server, or correct the address in {secret}"
        ),
        ReadError::Unreachable(said) if said.contains("lookup") => format!(
            "the address of {key} is not known here ({said}): correct it in {secret}, or the cluster's DNS"
        ),
        ReadError::Unreachable(said) => format!(
            "{key} cannot be reached ({said}): look whether its API server runs and the network lets us through"
        ),
        ReadError::TooLarge(what) => format!(
            "{key} is too large: {what}; look whether a Kubernetes API server answers there, and correct the address \
             in {secret}"
        ),
        ReadError::NotFound => format!("{key} has no Kubernetes API at its address: correct it in {secret}"),
        ReadError::HeldBack => format!(
            "{key} {HeldBack}; look at the log of its API server, and at proxies on the way to it, for why watches end"
        ),
        ReadError::Other(said) => format!("{key} answers with an error: {said}"),
    }
}

fn is_certificate(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("certificate") || said.contains("unknownissuer") || said.contains("notvalid")
}

/// Why a kind cannot be read, and what to do.
pub fn kind_message(key: &ClusterKey, kind: Kind, namespace: Option<&str>, cause: &ReadError) -> String {
    let (group, plural) = kind.resource();
    let place = namespace.map(|n| format!(" in namespace {n}")).unwrap_or_default();
    let user =
        if *key == ClusterKey::Local { "the controller's own user" } else { "the user of its kubeconfig" };
    match cause {
        ReadError::Forbidden(_) => format!(
            "{key} does not let us read {plural}{place}: grant the verbs get, list and watch on {plural} (API group \
             {group:?}) to {user}"
        ),
        ReadError::TooLarge(what) => format!(
            "{plural}{place} of {key} are too large to watch: {what}; remove what makes so many, or let {user} read \
             {plural} in the targets' namespaces only"
        ),
        cause => format!("{plural}{place} cannot be read: {}", cluster_message(key, cause)),
    }
}
