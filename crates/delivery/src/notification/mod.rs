//! Delivery by notification: an event to Flux's notification-controller. The controller writes the event in the cluster
//! itself, because it holds the client.

pub(crate) mod error;
mod event;
mod flux_event;
mod progress_event_json;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::clock;
use crate::error::DeliveryResult;
use crate::fault;
use crate::order::{Announcement, Order};
use crate::outcome::Delivered;
use crate::outgoing_http::{self, NoReply, OutgoingHttp, PostReply};
use crate::stats::Counters;
pub use error::{NotificationError, UNANSWERED};
pub use event::{REASON, message, metadata};
pub use flux_event::instance;
pub use progress_event_json::ProgressEvent;

/// Sends events to one address.
#[derive(Debug)]
pub(crate) struct EventSender {
    address: Option<String>,
    http: OutgoingHttp,
    counters: Arc<Counters>,
}

impl EventSender {
    pub(crate) fn new(address: Option<String>, timeout: Duration, counters: Arc<Counters>) -> Self {
        EventSender { address, http: OutgoingHttp::new(timeout), counters }
    }

    pub(crate) fn has_address(&self) -> bool {
        self.address.is_some()
    }

    /// Sends the event of an order, if there is an address.
    pub(crate) async fn deliver(&self, order: &Order, about: &Announcement) -> DeliveryResult<Delivered> {
        let Some(address) = &self.address else { return Ok(Delivered::Notified { to: None }) };
        let body = event::bytes(order, about, clock::now()).map_err(|e| bad_address(e.to_string()))?;
        order.fencing_token.check()?;
        fault::point("before-call");
        let reply = self.post(address, body).await;
        fault::point("after-call");
        let (to, reply) = reply?;
        // notification-controller answers 429 to an event that it received within the last five minutes. If no try can
        // have arrived, the status is from another server on the way, and means a rate limit.
        if !(reply.status == 429 && about.in_doubt) {
            check_accepted(to.clone(), &reply)?;
        }
        Ok(Delivered::Notified { to: Some(to) })
    }

    /// Sends a progress event, if there is an address. Sends once: the caller decides whether to try again.
    pub(crate) async fn send_progress_event(&self, event: &ProgressEvent) -> Result<(), NotificationError> {
        let Some(address) = &self.address else { return Ok(()) };
        let body = event.bytes().map_err(|e| bad_address(e.to_string()))?;
        let (to, reply) = self.post(address, body).await?;
        match reply.status {
            // notification-controller has received it before.
            429 if reply.until.is_none() => Ok(()),
            _ => check_accepted(to, &reply),
        }
    }

    /// Sends one event. Returns the host that received it, and its reply.
    async fn post(&self, address: &str, body: Vec<u8>) -> Result<(String, PostReply), NotificationError> {
        let url = reqwest::Url::parse(address).map_err(|e| bad_address(e.to_string()))?;
        let to = url.host_str().unwrap_or_default().to_string();
        let client = self.http.client(None, false).map_err(bad_address)?;
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let reply = outgoing_http::post(&client, url, headers, body).await;
        self.counters.forge_call("notification", "POST", reply.as_ref().map_or(0, |reply| reply.status));
        let reply = reply.map_err(|no_reply| failure(no_reply, to.clone(), self.http.timeout))?;
        Ok((to, reply))
    }
}

fn bad_address(says: String) -> NotificationError {
    NotificationError::BadAddress { says }
}

/// Checks whether the receiver accepted an event.
fn check_accepted(to: String, reply: &PostReply) -> Result<(), NotificationError> {
    let says = reply.says(str::to_string);
    Err(match reply.status {
        200..300 => return Ok(()),
        429 | 503 if let Some(until) = reply.until => NotificationError::RateLimited { to, until },
        status @ (408 | 425 | 429 | 500..) => {
            NotificationError::Unreachable { to, says: format!("status {status}: {says}") }
        }
        status => NotificationError::Refused { to, status, says },
    })
}

/// The error of a call without a reply. Says whether the event may have arrived.
fn failure(no_reply: NoReply, to: String, timeout: Duration) -> NotificationError {
    match no_reply {
        NoReply::Timeout => {
            NotificationError::Unanswered { to, says: format!("within {} seconds", timeout.as_secs_f32()) }
        }
        NoReply::Broken(says) => NotificationError::Unanswered { to, says },
        NoReply::NoConnection(says) | NoReply::Certificate(says) => {
            NotificationError::Unreachable { to, says }
        }
        NoReply::PrivateAddress => {
            NotificationError::Unreachable { to, says: "its name resolves to another address".into() }
        }
    }
}
