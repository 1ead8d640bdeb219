//! The endpoint `/trigger`: a CI system asks for a revision in the first environment of a pipeline.

use super::answer::{Answer, Wrong};
use super::call::Call;
use super::hmac_keys::{Purpose, Unavailable};
use super::secret_names::trigger_secret;
use super::server::HookServer;
use super::store::Asked;
use super::trigger_request::{EXAMPLE, Request, check, named};

impl HookServer {
    /// A call that asks for a revision in the first environment. It takes that environment's own key.
    pub(super) async fn trigger(&self, call: Call<'_>) -> Result<Answer, Unavailable> {
        let secret = call.pipeline.and_then(trigger_secret);
        let secrets: Vec<&str> = secret.into_iter().collect();
        let wanted = [Purpose::Trigger];
        let shown = self.signed(&call, &secrets, &wanted).await?;
        let Some(pipeline) = call.pipeline.filter(|_| shown.is_key()) else {
            return Ok(self.refuse(&call, &shown, &wanted));
        };
        if let Err(answer) = self.take(&call.place.pipeline, true) {
            return Ok(answer);
        }
        let wrong = |why: String| Answer::Wrong(Wrong::Unfit, why);
        let request: Request = match call.read() {
            Ok(request) => request,
            Err(error) if error.is_data() => {
                return Ok(wrong(format!("the body is not as it should be: {error}")));
            }
            Err(error) => {
                let why = format!("the body is no JSON: {error}: write {EXAMPLE}");
                return Ok(Answer::Wrong(Wrong::Malformed, why));
            }
        };
        let header = call.headers.get("idempotency-key").map(|value| value.as_bytes());
        // Only who names no pipeline has all of them looked through.
        let unnamed = secret.filter(|_| request.pipeline.is_none());
        let shared = unnamed.map_or(0, |secret| self.sharing(&call.place.pipeline, secret));
        if let Err(why) = check(pipeline, &request, header).and_then(|()| named(pipeline, &request, shared)) {
            return Ok(wrong(why));
        }
        let _place = self.queue.enter(&call.place.pipeline).await?;
        Ok(match self.store.trigger(&call.place.pipeline, &request).await? {
            Asked::Recorded(promotions, new) => Answer::recorded(&call.place.pipeline, &promotions, new),
            Asked::Otherwise(before) => Answer::Wrong(
                Wrong::Conflict,
                format!(
                    "key {} has asked for {before} before, which is another revision: ask for this one by another key",
                    request.idempotency_key
                ),
            ),
            Asked::Unfit(why) => wrong(why),
            Asked::Gone => Answer::Refused,
        })
    }
}
