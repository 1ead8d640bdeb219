//! The number of writes, as counted by the API server.

use anyhow::Result;
use kube::Client;
use std::collections::BTreeMap;
use std::fmt;

/// The number of writes of each resource, with any answer, without leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes(BTreeMap<String, u64>);

const WRITING: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

impl Writes {
    /// Returns all writes since the API server started.
    ///
    /// # Errors
    /// The metrics of the API server cannot be read.
    pub async fn total(client: &Client) -> Result<Writes> {
        let request = axum::http::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await?;
        let mut writes = BTreeMap::new();
        for line in text.lines().filter(|l| l.starts_with("apiserver_request_total{")) {
            let Some((labels, count)) = line.rsplit_once(' ') else { continue };
            if !WRITING.contains(&label(labels, "verb")) || label(labels, "resource") == "leases" {
                continue;
            }
            let part = label(labels, "subresource");
            let slash = if part.is_empty() { "" } else { "/" };
            let resource = format!("{}{slash}{part}", label(labels, "resource"));
            *writes.entry(resource).or_default() += count.parse::<f64>().unwrap_or_default() as u64;
        }
        Ok(Writes(writes))
    }

    /// Returns the writes since `earlier`, without the resources in `own`.
    pub fn since(&self, earlier: &Writes, own: &[&str]) -> Writes {
        let new = self.0.iter().map(|(what, n)| (what.clone(), n - earlier.0.get(what).unwrap_or(&0)));
        Writes(new.filter(|(what, n)| *n > 0 && !own.contains(&what.as_str())).collect())
    }

    /// Returns the number of all writes.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(what, n)| format!("{n} {what}")).collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let start = format!("{name}=\"");
    let found = labels.split_once(&format!(",{start}")).or_else(|| labels.split_once(&format!("{{{start}")));
    found.and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default()
}
