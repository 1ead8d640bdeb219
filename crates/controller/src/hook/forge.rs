//! The endpoint `/forge`: a forge reports an event of a change request. Each kind of forge shows the pipeline's
//! key in its own way. The body is a hint only: the controller then asks the forge for the state of the change
//! requests.

use http::HeaderMap;
use serde::Deserialize;
use sluice_api::pipeline::{Pipeline, PromotionPolicy};

use super::answer::HookAnswer;
use super::call::HookCall;
use super::forge_proof::ForgeProof;
use super::hmac_keys::{Purpose, secrets_of};
use super::server::HookServer;
use super::store::ChangeOutcome;

impl HookServer {
    /// Handles a call of a forge.
    pub(super) async fn handle_forge(&self, call: HookCall<'_>) -> Result<HookAnswer, HookAnswer> {
        let Some(proof) = ForgeProof::from_headers(call.headers) else { return Ok(HookAnswer::Refused) };
        let secrets = call.pipeline.map(forge_secrets).unwrap_or_default();
        let shows = |keys: &[&[u8]]| proof.verifies(call.body, keys);
        let accepted = [Purpose::Forge];
        let shown = self.shown_key(&call, &secrets, &accepted, shows).await?;
        self.authorize(&call, shown, &accepted)?;
        if !concerns_promotions(call.headers, call.body) {
            return Ok(HookAnswer::NothingToDo);
        }
        Ok(match self.store.record_forge_call(&call.route.pipeline).await? {
            ChangeOutcome::Written => HookAnswer::Accepted(call.route.pipeline.clone()),
            ChangeOutcome::Unchanged | ChangeOutcome::Rejected(_) => HookAnswer::NothingToDo,
            ChangeOutcome::Gone => HookAnswer::Refused,
        })
    }
}

/// Returns the Secrets whose keys a forge may show: those of the environments whose promotions go into git, each once.
fn forge_secrets(pipeline: &Pipeline) -> Vec<&str> {
    let spec = &pipeline.spec;
    let writes_to_git = |policy: &&PromotionPolicy| {
        policy.strategy.as_ref().is_some_and(|s| s.pull_request.is_some() || s.commit.is_some())
    };
    secrets_of(spec.environments.iter().filter_map(|e| spec.policy(e)).filter(writes_to_git))
}

/// The body of a call from Azure DevOps, which names the event there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureEvent {
    event_type: String,
}

/// Returns true if a call may be about a change request that was merged, closed, reviewed or checked, or about a push,
/// which may be the fix of a failed delivery. A call that names no event may be about one.
fn concerns_promotions(headers: &HeaderMap, body: &[u8]) -> bool {
    let names = ["x-github-event", "x-gitea-event", "x-forgejo-event", "x-gitlab-event", "x-event-key"];
    let named = names.iter().find_map(|name| headers.get(*name)?.to_str().ok());
    let azure = || serde_json::from_slice::<AzureEvent>(body).map(|event| event.event_type).ok();
    let Some(event) = named.map(str::to_ascii_lowercase).or_else(azure) else { return true };
    let about = [
        "pull_request",
        "merge request",
        "pullrequest:",
        "pr:",
        "git.pullrequest",
        "check_",
        "status",
        "build.",
        "push",
        "repo:push",
        "repo:refs_changed",
        "git.push",
    ];
    about.iter().any(|about| event.starts_with(about) || event.contains("commit_status"))
        || event.starts_with("pipeline")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_change_requests_checks_and_pushes_concern_promotions() {
        let named = |name: &'static str, event: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(event));
            concerns_promotions(&headers, b"{}")
        };
        // The names of events in the forges' documentation.
        let all = [
            (
                "x-github-event",
                &["pull_request", "pull_request_review", "check_run", "check_suite", "status", "push"][..],
            ),
            ("x-gitlab-event", &["Merge Request Hook", "Pipeline Hook", "Push Hook"]),
            ("x-gitea-event", &["pull_request", "pull_request_approved", "status", "push"]),
            ("x-forgejo-event", &["pull_request", "pull_request_rejected", "status", "push"]),
            (
                "x-event-key",
                &["pullrequest:fulfilled", "pullrequest:rejected", "repo:commit_status_updated", "repo:push"],
            ),
            ("x-event-key", &["pr:merged", "pr:declined", "pr:reviewer:approved", "repo:refs_changed"]),
        ];
        for (name, events) in all {
            assert!(events.iter().all(|event| named(name, event)), "{name}: {events:?}");
        }
        for (name, event) in [
            ("x-github-event", "create"),
            ("x-gitlab-event", "Tag Push Hook"),
            ("x-gitea-event", "create"),
            ("x-event-key", "repo:fork"),
            ("x-event-key", "repo:modified"),
        ] {
            assert!(!named(name, event), "{name}: {event}");
        }
        let azure = |event: &str| {
            concerns_promotions(&HeaderMap::new(), format!(r#"{{"eventType": "{event}"}}"#).as_bytes())
        };
        assert!(
            ["git.pullrequest.merged", "git.pullrequest.updated", "build.complete", "git.push"]
                .map(azure)
                .iter()
                .all(|it| *it)
        );
        assert!(!azure("workitem.created"));
    }
}
