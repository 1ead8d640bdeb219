//! Calls to a stand-in.

use axum::http::{HeaderMap, Method};
use serde_json::Value;

use super::rejection::CallRejection;

/// Selects a change request.
pub(super) enum PullSelector {
    Number(u64),
    /// By its head commit. A branch or tag with that name is preferred.
    Head(String),
    /// By its head commit.
    Id(String),
    /// The newest one.
    Base,
}

/// A decoded call.
pub(super) struct ForgeRequest {
    pub(super) method: Method,
    /// The parts of the path after that of the repository.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) headers: HeaderMap,
}

impl ForgeRequest {
    pub(super) fn parts(&self) -> (&str, Vec<&str>) {
        (self.method.as_str(), self.path.iter().map(String::as_str).collect())
    }

    pub(super) fn query(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(super) fn number(&self, key: &str, default: usize) -> usize {
        self.query(key).map_or(default, |v| v.parse().unwrap())
    }

    /// A text of the body.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.body.pointer(path)?.as_str().map(String::from)
    }

    /// The texts of a list in the body.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        let list = self.body[key].as_array().into_iter().flatten();
        list.map(|one| one.as_str().unwrap().to_string()).collect()
    }

    /// Rejects a body with other fields.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), CallRejection<'static>> {
        let fields = self.body.as_object().ok_or(CallRejection::Bad("the body is not an object"))?;
        match fields.keys().all(|key| known.contains(&key.as_str())) {
            true => Ok(()),
            false => Err(CallRejection::Bad("the body has an unknown field")),
        }
    }
}
