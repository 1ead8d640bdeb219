//! A forge says that something became of a change request. It shows the pipeline's key in its own way, and
//! is taken at no other word: the change requests are looked at, and what the forge then says counts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac;
use serde::Deserialize;
use sluice_api::pipeline::{Pipeline, PromotionPolicy};

use super::answer::Answer;
use super::call::Call;
use super::hmac_keys::{Purpose, Unavailable, secrets_of};
use super::server::HookServer;
use super::signature;
use super::store::Stands;

impl HookServer {
    /// A call of a forge.
    pub(super) async fn forge(&self, call: Call<'_>) -> Result<Answer, Unavailable> {
        let Some(proof) = Proof::of(call.headers) else { return Ok(Answer::Refused) };
        let secrets = call.pipeline.map(secrets).unwrap_or_default();
        let shows = |keys: &[&[u8]]| proof.is_good(call.body, keys);
        let wanted = [Purpose::Forge];
        let shown = self.shown(&call, &secrets, &wanted, shows).await?;
        if !shown.is_key() {
            return Ok(self.refuse(&call, &shown, &wanted));
        }
        if let Err(answer) = self.take(&call.place.pipeline, true) {
            return Ok(answer);
        }
        if !concerns_change_requests(call.headers, call.body) {
            return Ok(Answer::NothingToDo);
        }
        Ok(match self.store.forge_called(&call.place.pipeline).await? {
            Stands::Written => Answer::Accepted(call.place.pipeline.clone()),
            Stands::AsBefore | Stands::Refused(_) => Answer::NothingToDo,
            Stands::Gone => Answer::Refused,
        })
    }
}

/// The Secrets whose keys a forge may know: those of the environments with change requests. Each once.
pub fn secrets(pipeline: &Pipeline) -> Vec<&str> {
    let spec = &pipeline.spec;
    let proposes = |p: &&PromotionPolicy| p.strategy.as_ref().is_some_and(|s| s.pull_request.is_some());
    secrets_of(spec.environments.iter().filter_map(|e| spec.policy(e)).filter(proposes))
}

/// How a forge shows that it knows a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Proof {
    /// The HMAC of the body, as `sha256=<hex>`.
    Signature(Vec<u8>),
    /// The key itself.
    Key(Vec<u8>),
}

impl Proof {
    /// What the headers show: GitHub's `X-Hub-Signature-256`; the `X-Hub-Signature` of both Bitbuckets
    /// (support.atlassian.com, "Manage webhooks"); the bare hexadecimal `X-Gitea-Signature` and
    /// `X-Forgejo-Signature` (docs.gitea.com/usage/webhooks); GitLab's `X-Gitlab-Token`; the password of
    /// Azure DevOps' basic authentication. The first that is there counts, alone.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let header = |name: &str| headers.get(name).map(|value| value.as_bytes().to_vec());
        let bare = |name: &str| header(name).map(|hex| [&b"sha256="[..], &hex].concat());
        let signature = header("x-hub-signature-256")
            .or_else(|| bare("x-forgejo-signature"))
            .or_else(|| bare("x-gitea-signature"))
            .or_else(|| header("x-hub-signature"));
        let password = || {
            let basic = header("authorization")?;
            let decoded = STANDARD.decode(basic.strip_prefix(b"Basic ")?).ok()?;
            let colon = decoded.iter().position(|b| *b == b':')?;
            Some(decoded[colon + 1..].to_vec())
        };
        signature.map(Self::Signature).or_else(|| header("x-gitlab-token").or_else(password).map(Self::Key))
    }

    /// Whether it is of one of these keys. The time it takes tells nothing of them.
    pub fn is_good(&self, body: &[u8], keys: &[&[u8]]) -> bool {
        match self {
            Proof::Signature(header) => signature::verify(Some(header), body, keys.iter().copied()).is_ok(),
            Proof::Key(shown) => {
                // Texts of any length are compared by their tags, in constant time.
                let by = hmac::Key::new(hmac::HMAC_SHA256, b"comparison");
                let tag = hmac::sign(&by, shown);
                let mut good = false;
                for key in keys.iter().map(|key| key.trim_ascii()).filter(|key| !key.is_empty()) {
                    good |= hmac::verify(&by, key, tag.as_ref()).is_ok();
                }
                good
            }
        }
    }
}

/// Azure DevOps says in the body what happened.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureEvent {
    event_type: String,
}

/// Whether what happened may be of a change request: it was merged, closed, reviewed or checked. What is
/// not known may be.
fn concerns_change_requests(headers: &HeaderMap, body: &[u8]) -> bool {
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
    ];
    about.iter().any(|about| event.starts_with(about) || event.contains("commit_status"))
        || event.starts_with("pipeline")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_change_requests_and_their_checks_is_looked_at_and_nothing_else() {
        let named = |name: &'static str, event: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(event));
            concerns_change_requests(&headers, b"{}")
        };
        // The names of the forges' own documents, merged and closed first, then checks.
        let all = [
            (
                "x-github-event",
                &["pull_request", "pull_request_review", "check_run", "check_suite", "status"][..],
            ),
            ("x-gitlab-event", &["Merge Request Hook", "Pipeline Hook"]),
            ("x-gitea-event", &["pull_request", "pull_request_approved", "status"]),
            ("x-forgejo-event", &["pull_request", "pull_request_rejected", "status"]),
            ("x-event-key", &["pullrequest:fulfilled", "pullrequest:rejected", "repo:commit_status_updated"]),
            ("x-event-key", &["pr:merged", "pr:declined", "pr:reviewer:approved"]),
        ];
        for (name, events) in all {
            assert!(events.iter().all(|event| named(name, event)), "{name}: {events:?}");
        }
        for (name, event) in [
            ("x-github-event", "push"),
            ("x-gitlab-event", "Push Hook"),
            ("x-gitea-event", "create"),
            ("x-event-key", "repo:push"),
            ("x-event-key", "repo:refs_changed"),
        ] {
            assert!(!named(name, event), "{name}: {event}");
        }
        let azure = |event: &str| {
            concerns_change_requests(&HeaderMap::new(), format!(r#"{{"eventType": "{event}"}}"#).as_bytes())
        };
        assert!(
            ["git.pullrequest.merged", "git.pullrequest.updated", "build.complete"]
                .map(azure)
                .iter()
                .all(|it| *it)
        );
        assert!(!azure("git.push"));
    }
}
