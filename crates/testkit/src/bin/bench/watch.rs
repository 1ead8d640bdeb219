//! A watch that costs next to nothing: lines as the API server sends them, not one of them parsed.
//! This program runs beside what it measures, and must not take its processor.

use anyhow::{Context, Result};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use kube::Client;
use std::pin::Pin;

/// A watch of one kind on the whole cluster, from now on.
pub struct Watch {
    lines: futures::io::Lines<Pin<Box<dyn AsyncBufRead + Send>>>,
}

impl Watch {
    /// Begins a watch of `path`, for example `/api/v1/namespaces`; what was there before is not told.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn begin(client: &Client, path: &str) -> Result<Watch> {
        let list = axum::http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let list = client.request_text(list).await?;
        let version = field(&list, "\"resourceVersion\":\"").context("a list without a version")?;
        let url = format!("{path}?watch=true&timeoutSeconds=3600&resourceVersion={version}");
        let stream = client.request_stream(axum::http::Request::get(url).body(Vec::new())?).await?;
        let stream: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(stream);
        Ok(Watch { lines: stream.lines() })
    }

    /// The next event, as it came.
    ///
    /// # Errors
    /// When the API server ends the watch.
    pub async fn next(&mut self) -> Result<String> {
        let line = self.lines.next().await.context("the API server ended a watch")?;
        Ok(line?)
    }
}

/// What stands in a text after `key`, up to the next quotation mark.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.split('"').next()
}
