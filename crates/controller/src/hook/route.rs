//! What a path names. Names in Kubernetes need no escapes: a path that has some names nothing.

use crate::key::PipelineKey;

/// A place of the hook server: a pipeline, and what is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which pipeline.
    pub pipeline: PipelineKey,
    /// What is called.
    pub endpoint: Endpoint,
}

/// What may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An event of Flux from an environment.
    Promotion {
        /// Which environment.
        environment: String,
    },
    /// A revision that a CI system asks for in the first environment.
    Trigger,
    /// What the other side of a webhook says has become of a promotion.
    Callback {
        /// Which promotion.
        promotion: String,
    },
    /// Something became of a change request, a forge says.
    Forge,
    /// An approval by the holder of a key.
    Approval {
        /// The environment that is promoted into.
        environment: String,
        /// The revision.
        revision: String,
    },
}

impl Endpoint {
    /// One word for metrics.
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

impl Place {
    /// What a path names.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        if let Some(rest) = path.strip_prefix("approval/") {
            return Self::of_approval(rest);
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

impl Place {
    /// The place of an approval. A revision may have signs that a path has escaped, and slashes: the rest of the path
    /// is the revision. It is compared with revisions and used for nothing else.
    fn of_approval(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.splitn(4, '/').collect();
        let [namespace, name, environment, revision] = *parts else { return None };
        let revision = unescaped(revision)?;
        let good = !revision.is_empty()
            && revision.len() <= LONGEST_REVISION
            && !revision.chars().any(char::is_control);
        let named = [namespace, name, environment].iter().all(|part| is_name(part));
        let endpoint = Endpoint::Approval { environment: environment.into(), revision };
        let pipeline = PipelineKey { namespace: namespace.into(), name: name.into() };
        (good && named).then_some(Self { pipeline, endpoint })
    }
}

/// The longest revision in a path, in bytes.
const LONGEST_REVISION: usize = 1024;

/// The text that a part of a path stands for (RFC 3986, section 2.1).
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(good) && !text.starts_with('.')
}
