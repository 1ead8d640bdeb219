//! The endpoint `/approval/<namespace>/<pipeline>/<environment>/<revision>`, the address that callers of the predecessor
//! know. An approval is recorded as given by the key, and never in a person's name.

use jiff::Timestamp;
use kube::ResourceExt;
use ring::hmac;

use super::answer::{Answer, Wrong};
use super::approval_request::{Given, Request, check};
use super::call::{Call, Shown};
use super::hmac_keys::{Purpose, Unavailable};
use super::server::HookServer;
use super::signature;
use super::store::Granted;
use crate::translate;

impl HookServer {
    /// A call that approves a revision for an environment, with the key of that environment's own `promotion`.
    pub(super) async fn approval(
        &self,
        call: Call<'_>,
        environment: &str,
        revision: &str,
    ) -> Result<Answer, Unavailable> {
        let into = call.pipeline.and_then(|p| p.spec.environments.iter().find(|e| e.name == environment));
        let policy = call.pipeline.zip(into).and_then(|(p, into)| p.spec.policy(into));
        let secrets: Vec<&str> = policy.and_then(|policy| policy.secret()).into_iter().collect();
        let wanted = [Purpose::Approval];
        let shown = self.signed(&call, &secrets, &wanted).await?;
        let Some(Shown::Key(_, secret)) = call.pipeline.map(|_| &shown).filter(|shown| shown.is_key()) else {
            return Ok(self.refuse(&call, &shown, &wanted));
        };
        if let Err(answer) = self.take(&call.place.pipeline, true) {
            return Ok(answer);
        }
        let now = Timestamp::now();
        let request: Request = match call.read() {
            Ok(request) => request,
            Err(error) => {
                let wrong = if error.is_data() { Wrong::Unfit } else { Wrong::Malformed };
                let example = example(&call, environment, revision, now);
                return Ok(Answer::Wrong(
                    wrong,
                    format!("the body is no approval: {error}: write {example}"),
                ));
            }
        };
        let sent_to = (call.place.pipeline.to_string(), environment, revision);
        if let Err(why) = check(&request, (&sent_to.0, sent_to.1, sent_to.2), now) {
            return Ok(Answer::Wrong(Wrong::Unfit, why));
        }
        let key_id = self.key_id(&call, secret).await?;
        let given = Given { secret, key_id: &key_id, signed_at: request.at, now };
        let _place = self.queue.enter(&call.place.pipeline).await?;
        Ok(match self.store.approve(&call.place.pipeline, &request, given).await? {
            Granted::Recorded(promotions, new) => {
                let names: Vec<String> = promotions.iter().map(ResourceExt::name_any).collect();
                tracing::info!(
                    pipeline = %call.place.pipeline, environment, revision, secret, key = key_id,
                    promotions = names.join(","),
                    "approved by key"
                );
                Answer::recorded(&call.place.pipeline, &promotions, new)
            }
            Granted::Refused(why) => Answer::Wrong(Wrong::Unfit, why),
        })
    }

    /// Tells the key that signed a body from others, without telling the key.
    async fn key_id(&self, call: &Call<'_>, secret: &str) -> Result<String, Unavailable> {
        let keys = self.keys_of(call, secret).await?;
        let header = call.headers.get("x-signature").map(http::HeaderValue::as_bytes);
        let signed_by = |key: &&Vec<u8>| signature::verify(header, call.body, [key.as_slice()]).is_ok();
        // A key that was taken out of the Secret a moment ago approves nothing any more.
        let key = keys.of_purpose(&Purpose::Approval).iter().find(signed_by);
        key.map(|key| key_id(key)).ok_or(Unavailable::NotNow)
    }
}

/// Six hexadecimal digits that tell a key from others.
pub fn key_id(key: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.trim_ascii()), b"sluice key id");
    tag.as_ref().iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

fn example(call: &Call<'_>, environment: &str, revision: &str, now: Timestamp) -> String {
    let pipeline = call.place.pipeline.to_string();
    let at = translate::time(now);
    serde_json::json!({"pipeline": pipeline, "environment": environment, "revision": revision, "at": at})
        .to_string()
}
