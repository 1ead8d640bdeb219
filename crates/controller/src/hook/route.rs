//! The paths of the hook server. Names in Kubernetes need no escapes, so a path with escapes names nothing, except
//! in the revision of an approval.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::pipeline_key::PipelineKey;

/// What a path names: a pipeline and an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The pipeline that the call is for. It may not exist.
    pub pipeline: PipelineKey,
    /// The endpoint, with the other names in the path.
    pub endpoint: Endpoint,
}

/// An endpoint of the hook server, with the names in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Flux sends an event from an environment.
    Promotion {
        /// The name of the environment.
        environment: String,
    },
    /// A CI system asks for a revision in the first environment.
    Trigger,
    /// The receiver of a webhook reports the result of a promotion.
    Callback {
        /// The name of the promotion.
        promotion: String,
    },
    /// A forge reports an event of a change request.
    Forge,
    /// The holder of an approval key approves a revision for an environment.
    Approval {
        /// The name of the environment.
        environment: String,
        /// The revision, unescaped.
        revision: String,
    },
}

impl Endpoint {
    /// Returns the name of the endpoint, which is its path segment and its label in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Endpoint::Promotion { .. } => "promotion",
            Endpoint::Trigger => "trigger",
            Endpoint::Callback { .. } => "callback",
            Endpoint::Forge => "forge",
            Endpoint::Approval { .. } => "approval",
        }
    }
}

impl Route {
    /// Parses a path; `None` if it names nothing.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        if let Some(rest) = path.strip_prefix("approval/") {
            return Self::parse_approval(rest);
        }
        let parts: Vec<&str> = path.split('/').collect();
        if !parts.iter().all(|part| is_name(part)) {
            return None;
        }
        let (namespace, name, endpoint) = match *parts {
            ["promotion", namespace, name, environment] => {
                (namespace, name, Endpoint::Promotion { environment: environment.into() })
            }
            ["trigger", namespace, name] => (namespace, name, Endpoint::Trigger),
            ["callback", namespace, name, promotion] => {
                (namespace, name, Endpoint::Callback { promotion: promotion.into() })
            }
            ["forge", namespace, name] => (namespace, name, Endpoint::Forge),
            _ => return None,
        };
        Some(Self { pipeline: PipelineKey { namespace: namespace.into(), name: name.into() }, endpoint })
    }
}

impl Route {
    /// Parses the path of an approval after `approval/`. The revision is the rest of the path, so it may contain
    /// slashes and escapes. It is compared with revisions and used for nothing else.
    fn parse_approval(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.splitn(4, '/').collect();
        let [namespace, name, environment, revision] = *parts else { return None };
        let revision = unescape(revision)?;
        let is_revision = !revision.is_empty()
            && revision.len() <= MAX_REVISION_BYTES
            && !revision.chars().any(char::is_control);
        let has_names = [namespace, name, environment].iter().all(|part| is_name(part));
        let endpoint = Endpoint::Approval { environment: environment.into(), revision };
        let pipeline = PipelineKey { namespace: namespace.into(), name: name.into() };
        (is_revision && has_names).then_some(Self { pipeline, endpoint })
    }
}

/// The longest revision in a path, in bytes.
const MAX_REVISION_BYTES: usize = 1024;

/// Decodes the percent-encoding of a part of a path (RFC 3986, section 2.1). `None` if an escape is broken.
fn unescape(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        after.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    // The crate would leave a broken escape as it is.
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(good) && !text.starts_with('.')
}
