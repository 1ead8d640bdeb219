//! Watches the Pipeline and its Promotions on the hub, prints each change once, and lets the scenario wait for
//! conditions.

use crate::manifests::NAMESPACE;
use crate::output;
use anyhow::{Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use sluice_api::pipeline::{EnvironmentStatus, Health};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The state of the hub, from the watches.
#[derive(Default, Clone)]
pub struct HubView {
    environments: BTreeMap<String, EnvironmentStatus>,
    promotions: BTreeMap<String, Promotion>,
}

impl HubView {
    /// Returns true if an environment runs a version and is healthy.
    pub fn runs(&self, environment: &str, version: &str) -> bool {
        let status = self.environments.get(environment);
        status.is_some_and(|e| e.health == Health::Ready && e.revision.as_deref() == Some(version))
    }

    /// Returns the phase of the promotion of a version into an environment.
    pub fn phase(&self, environment: &str, version: &str) -> Option<Phase> {
        self.promotion(environment, version)?.status.as_ref().map(|status| status.phase)
    }

    /// Returns true if the promotion of a version into an environment has a reason.
    pub fn has_reason(&self, environment: &str, version: &str, reason: &str) -> bool {
        let status = self.promotion(environment, version).and_then(|promotion| promotion.status.as_ref());
        status.is_some_and(|status| status.reason == reason)
    }

    fn promotion(&self, environment: &str, version: &str) -> Option<&Promotion> {
        self.promotions.values().find(|p| p.spec.environment == environment && p.spec.revision == version)
    }

    /// Returns true if the promotion of a version into an environment waits for an approval.
    pub fn waits_for_approval(&self, environment: &str, version: &str) -> bool {
        self.environments.get(environment).is_some_and(|e| e.waiting_approval.revision == version)
    }
}

/// Watches the hub and prints changes until the future is dropped.
pub async fn follow(client: Client, view: watch::Sender<HubView>) -> anyhow::Error {
    let pipelines =
        watcher(Api::<Pipeline>::namespaced(client.clone(), NAMESPACE), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .map_ok(|pipeline| print_pipeline(pipeline, &view));
    let promotions = watcher(Api::<Promotion>::namespaced(client, NAMESPACE), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .map_ok(|promotion| print_promotion(promotion, &view));
    let ended = tokio::select! {
        ended = drain(pipelines) => ended,
        ended = drain(promotions) => ended,
    };
    ended.err().unwrap_or_else(|| anyhow!("the watch of the hub has ended"))
}

/// Reads a watch to its end. A broken watch restarts on its own, so that its errors are only printed.
async fn drain(watch: impl futures::Stream<Item = watcher::Result<()>>) -> Result<()> {
    let mut watch = std::pin::pin!(watch);
    while let Some(next) = watch.next().await {
        if let Err(error) = next {
            output::more(&format!("(the watch of the hub restarts: {error})"));
        }
    }
    Ok(())
}

fn print_pipeline(pipeline: Pipeline, view: &watch::Sender<HubView>) {
    let status = pipeline.status.unwrap_or_default();
    view.send_modify(|view| {
        for environment in pipeline.spec.environments.iter().map(|e| &e.name) {
            let Some(now) = status.environments.get(environment) else { continue };
            let before = view.environments.insert(environment.clone(), now.clone());
            let before = before.map(|b| (b.health, b.revision)).unwrap_or_default();
            if before != (now.health, now.revision.clone()) {
                print_environment(environment, now);
            }
        }
    });
}

fn print_environment(environment: &str, now: &EnvironmentStatus) {
    let runs = now.revision.as_deref().unwrap_or("an unknown revision");
    let text = format!("{environment:<8} runs {runs}: {:?}", now.health);
    match now.health {
        Health::Ready => output::done(&text),
        Health::Failed => output::failed(&text),
        _ => output::waiting(&text),
    }
}

fn print_promotion(promotion: Promotion, view: &watch::Sender<HubView>) {
    view.send_modify(|view| {
        let fields = |p: &Promotion| {
            let status = p.status.clone().unwrap_or_default();
            (status.phase, status.reason, status.message, p.spec.approval.is_some())
        };
        let before = view.promotions.get(&promotion.name_any()).map(fields);
        let now = fields(&promotion);
        if before.is_none() {
            output::action(&start_message(&promotion));
        }
        if before.as_ref() != Some(&now) {
            print_phase(&promotion, before.is_some_and(|b| b.3));
        }
        view.promotions.insert(promotion.name_any(), promotion);
    });
}

fn start_message(promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    let evidence: Vec<&str> = spec.evidence.iter().map(|e| e.environment.as_str()).collect();
    let replaces =
        if spec.replaces.is_empty() { String::new() } else { format!(", replaces {}", spec.replaces) };
    let (environment, revision) = (&spec.environment, &spec.revision);
    format!("{environment:<8} promotion of {revision} begins: healthy in {}{replaces}", evidence.join(", "))
}

fn print_phase(promotion: &Promotion, was_approved: bool) {
    let spec = &promotion.spec;
    let status = promotion.status.clone().unwrap_or_default();
    if let Some(approval) = spec.approval.as_ref().filter(|_| !was_approved) {
        output::done(&format!("{:<8} {} approved by {}", spec.environment, spec.revision, approval.by));
        return;
    }
    let message = with_short_commits(&status.message);
    let text = format!("{:<8} {} {:?}: {message}", spec.environment, spec.revision, status.phase);
    match status.phase {
        Phase::Pending if status.message.is_empty() => {}
        Phase::Promoting => output::action(text.trim_end_matches([' ', ':'])),
        Phase::Delivered | Phase::Succeeded => output::done(&text),
        Phase::Failed | Phase::Rejected => output::failed(&text),
        _ => output::waiting(&text),
    }
}

/// Shortens the commits in a text to eight characters.
fn with_short_commits(text: &str) -> String {
    let is_commit = |word: &str| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let cut = |word: &str| {
        let bare = word.trim_end_matches([';', ',', '.']);
        if is_commit(bare) { format!("{}{}", &bare[..8], &word[40..]) } else { word.to_owned() }
    };
    text.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}
