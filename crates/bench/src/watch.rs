//! A watch that returns the lines of the API server without parsing them. This program runs on the same processors as
//! what it measures, and must use little of them.

use anyhow::{Context, Result, bail};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use kube::Client;
use std::pin::Pin;

/// A watch of one path, from now on.
pub struct Watch {
    client: Client,
    path: String,
    version: String,
    lines: Lines,
}

type Lines = futures::io::Lines<Pin<Box<dyn AsyncBufRead + Send>>>;

impl Watch {
    /// Begins a watch of `path`, for example `/api/v1/namespaces`, without the existing objects.
    ///
    /// # Errors
    /// The API server rejects it.
    pub async fn begin(client: &Client, path: &str) -> Result<Watch> {
        let list = axum::http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let list = client.request_text(list).await?;
        let version = field(&list, VERSION).context("the list has no version")?.to_owned();
        let lines = lines(client, path, &version).await?;
        Ok(Watch { client: client.clone(), path: path.to_owned(), version, lines })
    }

    /// Returns the line of the next event. If the API server ends the watch, because it is short of processor time, the
    /// watch continues at the last event.
    ///
    /// # Errors
    /// The API server no longer has the next event.
    pub async fn next(&mut self) -> Result<String> {
        loop {
            if let Some(line) = self.lines.next().await {
                let line = line?;
                if field(&line, "\"type\":\"") == Some("ERROR") {
                    bail!("a watch of {} failed: {line}", self.path);
                }
                if let Some(version) = field(&line, VERSION) {
                    version.clone_into(&mut self.version);
                }
                return Ok(line);
            }
            self.lines = lines(&self.client, &self.path, &self.version).await?;
        }
    }
}

const VERSION: &str = "\"resourceVersion\":\"";

async fn lines(client: &Client, path: &str, version: &str) -> Result<Lines> {
    let url = format!("{path}?watch=true&timeoutSeconds=3600&resourceVersion={version}");
    let stream = client.request_stream(axum::http::Request::get(url).body(Vec::new())?).await?;
    let stream: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(stream);
    Ok(stream.lines())
}

/// Returns the part of a text between `key` and the next quotation mark.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.split('"').next()
}
