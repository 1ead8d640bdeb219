//! The endpoint `/trigger`: a CI system asks for a revision in the first environment of a pipeline.

use super::answer::{CallError, HookAnswer};
use super::call::HookCall;
use super::hmac_keys::Purpose;
use super::secret_names::trigger_secret;
use super::server::HookServer;
use super::store::TriggerOutcome;
use super::trigger_rules::{EXAMPLE_BODY, TriggerRequest, check, check_names_pipeline};

impl HookServer {
    /// Handles a request for a revision in the first environment, which that environment's `trigger-key` signs.
    pub(super) async fn handle_trigger(&self, call: HookCall<'_>) -> Result<HookAnswer, HookAnswer> {
        let secret = call.pipeline.and_then(trigger_secret);
        let secrets: Vec<&str> = secret.into_iter().collect();
        let accepted = [Purpose::Trigger];
        let shown = self.signing_key(&call, &secrets, &accepted).await?;
        let (pipeline, _) = self.authorize(&call, shown, &accepted)?;
        let invalid = |why: String| HookAnswer::Error(CallError::Invalid, why);
        let request: TriggerRequest = call.parse_request(|error| {
            let expected = if error.is_data() { "valid" } else { "JSON" };
            format!("the body is not {expected}: {error}; write {EXAMPLE_BODY}")
        })?;
        let header = call.headers.get("idempotency-key").map(|value| value.as_bytes());
        // A request that names its pipeline needs no count, which goes through all pipelines.
        let counted = secret.filter(|_| request.pipeline.is_none());
        let others =
            counted.map_or(0, |secret| self.directory.other_trigger_pipelines(&call.route.pipeline, secret));
        check(pipeline, &request, header).map_err(invalid)?;
        check_names_pipeline(pipeline, &request, others).map_err(invalid)?;
        let _permit = self.queue.acquire(&call.route.pipeline).await?;
        Ok(match self.store.record_trigger(&call.route.pipeline, &request).await? {
            TriggerOutcome::Recorded(promotions, new) => {
                HookAnswer::recorded(&call.route.pipeline, &promotions, new)
            }
            TriggerOutcome::OtherRevision(before) => HookAnswer::Error(
                CallError::Conflict,
                format!(
                    "idempotencyKey {} has asked for another revision before, {before}: use another key for this one",
                    request.idempotency_key
                ),
            ),
            TriggerOutcome::Invalid(why) => invalid(why),
            TriggerOutcome::PipelineGone => HookAnswer::Refused,
        })
    }
}
