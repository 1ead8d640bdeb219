//! What a path names. Names in Kubernetes need no escapes: a path that has some names nothing.

use crate::intake::PipelineKey;

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
}

impl Endpoint {
    /// One word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Endpoint::Promotion { .. } => "promotion",
            Endpoint::Trigger => "trigger",
            Endpoint::Callback { .. } => "callback",
            Endpoint::Forge => "forge",
        }
    }
}

impl Place {
    /// What a path names.
    pub fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
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

fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(good) && !text.starts_with('.')
}
