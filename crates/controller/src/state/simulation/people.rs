//! What people change in a simulation, as the rules of the CRDs allow.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kube::ResourceExt;
use serde_json::json;
use sluice_api::pipeline::{Pipeline, PipelineSpec};
use sluice_api::promotion::{Approval, Phase, Promotion, Rejection};
use sluice_delivery::MergeMode;

use super::controller_simulation::{ControllerSimulation, ENVIRONMENTS, SECOND_DEV};
use super::forge::strategy;
use super::server::HubEvent;

/// The pipelines of all histories, read from JSON once.
static WITH_COMMITS: LazyLock<Pipeline> = LazyLock::new(|| pipeline(false));
static WITH_REQUESTS: LazyLock<Pipeline> = LazyLock::new(|| pipeline(true));

impl ControllerSimulation {
    pub(super) fn create_pipeline(&mut self, manual: bool) {
        let template = if self.has_requests { &WITH_REQUESTS } else { &WITH_COMMITS };
        let mut object = Pipeline::clone(template);
        object.metadata.uid = Some(format!("pipeline-{}", self.server.version));
        object.spec.promotion.as_mut().unwrap().manual = manual;
        self.server.store_pipeline(object);
    }

    pub(super) fn suspend(&mut self, suspend: bool) {
        self.edit_pipeline(|spec| spec.suspend = suspend);
    }

    /// The owner says whether each promotion needs an approval.
    pub(super) fn set_manual(&mut self, manual: bool) {
        self.edit_pipeline(|spec| spec.promotion.as_mut().unwrap().manual = manual);
    }

    /// The owner names another branch to commit to.
    pub(super) fn set_branch(&mut self, branch: &str) {
        self.edit_pipeline(|spec| {
            let strategy = spec.promotion.as_mut().unwrap().strategy.as_mut().unwrap();
            strategy.commit.as_mut().unwrap().branch = branch.into();
        });
    }

    fn edit_pipeline(&mut self, edit: impl FnOnce(&mut PipelineSpec)) {
        let Some(before) = self.server.pipeline.clone() else { return };
        let mut pipeline = before.as_ref().clone();
        edit(&mut pipeline.spec);
        if pipeline.spec != before.spec {
            pipeline.metadata.generation = pipeline.metadata.generation.map(|generation| generation + 1);
            self.server.store_pipeline(pipeline);
        }
    }

    /// The owner says whether Sluice merges change requests, and from which branch they come.
    pub(super) fn edit_requests(&mut self, merge: Option<bool>, is_renamed: Option<bool>) {
        self.edit_pipeline(|spec| {
            let strategy = spec.promotion.as_mut().and_then(|promotion| promotion.strategy.as_mut());
            let Some(requests) = strategy.and_then(|s| s.pull_request.as_mut()) else { return };
            if let Some(merge) = merge {
                requests.merge = if merge { MergeMode::WhenGreen } else { MergeMode::Never };
            }
            if let Some(is_renamed) = is_renamed {
                let branch = "deploy/{namespace}/{pipeline}/{environment}";
                requests.branch = is_renamed.then(|| branch.into());
            }
        });
    }

    /// The owner lets Sluice promote by change request or by commit.
    pub(super) fn set_strategy(&mut self, by_request: bool) {
        let strategy = serde_json::from_value(strategy(by_request)).unwrap();
        self.edit_pipeline(|spec| spec.promotion.as_mut().unwrap().strategy = Some(strategy));
    }

    /// The owner deletes the Pipeline and creates it again. Its Promotions are deleted later.
    pub(super) fn recreate(&mut self) {
        let Some(pipeline) = self.server.pipeline.take() else { return };
        let manual = pipeline.spec.promotion.as_ref().is_some_and(|promotion| promotion.manual);
        self.server.version += 1;
        self.server.log.push(HubEvent::PipelineDeleted(pipeline));
        self.create_pipeline(manual);
    }

    /// The hub deletes the Promotions of earlier Pipelines.
    pub(super) fn collect_garbage(&mut self) {
        let uid = self.server.pipeline.as_ref().and_then(|pipeline| pipeline.uid());
        let is_owned =
            |object: &Arc<Promotion>| object.owner_references().iter().any(|o| Some(&o.uid) == uid.as_ref());
        let names = self.server.promotions.iter().filter(|(_, object)| !is_owned(object));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.delete_named(name));
    }

    /// Changes a promotion as a person.
    fn edit(&mut self, index: usize, edit: impl FnOnce(&mut Promotion)) {
        let Some(name) = self.server.nth(index) else { return };
        let mut object = self.server.promotions[&name].as_ref().clone();
        edit(&mut object);
        self.server.store_promotion(object);
    }

    pub(super) fn approve(&mut self, index: usize) {
        self.edit(index, |object| {
            let revision = object.spec.revision.clone();
            let retries = object.status.as_ref().map_or(0, |status| status.retries);
            if object.spec.approval.as_ref().is_none_or(|before| before.retries < retries) {
                object.spec.approval = Some(Approval { by: "ann".into(), revision, retries, at: None });
            }
        });
    }

    /// Rejects the current try, if the API server accepts that: it is given once for each try, and not after the delivery.
    pub(super) fn reject(&mut self, index: usize) {
        let mut accepted = None;
        self.edit(index, |object| {
            let status = object.status.clone().unwrap_or_default();
            let (revision, retries) = (object.spec.revision.clone(), status.retries);
            let is_over = matches!(status.phase, Phase::Delivered | Phase::Succeeded | Phase::Rejected);
            if !is_over && object.spec.rejection.as_ref().is_none_or(|before| before.retries < retries) {
                let by = "bob".into();
                let rejection = Rejection { by, revision, retries, reason: "no".into() };
                accepted = Some((object.uid(), (rejection.clone(), object.spec.retry.clone())));
                object.spec.rejection = Some(rejection);
            }
        });
        self.rejections.extend(accepted);
    }

    /// Requests another try.
    pub(super) fn retry(&mut self, index: usize) {
        let token = self.elapsed.to_string();
        self.edit(index, |object| object.spec.retry = Some(token));
    }

    /// Changes the metadata of a promotion and of the pipeline.
    pub(super) fn annotate(&mut self, index: usize) {
        let now = self.elapsed.to_string();
        self.edit(index, |object| {
            object.annotations_mut().insert("example.com/seen".into(), now.clone());
        });
        if let Some(mut pipeline) = self.server.pipeline.as_deref().cloned() {
            pipeline.annotations_mut().insert("example.com/seen".into(), now);
            self.server.store_pipeline(pipeline);
        }
    }

    pub(super) fn delete(&mut self, index: usize) {
        if let Some(name) = self.server.nth(index) {
            self.delete_named(&name);
        }
    }

    fn delete_named(&mut self, name: &str) {
        let Some(object) = self.server.promotions.remove(name) else { return };
        self.server.version += 1;
        self.server.log.push(HubEvent::Deleted(object));
    }

    /// The owner moves the target of prod to another cluster, which has the same namespace and HelmRelease.
    pub(super) fn move_prod(&mut self, is_remote: bool) {
        let cluster = json!({"kind": "GitopsCluster", "name": "eu"});
        let cluster = is_remote.then(|| serde_json::from_value(cluster).unwrap());
        self.edit_pipeline(|spec| spec.environments[2].targets[0].cluster_ref = cluster);
    }
}

/// A pipeline that promotes by change request and needs two targets of dev, or one that commits.
fn pipeline(has_requests: bool) -> Pipeline {
    let environment = |name: &&str| json!({"name": name, "targets": [{"namespace": name, "name": name}]});
    let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"});
    let mut environments: Vec<serde_json::Value> = ENVIRONMENTS.iter().map(environment).collect();
    let mut promotion = json!({"strategy": strategy(has_requests)});
    if has_requests {
        let targets = environments[0]["targets"].as_array_mut().unwrap();
        targets.push(json!({"namespace": SECOND_DEV, "name": SECOND_DEV}));
        promotion["minReadyTargets"] = "100%".into();
    }
    let spec = json!({"appRef": app, "environments": environments, "promotion": promotion});
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "spec": spec,
        "metadata": {"name": "podinfo", "namespace": "apps", "generation": 1}});
    serde_json::from_value(object).unwrap()
}

/// Whether the last rejection that the API server accepted is in this version of a promotion, and no later request for another
/// try.
pub(super) fn is_rejected(
    rejections: &BTreeMap<Option<String>, (Rejection, Option<String>)>,
    promotion: &Promotion,
) -> bool {
    let last = rejections.get(&promotion.uid());
    last.is_some_and(|(rejection, retry)| {
        promotion.spec.rejection.as_ref() == Some(rejection) && promotion.spec.retry == *retry
    })
}
