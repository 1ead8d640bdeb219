//! Calls to webhooks and to the receiver of events: one POST with a limit on time and size, without redirects, without a
//! connection pool and without retries by the client.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};

use crate::clock;
use crate::foreign_text::{clean, message};
use crate::http_client::{HttpClients, last_cause};
use crate::public_address::{PublicResolver, is_private_address_error};
use crate::retry_after::retry_after;

/// How long a call may take, unless a run of git may take less.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the body of a reply that is no success may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of such a body that are read.
const MAX_BODY_BYTES: usize = 4096;
/// The most characters of a cause that are shown.
const MAX_CAUSE_CHARS: usize = 300;

/// The HTTP clients for these calls.
#[derive(Debug)]
pub(crate) struct OutgoingHttp {
    pub(crate) timeout: Duration,
    clients: HttpClients,
}

/// A reply: its status, when to call again if it says so, and its body if it is no success.
pub(crate) struct PostReply {
    pub(crate) status: u16,
    pub(crate) until: Option<Timestamp>,
    body: String,
}

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum NoReply {
    Timeout,
    /// There was no connection, so nothing can have arrived.
    NoConnection(String),
    Broken(String),
    Certificate(String),
    PrivateAddress,
}

impl OutgoingHttp {
    pub(crate) fn new(timeout: Duration) -> Self {
        OutgoingHttp { timeout: timeout.min(CALL_TIMEOUT), clients: HttpClients::default() }
    }

    /// A client that also trusts the certificates of a caFile. A guarded client resolves names to public addresses only.
    pub(crate) fn client(&self, ca_file: Option<&[u8]>, guarded: bool) -> Result<Client, String> {
        let connect_timeout = self.timeout.min(CONNECT_TIMEOUT);
        let variant = if guarded { "guarded" } else { "" };
        self.clients.get(ca_file, variant, &["http/1.1"], self.timeout, |builder| {
            let builder = builder
                .http1_only()
                // A proxy would resolve the name itself, to any address.
                .no_proxy()
                .retry(reqwest::retry::never())
                .pool_max_idle_per_host(0)
                .connect_timeout(connect_timeout);
            if guarded { builder.dns_resolver(Arc::new(PublicResolver)) } else { builder }
        })
    }
}

/// Sends one body.
pub(crate) async fn post(
    client: &Client,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<PostReply, NoReply> {
    let response = match client.post(url).headers(headers).body(body).send().await {
        Ok(response) => response,
        Err(error) => return Err(no_reply(error)),
    };
    let status = response.status().as_u16();
    let until = retry_time(response.headers());
    // The body of a success is not needed.
    let body = if (200..300).contains(&status) { String::new() } else { read_refusal(response).await };
    Ok(PostReply { status, until, body })
}

impl PostReply {
    /// The message fields of the body, after `without` has removed secrets. Nothing else of the body is shown: otherwise
    /// an author of a Pipeline could read pages that only the controller can reach.
    pub(crate) fn says(&self, without: impl Fn(&str) -> String) -> String {
        let says = serde_json::from_str(&self.body).map(|json| message(&json, without)).unwrap_or_default();
        if says.is_empty() { "no reason given".into() } else { says }
    }
}

async fn read_refusal(mut response: Response) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_BODY_BYTES - bytes.len())]);
            if bytes.len() >= MAX_BODY_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// When to call again, by the reply: in one second at the earliest, and in two hours at the latest.
fn retry_time(headers: &HeaderMap) -> Option<Timestamp> {
    let now = clock::now();
    let after = |duration| now.saturating_add(duration).unwrap_or(now);
    let until = retry_after(headers, now)?;
    Some(until.clamp(after(SignedDuration::from_secs(1)), after(SignedDuration::from_hours(2))))
}

fn no_reply(error: reqwest::Error) -> NoReply {
    if is_private_address_error(&error) {
        return NoReply::PrivateAddress;
    }
    let connecting = error.is_connect();
    if error.is_timeout() && !connecting {
        return NoReply::Timeout;
    }
    let says = clean(&last_cause(error), MAX_CAUSE_CHARS);
    match connecting {
        _ if says.contains("certificate") => NoReply::Certificate(says),
        true => NoReply::NoConnection(says),
        false => NoReply::Broken(says),
    }
}
