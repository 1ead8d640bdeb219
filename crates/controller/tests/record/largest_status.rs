//! The status of the largest fleet that one Pipeline can name, against a real API server: it is written,
//! no verified revision is lost, and failures are shown in full.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_api::Pipeline;
use sluice_api::pipeline::PipelineStatus;
use sluice_controller::observe::reported::Reports;
use sluice_controller::pipeline_key::PipelineKey;
use sluice_controller::record::status::{StatusFacts, compose};
use sluice_controller::state::status_queue::{Basis, StatusOwner, WriteOutcome, serialize_status};
use sluice_controller::translate;
use sluice_core::Revision;
use sluice_core::decide::Decision;
use sluice_core::evidence::{Evidence, Proof};
use sluice_core::observed::{Health, MadeWorkload, Member, ObservedTarget, ObservedTargets};
use sluice_core::revision::Facet;
use sluice_core::tracks::DefaultFacet;
use sluice_delivery::FencingToken;

use crate::hub;
use crate::writer::Writer;

const MEMBERS: usize = 9;
const FAILING: (&str, &str) = ("e7", "target-99");

/// 16 environments of 128 targets, each in a namespace with its number.
fn fleet() -> Result<Pipeline> {
    let target = |n: usize| json!({"namespace": format!("podinfo-{n}"), "name": format!("target-{n}")});
    let environments: Vec<_> = (0..16)
        .map(|e| json!({"name": format!("e{e}"), "targets": (0..128).map(target).collect::<Vec<_>>()}))
        .collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "default"},
        "spec": {"environments": environments,
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo-0"}},
    }))?)
}

/// A target with many members, each of which has made a Deployment.
fn target(health: Health) -> ObservedTarget {
    let message = if health == Health::Ready { String::new() } else { "its own words ".repeat(60) };
    let member = |n: usize| Member {
        kind: "HelmRelease".into(),
        name: format!("podinfo-{n}"),
        health,
        message: message.clone(),
        not_applied: None,
        since: None,
        gave_up: BTreeMap::new(),
        version: "6.1.8".into(),
        facets: [(Facet::Chart, "6.1.8".to_string())].into(),
        default_facet: DefaultFacet::Chart,
        source: None,
        workloads: vec![MadeWorkload {
            kind: "Deployment".into(),
            name: format!("podinfo-{n}"),
            health,
            message: String::new(),
            images: vec!["ghcr.io/stefanprodan/podinfo:6.1.8".into()],
        }],
    };
    ObservedTarget::of((0..MEMBERS).map(|n| member(n).into()).collect())
}

/// Ten verified revisions of each target and one that is not, the same for all.
fn verified(object: &Pipeline) -> Result<Evidence> {
    let at: Timestamp = "2026-11-21T10:00:00Z".parse()?;
    let revision = |n: usize| {
        let facet = |m: usize| (format!("HelmRelease/podinfo-{m}:chart"), format!("6.1.{n}"));
        Revision::from_strings(&(0..MEMBERS).map(facet).collect::<BTreeMap<_, _>>())
    };
    let (mut evidence, mut arrival) = (Evidence::default(), 0);
    for environment in &object.spec.environments {
        for name in environment.target_names() {
            let proof = |n: usize| {
                arrival += 1;
                Some(Proof { revision: revision(n)?, arrival, run: 0, at })
            };
            let proofs = (0..10).map(proof).collect::<Option<Vec<_>>>().context("a revision")?;
            evidence.insert(&environment.name, &name, proofs);
            evidence.insert_unproven(&environment.name, &name, revision(10).context("a revision")?);
        }
    }
    Ok(evidence)
}

fn status(object: &Pipeline, evidence: &Evidence, health: Health) -> Result<PipelineStatus> {
    let mut observed = ObservedTargets::default();
    for environment in &object.spec.environments {
        for name in environment.target_names() {
            let fails = (environment.name.as_str(), name.as_str()) == FAILING;
            let observed_target = target(if fails { Health::Failed } else { health });
            observed.insert(&environment.name, &name, observed_target);
        }
    }
    Ok(compose(&StatusFacts {
        object,
        before: &PipelineStatus::default(),
        pipeline: &translate::pipeline(object),
        observed: &observed,
        unanswered: &BTreeSet::new(),
        reports: &Reports::new(),
        hook_secret: None,
        lost_clusters: Vec::new(),
        evidence,
        decision: &Decision::default(),
        promotions: &[],
        now: "2026-11-21T10:00:00Z".parse()?,
    }))
}

/// Writes a status like the controller.
async fn write(client: &Client, status: &PipelineStatus) -> Result<WriteOutcome> {
    let key = PipelineKey { namespace: "default".into(), name: "podinfo".into() };
    let (owner, status) = (StatusOwner::Pipeline(key), serialize_status(status)?);
    Writer::new(client.clone()).write(&owner, status, Basis::default(), FencingToken::default()).await
}

#[tokio::test]
async fn the_status_of_the_largest_fleet_is_written_with_all_verified_revisions() -> Result<()> {
    let (_cluster, client) = hub("largest").await?;
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "default");
    let object = api.create(&PostParams::default(), &fleet()?).await?;
    let evidence = verified(&object)?;
    // All targets but one are healthy; then all fail.
    for health in [Health::Ready, Health::Failed] {
        let composed = status(&object, &evidence, health)?;
        let begun = std::time::Instant::now();
        let outcome = write(&client, &composed).await?;
        println!(
            "{health:?}: {} bytes, written in {:?}",
            serde_json::to_vec(&composed)?.len(),
            begun.elapsed()
        );
        ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{health:?}: {outcome:?}");
        let stored = api.get(&object.name_any()).await?.status.context("a status")?;
        ensure!(translate::evidence(Some(&stored)) == evidence, "{health:?}: a verified revision is lost");
        let summarized = stored.conditions.iter().find(|c| c.type_ == "Summarized").context("a condition")?;
        ensure!(summarized.message.contains("too large for one object"), "{}", summarized.message);
        let targets: Vec<_> = stored.environments.values().flat_map(|e| &e.targets).collect();
        ensure!(targets.len() == 2048 && targets.iter().all(|t| t.revision.is_some()));
        if health == Health::Ready {
            let failing = stored.environments[FAILING.0].targets.iter().find(|t| t.name == FAILING.1);
            let failing = failing.context("the target that fails")?;
            ensure!(failing.health == Health::Failed && failing.workloads.len() == 2 * MEMBERS);
            ensure!(failing.workloads[0].message.len() > 800, "{}", failing.workloads[0].message);
        }
    }
    Ok(())
}

/// Names as long as Kubernetes allows: the spec alone takes two thirds of what an object may have.
#[tokio::test]
async fn the_status_of_a_fleet_with_the_longest_names_is_written() -> Result<()> {
    let (_cluster, client) = hub("longest").await?;
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "default");
    let long = |n: usize, length: usize| format!("{n:n>length$}");
    let mut wanted = fleet()?;
    for (n, target) in wanted.spec.environments.iter_mut().flat_map(|e| &mut e.targets).enumerate() {
        (target.name, target.namespace) = (Some(long(n, 63)), long(n, 63));
        let cluster = json!({"kind": "GitopsCluster", "name": long(n, 253)});
        target.cluster_ref = Some(serde_json::from_value(cluster)?);
    }
    let object = api.create(&PostParams::default(), &wanted).await?;
    for health in [Health::Ready, Health::Failed] {
        let composed = status(&object, &verified(&object)?, health)?;
        let outcome = write(&client, &composed).await?;
        ensure!(matches!(outcome, WriteOutcome::Stored(_)), "{health:?}: {outcome:?}");
        let stored = api.get(&object.name_any()).await?.status.context("a status")?;
        let summarized = stored.conditions.iter().find(|c| c.type_ == "Summarized").context("a condition")?;
        ensure!(summarized.message.contains("clusters of the targets"), "{}", summarized.message);
    }
    Ok(())
}
