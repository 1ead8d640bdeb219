//! A watch that costs next to nothing: lines as the API server sends them, not one of them parsed.
//! This program runs beside what it measures, and must not take its processor.

use anyhow::{Context, Result, bail};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use kube::Client;
use std::pin::Pin;

/// A watch of one kind on the whole cluster, from now on.
pub struct Watch {
    client: Client,
    path: String,
    version: String,
    lines: Lines,
}

type Lines = futures::io::Lines<Pin<Box<dyn AsyncBufRead + Send>>>;

impl Watch {
    /// Begins a watch of `path`, for example `/api/v1/namespaces`; what was there before is not told.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn begin(client: &Client, path: &str) -> Result<Watch> {
        let list = axum::http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let list = client.request_text(list).await?;
        let version = field(&list, VERSION).context("a list without a version")?.to_owned();
        let lines = lines(client, path, &version).await?;
        Ok(Watch { client: client.clone(), path: path.to_owned(), version, lines })
    }

    /// The next event, as it came. An API server that is short of processor time ends watches; then
    /// this one goes on from where it was.
    ///
    /// # Errors
    /// When the API server does not know any more what came next.
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

/// What stands in a text after `key`, up to the next quotation mark.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.split('"').next()
}
