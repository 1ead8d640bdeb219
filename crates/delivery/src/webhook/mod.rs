//! Delivery by webhook: one signed POST to the address that the pipeline names. The receiver must see to it that a
//! promotion is applied once: every try of a promotion carries the same `Idempotency-Key`.

mod address;
pub(crate) mod error;
mod headers;
mod payload;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock;
use crate::credentials::Credentials;
use crate::error::DeliveryResult;
use crate::fault;
use crate::order::{Announcement, Order};
use crate::outcome::Delivered;
use crate::outgoing_http::{self, NoReply, OutgoingHttp, PostReply};
use crate::stats::Counters;
pub use address::AllowedWebhooks;
use address::WebhookReceiver;
pub use error::{WebhookError, may_have_arrived};

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct WebhookSender {
    http: OutgoingHttp,
    allowed: AllowedWebhooks,
    counters: Arc<Counters>,
}

impl WebhookSender {
    pub(crate) fn new(allowed: AllowedWebhooks, timeout: Duration, counters: Arc<Counters>) -> Self {
        WebhookSender { http: OutgoingHttp::new(timeout), allowed, counters }
    }

    /// Calls the webhook of an order once.
    pub(crate) async fn deliver(
        &self,
        order: &Order,
        url: &str,
        about: &Announcement,
    ) -> DeliveryResult<Delivered> {
        let credentials = &order.credentials;
        if credentials.proxy {
            let what = "it has the key proxy, which this version does not support: remove the key".into();
            return Err(WebhookError::BadSecret { what }.into());
        }
        let receiver = match &credentials.address {
            Some(address) => address::parse(address, true, self.allowed)?,
            None => address::parse(url, false, self.allowed)?,
        };
        let bad_secret = |what: String| WebhookError::BadSecret { what };
        let body = payload::bytes(order, about, clock::now()).map_err(|e| bad_secret(e.to_string()))?;
        let headers = headers::headers(credentials, &about.identity(order.round), &body)?;
        let client = self
            .http
            .client(credentials.ca_file.as_deref(), !self.allowed.private)
            .map_err(|says| bad_secret(format!("ca.crt holds no certificate: {says}")))?;
        order.fencing_token.check()?;
        fault::point("before-call");
        let reply = outgoing_http::post(&client, receiver.url.clone(), headers, body).await;
        fault::point("after-call");
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        self.counters.forge_call("webhook", "POST", status);
        match reply {
            Ok(reply) => Ok(outcome(reply, receiver, credentials)?),
            Err(no_reply) => Err(self.failure(no_reply, receiver, credentials).into()),
        }
    }

    fn failure(
        &self,
        no_reply: NoReply,
        receiver: WebhookReceiver,
        credentials: &Credentials,
    ) -> WebhookError {
        let to = receiver.name;
        let clean = |says: String| headers::without_secrets(&says, credentials);
        match no_reply {
            NoReply::PrivateAddress => WebhookError::NotPublic { to },
            NoReply::Timeout => WebhookError::Timeout { to, after: self.http.timeout },
            NoReply::Certificate(says) => WebhookError::Certificate { to, says: clean(says) },
            NoReply::NoConnection(says) | NoReply::Broken(says) => {
                WebhookError::Unreachable { to, says: clean(says) }
            }
        }
    }
}

/// The meaning of a reply, by its status.
fn outcome(
    reply: PostReply,
    receiver: WebhookReceiver,
    credentials: &Credentials,
) -> Result<Delivered, WebhookError> {
    let (to, status) = (receiver.name, reply.status);
    let says = reply.says(|text| headers::without_secrets(text, credentials));
    Err(match status {
        200..300 => return Ok(Delivered::Called { to, status }),
        300..400 => WebhookError::Redirected { to, status },
        429 | 503 if let Some(until) = reply.until => WebhookError::RateLimited { to, until },
        429 => WebhookError::RateLimited { to, until: in_a_minute() },
        408 | 425 | 500.. => WebhookError::Unavailable { to, status, says },
        _ => WebhookError::Refused { to, status, says },
    })
}

fn in_a_minute() -> Timestamp {
    let now = clock::now();
    now.saturating_add(SignedDuration::from_mins(1)).unwrap_or(now)
}
