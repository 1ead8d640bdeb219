//! The endpoint `/approval/<namespace>/<pipeline>/<environment>/<revision>`, which callers of the predecessor
//! know. An approval is recorded as given with the key, and never in a person's name.

use jiff::Timestamp;
use kube::ResourceExt;
use ring::hmac;
use sluice_core::Time;
use sluice_core::hex::hex;

use super::answer::{CallError, HookAnswer};
use super::approval_rules::{ApprovalRequest, ApprovalSignature, check};
use super::call::HookCall;
use super::hmac_keys::{Purpose, Unavailable};
use super::server::HookServer;
use super::signature;
use super::store::ApprovalOutcome;

impl HookServer {
    /// Handles an approval of a revision for an environment, which that environment's `approval-key` signs.
    pub(super) async fn handle_approval(
        &self,
        call: HookCall<'_>,
        environment: &str,
        revision: &str,
    ) -> Result<HookAnswer, HookAnswer> {
        let spec = call.pipeline.and_then(|p| p.spec.environments.iter().find(|e| e.name == environment));
        let policy = call.pipeline.zip(spec).and_then(|(p, spec)| p.spec.policy(spec));
        let secrets: Vec<&str> = policy.and_then(|policy| policy.secret()).into_iter().collect();
        let accepted = [Purpose::Approval];
        let shown = self.signing_key(&call, &secrets, &accepted).await?;
        let (_, secret) = self.authorize(&call, shown, &accepted)?;
        let now = Timestamp::now();
        let request: ApprovalRequest = call.parse_request(|error| {
            let example = example_body(&call, environment, revision, now);
            format!("the body is not an approval: {error}; write {example}")
        })?;
        let invalid = |why: String| HookAnswer::Error(CallError::Invalid, why);
        let pipeline = call.route.pipeline.to_string();
        check(&request, (&pipeline, environment, revision), now).map_err(invalid)?;
        let key_id = self.signing_key_id(&call, &secret).await?;
        let signature = ApprovalSignature { secret: &secret, key_id: &key_id, signed_at: request.at, now };
        let _permit = self.queue.acquire(&call.route.pipeline).await?;
        Ok(match self.store.record_approval(&call.route.pipeline, &request, signature).await? {
            ApprovalOutcome::Recorded(promotions, new) => {
                let names: Vec<String> = promotions.iter().map(ResourceExt::name_any).collect();
                tracing::info!(
                    pipeline,
                    environment,
                    revision,
                    secret,
                    key = key_id,
                    promotions = names.join(","),
                    "approved by key"
                );
                HookAnswer::recorded(&call.route.pipeline, &promotions, new)
            }
            ApprovalOutcome::Rejected(why) => invalid(why),
        })
    }

    /// Returns the [`key_id`] of the key that signed a body.
    async fn signing_key_id(&self, call: &HookCall<'_>, secret: &str) -> Result<String, Unavailable> {
        let keys = self.keys.get(&call.route.pipeline.namespace, secret, false).await?;
        let header = call.headers.get("x-signature").map_or(&b""[..], http::HeaderValue::as_bytes);
        let signed_by = |key: &&Vec<u8>| signature::is_signed(header, call.body, [key.as_slice()]);
        // The key may have been removed from the Secret since the signature was checked.
        let key = keys.of_purpose(&Purpose::Approval).iter().find(signed_by);
        key.map(|key| key_id(key)).ok_or(Unavailable::RetryLater)
    }
}

/// Returns six hexadecimal digits that identify a key without revealing it.
pub fn key_id(key: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.trim_ascii()), b"sluice key id");
    hex(tag)[..6].to_string()
}

/// Returns the body that approves what the path names, for messages.
fn example_body(call: &HookCall<'_>, environment: &str, revision: &str, now: Timestamp) -> String {
    let pipeline = call.route.pipeline.to_string();
    let at = Time::to_second(now);
    serde_json::json!({"pipeline": pipeline, "environment": environment, "revision": revision, "at": at})
        .to_string()
}
