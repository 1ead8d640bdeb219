//! Delivery by webhook: one signed POST to the address that the pipeline names. That a call is made
//! once is the other side's to see to: every try of a promotion carries the same key.

mod address;
mod error;
mod message;
mod signed;

use jiff::{SignedDuration, Timestamp};

use crate::clock;
use crate::credentials::Credentials;
use crate::deliver::Inner;
use crate::error::DeliveryError;
use crate::fault;
use crate::order::{About, Delivered, Order};
use crate::outward::{self, Answer, Silence};
pub use address::Allowed;
use address::Callee;
pub(crate) use address::{PublicOnly, leads_inside};
pub use error::WebhookError;
pub(crate) use message::seconds;

pub(crate) async fn deliver(
    inner: &Inner,
    order: &Order,
    url: &str,
    about: &About,
) -> Result<Delivered, DeliveryError> {
    let (credentials, allowed) = (&order.credentials, inner.options.webhooks);
    if credentials.proxy {
        let what = "it has the key proxy, and this version calls directly: take it out".into();
        return Err(WebhookError::BadSecret { what }.into());
    }
    let callee = match &credentials.address {
        Some(address) => address::read(address, true, allowed)?,
        None => address::read(url, false, allowed)?,
    };
    let unwritten = |e: serde_json::Error| WebhookError::BadSecret { what: e.to_string() };
    let body = message::bytes(order, about, clock::now()).map_err(unwritten)?;
    let headers = signed::headers(credentials, &about.identity(order.round), &body)?;
    let client = inner
        .outward
        .client(credentials.ca_file.as_deref(), !allowed.private)
        .map_err(|says| WebhookError::BadSecret { what: format!("ca.crt holds no certificate: {says}") })?;
    order.permit.check()?;
    fault::point("before-call");
    let answer = outward::post(&client, callee.url.clone(), headers, body).await;
    fault::point("after-call");
    let status = answer.as_ref().map_or(0, |answer| answer.status);
    inner.counters.forge_call("webhook", "POST", status);
    match answer {
        Ok(answer) => Ok(judge(answer, callee, credentials)?),
        Err(silence) => Err(silent(inner, silence, callee, credentials).into()),
    }
}

/// What an answer means.
fn judge(answer: Answer, callee: Callee, credentials: &Credentials) -> Result<Delivered, WebhookError> {
    let (to, status) = (callee.name, answer.status);
    let says = answer.says(|text| signed::without(text, credentials));
    Err(match status {
        200..300 => return Ok(Delivered::Called { to, status }),
        300..400 => WebhookError::Redirected { to, status },
        429 | 503 if let Some(until) = answer.until => WebhookError::RateLimited { to, until },
        429 => WebhookError::RateLimited { to, until: in_a_minute() },
        408 | 425 | 500.. => WebhookError::Unavailable { to, status, says },
        _ => WebhookError::Refused { to, status, says },
    })
}

fn in_a_minute() -> Timestamp {
    let now = clock::now();
    now.saturating_add(SignedDuration::from_mins(1)).unwrap_or(now)
}

fn silent(inner: &Inner, silence: Silence, callee: Callee, credentials: &Credentials) -> WebhookError {
    let to = callee.name;
    let clean = |says: String| signed::without(&says, credentials);
    match silence {
        Silence::LeadsInside => WebhookError::NotPublic { to },
        Silence::Timeout => WebhookError::Timeout { to, after: inner.outward.deadline },
        Silence::Certificate(says) => WebhookError::Certificate { to, says: clean(says) },
        Silence::NoConnection(says) | Silence::Broken(says) => {
            WebhookError::Unreachable { to, says: clean(says) }
        }
    }
}
