//! What happens on the hub, told as it happens: watches the Pipeline and its Promotions, prints each
//! change once, and lets the story wait for what it wants to see.

use crate::manifests::NAMESPACE;
use crate::say;
use anyhow::{Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use sluice_api::pipeline::{EnvironmentStatus, Health};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// What the hub shows.
#[derive(Default, Clone)]
pub struct Seen {
    environments: BTreeMap<String, EnvironmentStatus>,
    promotions: BTreeMap<String, Promotion>,
}

impl Seen {
    /// Whether an environment runs a version, healthily.
    pub fn runs(&self, environment: &str, version: &str) -> bool {
        let shown = self.environments.get(environment);
        shown.is_some_and(|e| e.health == Health::Ready && e.revision.as_deref() == Some(version))
    }

    /// Where the promotion of a version into an environment is.
    pub fn phase(&self, environment: &str, version: &str) -> Option<Phase> {
        let mut all = self.promotions.values();
        let found = all.find(|p| p.spec.environment == environment && p.spec.revision == version)?;
        found.status.as_ref().map(|s| s.phase)
    }

    /// Whether a version waits for a person before it goes into an environment.
    pub fn waits_for_approval(&self, environment: &str, version: &str) -> bool {
        self.environments.get(environment).is_some_and(|e| e.waiting_approval.revision == version)
    }
}

/// Watches and tells until it is dropped.
pub async fn follow(client: Client, seen: watch::Sender<Seen>) -> anyhow::Error {
    let pipelines =
        watcher(Api::<Pipeline>::namespaced(client.clone(), NAMESPACE), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .map_ok(|pipeline| tell_pipeline(pipeline, &seen));
    let promotions = watcher(Api::<Promotion>::namespaced(client, NAMESPACE), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .map_ok(|promotion| tell_promotion(promotion, &seen));
    let ended = tokio::select! {
        ended = drain(pipelines) => ended,
        ended = drain(promotions) => ended,
    };
    ended.err().unwrap_or_else(|| anyhow!("the watch of the hub has ended"))
}

/// A watch that breaks is begun again by itself, so its errors only matter when it ends.
async fn drain(watch: impl futures::Stream<Item = watcher::Result<()>>) -> Result<()> {
    let mut watch = std::pin::pin!(watch);
    while let Some(next) = watch.next().await {
        if let Err(error) = next {
            say::more(&format!("(the watch of the hub begins again: {error})"));
        }
    }
    Ok(())
}

fn tell_pipeline(pipeline: Pipeline, seen: &watch::Sender<Seen>) {
    let status = pipeline.status.unwrap_or_default();
    seen.send_modify(|seen| {
        for environment in pipeline.spec.environments.iter().map(|e| &e.name) {
            let Some(now) = status.environments.get(environment) else { continue };
            let before = seen.environments.insert(environment.clone(), now.clone());
            let before = before.map(|b| (b.health, b.revision)).unwrap_or_default();
            if before != (now.health, now.revision.clone()) {
                tell_environment(environment, now);
            }
        }
    });
}

fn tell_environment(environment: &str, now: &EnvironmentStatus) {
    let runs = now.revision.as_deref().unwrap_or("nothing that is known yet");
    let text = format!("{environment:<8} runs {runs}: {:?}", now.health);
    match now.health {
        Health::Ready => say::done(&text),
        Health::Failed => say::failed(&text),
        _ => say::waiting(&text),
    }
}

fn tell_promotion(promotion: Promotion, seen: &watch::Sender<Seen>) {
    seen.send_modify(|seen| {
        let story = |p: &Promotion| {
            let status = p.status.clone().unwrap_or_default();
            (status.phase, status.reason, status.message, p.spec.approval.is_some())
        };
        let before = seen.promotions.get(&promotion.name_any()).map(story);
        let now = story(&promotion);
        if before.is_none() {
            say::action(&beginning(&promotion));
        }
        if before.as_ref() != Some(&now) {
            tell_phase(&promotion, before.is_some_and(|b| b.3));
        }
        seen.promotions.insert(promotion.name_any(), promotion);
    });
}

fn beginning(promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    let proofs: Vec<&str> = spec.evidence.iter().map(|e| e.environment.as_str()).collect();
    let replaces =
        if spec.replaces.is_empty() { String::new() } else { format!(", replaces {}", spec.replaces) };
    let (place, what) = (&spec.environment, &spec.revision);
    format!("{place:<8} promotion of {what} begins: healthy in {}{replaces}", proofs.join(", "))
}

fn tell_phase(promotion: &Promotion, was_approved: bool) {
    let spec = &promotion.spec;
    let status = promotion.status.clone().unwrap_or_default();
    if let Some(approval) = spec.approval.as_ref().filter(|_| !was_approved) {
        say::done(&format!("{:<8} {} approved by {}", spec.environment, spec.revision, approval.by));
        return;
    }
    let message = short(&status.message);
    let text = format!("{:<8} {} {:?}: {message}", spec.environment, spec.revision, status.phase);
    match status.phase {
        Phase::Pending if status.message.is_empty() => {}
        Phase::Promoting => say::action(text.trim_end_matches([' ', ':'])),
        Phase::Delivered | Phase::Succeeded => say::done(&text),
        Phase::Failed | Phase::Rejected => say::failed(&text),
        _ => say::waiting(&text),
    }
}

/// A text with its commits cut to eight letters.
fn short(text: &str) -> String {
    let is_commit = |word: &str| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let cut = |word: &str| {
        let bare = word.trim_end_matches([';', ',', '.']);
        if is_commit(bare) { format!("{}{}", &bare[..8], &word[40..]) } else { word.to_owned() }
    };
    text.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}
