//! A hub with pipelines in every state, and people with different rights.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::fleet::Kind;
use sluice_core::planned_change::PlannedChange;
use sluice_core::proposed_file::{PlannedFile, PlannedFiles, ProposedFile};
use sluice_view::check::Installation;
use sluice_view::events::EventLine;
use sluice_view::object_name::FluxName;
use sluice_view::reconcile::{ReconcilePlan, RequestedObject};
use sluice_web::{Change, ChangeError, FileProposal, Hub, ObjectName, WantedEvents};
use tokio::sync::watch;

#[path = "installation.rs"]
mod installation;

/// A hub that remembers the changes that people make.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    objects: Mutex<Snapshot>,
    version: watch::Sender<u64>,
    changes: Mutex<Vec<(String, Change)>>,
    answer: Mutex<Result<(), ChangeError>>,
    planned: Mutex<Planned>,
    proposals: Mutex<Vec<FileProposal>>,
    reconciled: Mutex<Vec<(String, String, ReconcilePlan)>>,
    /// The tokens that are not accepted any more.
    revoked: Mutex<Vec<String>>,
}

/// What the delivery of each promotion would change.
type Planned = Result<Option<Arc<PlannedChange>>, String>;

impl World {
    pub fn new(snapshot: Snapshot) -> World {
        World(Arc::new(Shared {
            objects: Mutex::new(snapshot),
            version: watch::Sender::new(1),
            changes: Mutex::default(),
            answer: Mutex::new(Ok(())),
            planned: Mutex::new(Ok(None)),
            proposals: Mutex::default(),
            reconciled: Mutex::default(),
            revoked: Mutex::default(),
        }))
    }

    /// The objects are others from now on.
    pub fn set(&self, snapshot: Snapshot) {
        *self.0.objects.lock().unwrap() = snapshot;
        self.note_change();
    }

    /// Something has changed in a cluster.
    pub fn note_change(&self) {
        self.0.version.send_modify(|version| *version += 1);
    }

    /// A token is not accepted any more.
    pub fn revoke(&self, token: &str) {
        self.0.revoked.lock().unwrap().push(token.into());
    }

    /// Each further change is answered with this.
    pub fn answer(&self, answer: Result<(), ChangeError>) {
        *self.0.answer.lock().unwrap() = answer;
    }

    /// The delivery of each promotion would change this.
    pub fn plan(&self, planned: Planned) {
        *self.0.planned.lock().unwrap() = planned;
    }

    /// The files that were proposed, each with its confirmation if there was one.
    pub fn proposals(&self) -> Vec<FileProposal> {
        self.0.proposals.lock().unwrap().clone()
    }

    /// What was reconciled: the token, the namespace of the pipeline, and the plan.
    pub fn reconciled(&self) -> Vec<(String, String, ReconcilePlan)> {
        self.0.reconciled.lock().unwrap().clone()
    }

    /// The changes that were made, with the token of who made it.
    pub fn changes(&self) -> Vec<(String, Change)> {
        self.0.changes.lock().unwrap().clone()
    }
}

impl Hub for World {
    async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        let id_token = email_of_id_token(token);
        let token = id_token.as_deref().unwrap_or(token);
        match token {
            revoked if self.0.revoked.lock().unwrap().iter().any(|one| one == revoked) => {
                Err(AccessError::NotAccepted)
            }
            "admin" | "viewer" | "shop" | "tenant" | "eu" | "pipelines" | "promotions" | "podinfo"
            | "nobody" => Ok(Caller { name: token.into(), ..Caller::default() }),
            "down" => Err(AccessError::Unavailable("no answer".into())),
            _ => Err(AccessError::NotAccepted),
        }
    }

    async fn allows(&self, caller: &Caller, right: &Right) -> Result<bool, AccessError> {
        let (namespace, is_get) = (right.namespace.as_deref(), right.verb == "get");
        Ok(match caller.name.as_str() {
            "admin" => true,
            "viewer" => is_get,
            "shop" => namespace == Some("shop"),
            // They may get all objects of this kind, and no others.
            kind @ ("pipelines" | "promotions") => is_get && right.resource == kind,
            // They may get one Pipeline by its name, and all Promotions of its namespace.
            "podinfo" => {
                is_get
                    && namespace == Some("apps")
                    && (right.resource == "promotions" || right.name.as_deref() == Some("podinfo"))
            }
            // They may see the pipelines of one namespace, and two objects of the hub or one cluster.
            "tenant" | "eu" if right.group == "pipelines.weave.works" => is_get && namespace == Some("apps"),
            "tenant" => {
                let name = (namespace, right.name.as_deref());
                let object = (right.resource.as_str(), name);
                is_get
                    && [
                        ("helmreleases", (Some("apps"), Some("podinfo"))),
                        ("receivers", (Some("shared"), Some("tenant"))),
                    ]
                    .contains(&object)
            }
            "eu" => {
                let name = (namespace, right.name.as_deref());
                (right.resource.as_str(), name) == ("gitopsclusters", (Some("fleet"), Some("eu")))
            }
            _ => false,
        })
    }

    async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        Some(Arc::new(self.0.objects.lock().unwrap().clone()))
    }

    fn version(&self) -> u64 {
        *self.0.version.borrow()
    }

    async fn changed_since(&self, version: u64) {
        let _ = self.0.version.subscribe().wait_for(|now| *now > version).await;
    }

    async fn planned_change(&self, _: &Caller, _: &Pipeline, _: &Promotion) -> Planned {
        self.0.planned.lock().unwrap().clone()
    }

    async fn change(&self, token: &str, change: Change) -> Result<(), ChangeError> {
        self.0.changes.lock().unwrap().push((token.into(), change));
        self.0.answer.lock().unwrap().clone()
    }

    /// The admin may list all events, and `podinfo` those of its namespace.
    async fn events(&self, token: &str, wanted: WantedEvents) -> Result<Vec<EventLine>, ChangeError> {
        let namespace = wanted.namespace.as_deref();
        if token != "admin" && !(token == "podinfo" && namespace == Some("apps")) {
            return Err(ChangeError::Refused("events is forbidden".into()));
        }
        let event = |namespace: &str, object: &str, type_: &str| EventLine {
            last_seen: "2026-11-22T10:00:00Z".parse().ok(),
            type_: type_.into(),
            reason: "Pending".into(),
            namespace: namespace.into(),
            object: object.into(),
            message: "why".into(),
        };
        let mut all = vec![
            event("shop", "pipeline/checkout", "Warning"),
            event("apps", "pipeline/podinfo", "Normal"),
            event("apps", "promotion/podinfo-prod-1", "Warning"),
        ];
        all.retain(|event| {
            let name = event.object.split_once('/').unwrap().1;
            let is_of = |pipeline: &String| {
                name == pipeline || wanted.promotions.iter().any(|promotion| promotion == name)
            };
            namespace.is_none_or(|namespace| event.namespace == namespace)
                && wanted.pipeline.as_ref().is_none_or(is_of)
                && (wanted.types.is_empty() || wanted.types.contains(&event.type_))
        });
        Ok(all)
    }

    async fn installation<'a>(
        &self,
        _: &Caller,
        token: &str,
        namespace: Option<&'a str>,
        pipelines: &'a [Pipeline],
    ) -> Result<Installation<'a>, ChangeError> {
        self.0.answer.lock().unwrap().clone()?;
        Ok(installation::installation(token, namespace, pipelines))
    }

    async fn reconcile(
        &self,
        token: &str,
        namespace: &str,
        plan: ReconcilePlan,
    ) -> Result<Vec<RequestedObject>, ChangeError> {
        self.0.answer.lock().unwrap().clone()?;
        self.0.reconciled.lock().unwrap().push((token.into(), namespace.into(), plan.clone()));
        let item = |named: &FluxName| RequestedObject {
            kind: named.kind.clone(),
            namespace: named.namespace.clone(),
            name: named.name.clone(),
            problem: "it does not exist".into(),
        };
        Ok(plan.here.iter().map(item).collect())
    }

    /// A confirmation counts if it is `seen`.
    async fn propose(
        &self,
        _: &Caller,
        _: &str,
        proposal: FileProposal,
    ) -> Result<ProposedFile, ChangeError> {
        self.0.proposals.lock().unwrap().push(proposal.clone());
        self.0.answer.lock().unwrap().clone()?;
        if proposal.confirmation.as_deref() == Some("seen") {
            let url = "javascript:alert(1)".into();
            return Ok(ProposedFile::Opened { number: 7, url, notes: vec!["no <b>joe</b>".into()] });
        }
        let before = proposal.edited.as_ref().map(|_| "kind: Old\n");
        let mut files = vec![PlannedFile::new(&proposal.path, before, &proposal.yaml)];
        let manifests = proposal.manifests.iter();
        files.extend(manifests.map(|manifest| PlannedFile::new(&manifest.path, None, &manifest.yaml)));
        let (repository, branch) = ("https://git.example.com/team/fleet".into(), "main".into());
        let planned = PlannedFiles { repository, branch, files, confirmation: "seen".into() };
        Ok(ProposedFile::Planned(planned))
    }

    /// Only the admin reads applications.
    async fn application(&self, token: &str, kind: Kind, name: &ObjectName) -> Result<Value, ChangeError> {
        if token != "admin" {
            return Err(ChangeError::Refused("helmreleases is forbidden".into()));
        }
        Ok(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": kind.name(),
            "metadata": {"name": name.name, "namespace": name.namespace, "uid": "u"},
            "spec": {"chart": {"spec": {"chart": "podinfo", "version": "6.x",
                "sourceRef": {"kind": "HelmRepository", "name": "podinfo"}}}, "values": {"text": "</textarea><b>"}},
            "status": {"history": [{"chartVersion": "6.1.5", "status": "deployed"}]}}))
    }
}

/// Returns whose ID token this is. This hub takes one word for a signature.
fn email_of_id_token(token: &str) -> Option<String> {
    let payload = token.strip_suffix(".signed")?.split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    Some(claims["email"].as_str()?.into())
}

/// An environment in a status: its revision, its health, and the error of its target.
pub fn environment(revision: &str, health: &str, error: &str) -> Value {
    json!({"revision": revision, "targets": [{"name": "podinfo", "namespace": "podinfo", "health": health,
        "since": "2026-11-22T09:00:00Z", "ready": health == "Ready", "revision": revision, "error": error,
        "clusterAppRef": {"kind": "HelmRelease", "name": "podinfo"},
        "workloads": [{"kind": "HelmRelease", "name": "podinfo", "version": revision}]}]})
}

/// A pipeline with the environments dev, staging and prod.
pub fn pipeline(namespace: &str, name: &str, statuses: [Value; 3]) -> StoredPipeline {
    let names = ["dev", "staging", "prod"];
    let environments: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "targets": [{"namespace": "podinfo"}]})).collect();
    let statuses: BTreeMap<&str, Value> = names.into_iter().zip(statuses).collect();
    let object: Pipeline = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": name, "namespace": namespace, "generation": 1, "uid": "pipeline-uid"},
        "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "environments": environments,
            "promotion": {"manual": true, "strategy": {"pull-request": {"type": "gitea",
                "url": "https://git.example.com/acme/fleet", "baseBranch": "main", "secretRef": {"name": "git"}}}}},
    }))
    .unwrap();
    let status = json!({"observedGeneration": 1, "environments": statuses,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "message": "all targets were read",
            "lastTransitionTime": "2026-11-22T09:00:00Z"}]});
    let status = serde_json::value::to_raw_value(&status).unwrap();
    StoredPipeline { object: Arc::new(object), status: Some(status.into()) }
}

/// A promotion of a revision into prod.
pub fn promotion(namespace: &str, pipeline: &str, revision: &str, status: Value) -> Arc<Promotion> {
    let object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
        "metadata": {"name": format!("{pipeline}-prod-1"), "namespace": namespace, "uid": "promotion-uid", "generation": 3,
            "creationTimestamp": "2026-11-22T10:00:00Z"},
        "spec": {"pipeline": pipeline, "environment": "prod", "revision": revision, "facets": {"chart": revision},
            "replaces": "6.1.8", "sequence": 1,
            "evidence": [{"environment": "staging", "target": "podinfo", "at": "2026-11-22T09:59:00Z"}]},
        "status": status,
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Objects by the name of their pipeline.
pub fn snapshot(pipelines: Vec<StoredPipeline>, promotions: Vec<Arc<Promotion>>) -> Snapshot {
    let key = |object: &Pipeline| {
        (object.metadata.namespace.clone().unwrap(), object.metadata.name.clone().unwrap())
    };
    let mut by_pipeline: BTreeMap<(String, String), Vec<Arc<Promotion>>> = BTreeMap::new();
    for promotion in promotions {
        let namespace = promotion.metadata.namespace.clone().unwrap();
        by_pipeline.entry((namespace, promotion.spec.pipeline.clone())).or_default().push(promotion);
    }
    Snapshot {
        is_complete: true,
        pipelines: pipelines.into_iter().map(|stored| (key(&stored.object), stored)).collect(),
        promotions: by_pipeline,
    }
}

/// Waits for an approval, is broken, is up to date, and is hostile.
pub fn every_state() -> Snapshot {
    let ready = |revision: &str| environment(revision, "Ready", "");
    let waits = json!({"phase": "Pending", "message": "waits for approval", "times": {},
        "gates": [{"name": "Approval", "open": false, "message": "waits for approval"}]});
    let crash = "Deployment checkout: CrashLoopBackOff, 3 of 5 pods";
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    snapshot(
        vec![
            pipeline("apps", "podinfo", [ready("6.2.0"), ready("6.2.0"), ready("6.1.8")]),
            pipeline(
                "shop",
                "checkout",
                [ready("2.14.1"), environment("2.14.1", "Failed", crash), ready("2.13.0")],
            ),
            pipeline("shop", "mailer", [ready("3.3.1"), ready("3.3.1"), ready("3.3.1")]),
            pipeline("evil", "evil", [ready(evil), environment(evil, "Failed", evil), ready("1")]),
        ],
        vec![
            promotion("apps", "podinfo", "6.2.0", waits.clone()),
            promotion(
                "evil",
                "evil",
                evil,
                json!({"phase": "Proposed", "message": evil, "times": {},
                "changeRequest": {"number": 1, "url": "javascript:alert(3)", "state": "Open", "branch": evil, "headCommit": "",
                    "checks": {"commit": "c", "since": "2026-11-22T10:00:00Z", "failed": 30, "items": [
                        {"name": evil, "result": "failed", "required": true, "url": "javascript:alert(4)"}]}}}),
            ),
        ],
    )
}
