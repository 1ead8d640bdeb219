//! A call to a stand-in.

use axum::http::{HeaderMap, Method};
use serde_json::Value;

use super::Rejection;

/// Which change request.
pub(super) enum PullSelector {
    Number(u64),
    /// By the id of its head, or by a branch or tag of that name, which is preferred.
    Head(String),
    /// By the id of its head.
    Id(String),
    /// The newest.
    Base,
}

/// A call as it came.
pub(super) struct Request {
    pub(super) method: Method,
    /// What comes after the repository's place, part by part.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) headers: HeaderMap,
}

impl Request {
    pub(super) fn parts(&self) -> (&str, Vec<&str>) {
        (self.method.as_str(), self.path.iter().map(String::as_str).collect())
    }

    pub(super) fn query(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(super) fn number(&self, key: &str, usual: usize) -> usize {
        self.query(key).map_or(usual, |v| v.parse().unwrap())
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

    /// Fails where the body has what a forge does not know.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Rejection<'static>> {
        let fields = self.body.as_object().ok_or(Rejection::Bad("the body is no object"))?;
        match fields.keys().all(|key| known.contains(&key.as_str())) {
            true => Ok(()),
            false => Err(Rejection::Bad("the body has a field that nobody knows")),
        }
    }
}
