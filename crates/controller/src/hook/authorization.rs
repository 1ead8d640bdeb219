//! Which key a call shows, whether its endpoint accepts that key, and what the caller of a wrong one learns.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use sluice_api::Pipeline;
use sluice_core::lock::lock;

use super::answer::HookAnswer;
use super::call::HookCall;
use super::hmac_keys::{CALL_TIMEOUT, HookKeys, Purpose, Unavailable};
use super::server::HookServer;
use super::signature;

/// How many report keys of a Secret are tried to find out which other key a call shows.
const MAX_REPORT_KEYS_TRIED: usize = 16;

/// The key that a call shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownKey {
    /// A key that the endpoint accepts: its purpose, and the name of its Secret.
    Accepted(Purpose, String),
    /// A key of the pipeline for another purpose.
    Other(Purpose),
    /// No key of the pipeline.
    None,
}

impl ShownKey {
    pub fn is_accepted(&self) -> bool {
        matches!(self, ShownKey::Accepted(..))
    }
}

impl HookServer {
    /// Returns which key of these Secrets a call shows, as `shows` decides. If the call shows no `accepted` key,
    /// the Secrets are read again, since its key may be new. For a pipeline that does not exist or has no keys, the
    /// same work is done with the Secret of another one, so that the answer does not reveal which pipelines exist.
    pub(super) async fn shown_key(
        &self,
        call: &HookCall<'_>,
        secrets: &[&str],
        accepted: &[Purpose],
        shows: impl Fn(&[&[u8]]) -> bool,
    ) -> Result<ShownKey, Unavailable> {
        let shown = async {
            if secrets.is_empty() {
                if let Some((namespace, secret)) = self.directory.any_secret() {
                    self.keys.get(&namespace, &secret, true).await?;
                }
                let checks = 2 * accepted.len() + if call.is_short() { Purpose::SINGLE.len() } else { 0 };
                for _ in 0..checks {
                    std::hint::black_box(shows(&[b"no pipeline, no key"]));
                }
                return Ok(ShownKey::None);
            }
            let mut known = Vec::new();
            for refresh in [false, true] {
                known.clear();
                for secret in secrets {
                    let namespace = &call.route.pipeline.namespace;
                    known.push((*secret, self.keys.get(namespace, secret, refresh).await?));
                }
                if let Some(shown) = accepted_key(&known, accepted, &shows) {
                    return Ok(shown);
                }
            }
            Ok(other_key(call, &known, accepted, &shows))
        };
        tokio::time::timeout(CALL_TIMEOUT, shown).await.unwrap_or(Err(Unavailable::RetryLater))
    }

    /// Returns which key signed the body. A call with several `X-Signature` headers shows no key.
    pub(super) async fn signing_key(
        &self,
        call: &HookCall<'_>,
        secrets: &[&str],
        accepted: &[Purpose],
    ) -> Result<ShownKey, Unavailable> {
        let mut headers = call.headers.get_all("x-signature").iter().map(HeaderValue::as_bytes);
        let (Some(header), None) = (headers.next(), headers.next()) else { return Ok(ShownKey::None) };
        let shows = |keys: &[&[u8]]| signature::is_signed(header, call.body, keys.iter().copied());
        self.shown_key(call, secrets, accepted, shows).await
    }

    /// Counts a call that shows an accepted key of its pipeline. Returns the pipeline, and the Secret with the key.
    ///
    /// # Errors
    /// The answer to a call that shows no accepted key, or is over the limit.
    pub(super) fn authorize<'a>(
        &self,
        call: &HookCall<'a>,
        shown: ShownKey,
        accepted: &[Purpose],
    ) -> Result<(&'a Pipeline, String), HookAnswer> {
        match (call.pipeline, shown) {
            (Some(pipeline), ShownKey::Accepted(_, secret)) => {
                self.count_call(&call.route.pipeline, true)?;
                Ok((pipeline, secret))
            }
            (_, shown) => Err(self.refuse(call, &shown, accepted)),
        }
    }

    /// Refuses a call. If it shows a key of its pipeline for another purpose, a log line and an event name the
    /// right key; the caller gets the same answer as for no key.
    pub(super) fn refuse(&self, call: &HookCall<'_>, shown: &ShownKey, accepted: &[Purpose]) -> HookAnswer {
        let ShownKey::Other(purpose) = shown else { return HookAnswer::Refused };
        let notice = (call.route.pipeline.clone(), call.route.endpoint.name());
        let is_due = |_: &&Pipeline| lock(&self.wrong_key_notices).is_due(notice, Instant::now());
        if let Some(pipeline) = call.pipeline.filter(is_due) {
            // The key for reports is unnamed if no target is on the cluster that the event names.
            let names: Vec<&str> = accepted.iter().map(Purpose::key).filter(|key| !key.is_empty()).collect();
            let (endpoint, use_instead) = (call.route.endpoint.name(), names.join(" or "));
            let text = format!(
                "a call of /{endpoint} was refused: it uses {purpose}, and /{endpoint} accepts {use_instead} only; give the \
                 caller {use_instead} of the Secret in promotion.strategy.secretRef, or first add it to the Secret"
            );
            tracing::warn!(pipeline = %call.route.pipeline, "{text}");
            self.events.wrong_key(pipeline, &text);
        }
        HookAnswer::WrongKey
    }
}

/// Returns the first accepted key that a call shows, with its Secret.
fn accepted_key(
    known: &[(&str, Arc<HookKeys>)],
    accepted: &[Purpose],
    shows: impl Fn(&[&[u8]]) -> bool,
) -> Option<ShownKey> {
    let mut all =
        accepted.iter().flat_map(|purpose| known.iter().map(move |(secret, keys)| (purpose, secret, keys)));
    let (purpose, secret, _) = all.find(|(purpose, _, keys)| {
        let keys: Vec<&[u8]> = keys.of_purpose(purpose).iter().map(Vec::as_slice).collect();
        shows(&keys)
    })?;
    Some(ShownKey::Accepted(purpose.clone(), (*secret).to_string()))
}

/// Returns the key of the pipeline that a call shows instead of an accepted one. Long bodies are not checked:
/// callers without a key could have the server compute many signatures of long bodies.
fn other_key(
    call: &HookCall<'_>,
    known: &[(&str, Arc<HookKeys>)],
    accepted: &[Purpose],
    shows: impl Fn(&[&[u8]]) -> bool,
) -> ShownKey {
    if !call.is_short() {
        return ShownKey::None;
    }
    let others = known.iter().flat_map(|(_, keys)| {
        let reports = keys
            .purposes()
            .filter(|purpose| matches!(purpose, Purpose::Report(_)))
            .take(MAX_REPORT_KEYS_TRIED);
        let others = Purpose::SINGLE.into_iter().chain(reports.cloned());
        others.map(move |purpose| (keys, purpose))
    });
    for (keys, purpose) in others.filter(|(_, purpose)| !accepted.contains(purpose)) {
        let keys: Vec<&[u8]> = keys.of_purpose(&purpose).iter().map(Vec::as_slice).collect();
        if shows(&keys) {
            return ShownKey::Other(purpose);
        }
    }
    ShownKey::None
}
