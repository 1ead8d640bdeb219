//! The API server refuses all changes of a Promotion's spec except the fields that people set, and each of these is set
//! once. The requests are those of an administrator, to whom no policy applies.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::Promotion;
use sluice_testkit::shared;

/// A stored Promotion with every field set.
struct Stored {
    api: Api<Promotion>,
    name: String,
}

async fn stored(name: &str, more: Value) -> Stored {
    let hub = &shared().await.unwrap().hub;
    hub.namespace("immutable").await.unwrap();
    let api: Api<Promotion> = Api::namespaced(hub.client().await.unwrap(), "immutable");
    let mut object = json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": name},
        "spec": {
            "pipeline": "podinfo", "environment": "prod", "target": "eu", "revision": "6.1.8",
            "facets": {"HelmRelease/podinfo:chart": "6.1.8"}, "run": 1, "arrival": 7, "sequence": 3,
            "replaces": "6.1.7",
            "evidence": [{"environment": "staging", "target": "one", "at": "2026-11-21T10:00:00Z"}],
            "trigger": {"key": "build-1", "at": "2026-11-21T10:00:00Z"},
        },
    });
    let spec = object["spec"].as_object_mut().unwrap();
    spec.extend(more.as_object().unwrap().clone());
    spec.retain(|_, value| !value.is_null());
    let _ = api.delete(name, &DeleteParams::default()).await;
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    Stored { api, name: name.into() }
}

impl Stored {
    /// Merges into the spec, as `kubectl patch --type merge` does.
    async fn patch(&self, spec: Value) -> Result<(), String> {
        let patch = Patch::Merge(json!({"spec": spec}));
        match self.api.patch(&self.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(other) => panic!("the API server did not answer: {other}"),
        }
    }

    async fn refused(&self, spec: Value, sentence: &str) {
        match self.patch(spec.clone()).await {
            Ok(()) => panic!("{spec} was accepted"),
            Err(error) => assert!(error.contains(sentence), "{spec} was refused with: {error}"),
        }
    }

    async fn status(&self, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.api.patch_status(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }
}

const DECIDED: &str =
    "a Promotion records what Sluice decided: only spec.approval, spec.rejection and spec.retry can be set";

#[tokio::test]
async fn all_fields_except_those_of_people_are_immutable() {
    let full = stored("full", json!({})).await;
    let optional = json!({"target": null, "replaces": null, "evidence": null, "trigger": null});
    let bare = stored("bare", optional).await;
    let changes = json!({
        "pipeline": "other", "environment": "dev", "target": "us", "revision": "6.6.6",
        "facets": {"HelmRelease/podinfo:chart": "6.6.6"}, "run": 2, "arrival": 999_999, "sequence": 4,
        "replaces": "6.1.6",
        "evidence": [{"environment": "staging", "target": "two", "at": "2026-11-21T10:00:00Z"}],
        "trigger": {"key": "build-2"},
    });
    let changes = changes.as_object().unwrap();
    for (field, value) in changes {
        full.refused(json!({field: value}), DECIDED).await;
    }
    full.refused(json!({"facets": {"HelmRelease/other:chart": "1"}}), DECIDED).await;
    for field in ["target", "run", "arrival", "sequence", "replaces", "evidence", "trigger"] {
        full.refused(json!({field: null}), DECIDED).await;
    }
    for field in ["target", "replaces", "evidence"] {
        bare.refused(json!({field: changes[field]}), DECIDED).await;
    }
    bare.refused(json!({"trigger": {"key": "build-1", "at": "2026-11-21T10:00:00Z"}}), DECIDED).await;
    // A forged promotion.
    full.refused(
        json!({"facets": {"HelmRelease/podinfo:chart": "6.6.6"}, "revision": "6.6.6", "arrival": 999_999,
            "approval": {"by": "admin", "revision": "6.6.6"}}),
        DECIDED,
    )
    .await;
    // Every field is tried above, or set by people.
    let set_by_people = ["approval", "rejection", "retry"];
    let crd = serde_json::to_value(&sluice_api::all_crds()[1]).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for field in schema.as_object().unwrap().keys() {
        let tried = changes.contains_key(field) || set_by_people.contains(&field.as_str());
        assert!(tried, "spec.{field} is new: make it immutable in promotion/spec_rules.rs and try it here");
    }
}

#[tokio::test]
async fn an_approval_is_given_once_for_each_try_and_for_this_revision() {
    let stored = stored("approved", json!({})).await;
    let approval =
        |retries: u32| json!({"approval": {"by": "admin", "revision": "6.1.8", "retries": retries}});
    let another = "spec.approval.revision must be spec.revision";
    stored.refused(json!({"approval": {"by": "admin", "revision": "6.1.9"}}), another).await;
    stored.refused(json!({"approval": {"by": "admin"}}), another).await;
    let timed = json!({"approval": {"by": "admin", "revision": "6.1.8", "at": "2026-11-21T10:00:00Z"}});
    stored.refused(timed, "leave out spec.approval.at: the controller records the time").await;
    stored.refused(approval(1), "spec.approval.retries must be status.retries").await;
    stored.patch(approval(0)).await.unwrap();
    stored.patch(approval(0)).await.unwrap();
    let once =
        "an approval is given once, and cannot be changed or taken back: to stop the promotion, reject it";
    stored.refused(json!({"approval": null}), once).await;
    stored.refused(json!({"approval": {"by": "joe", "revision": "6.1.8"}}), once).await;
    stored.refused(approval(1), "spec.approval.retries must be status.retries").await;
    stored.status(json!({"phase": "Pending", "retries": 1})).await;
    stored.refused(json!({"approval": {"by": "joe"}}), once).await;
    stored.patch(approval(1)).await.unwrap();
    stored.refused(approval(0), once).await;
}

#[tokio::test]
async fn a_stored_approval_of_an_earlier_version_stays_and_is_replaced_after_a_retry() {
    let before = json!({"by": "jane", "at": "2026-11-21T10:00:00Z"});
    let stored = stored("earlier", json!({"approval": before, "retry": "again"})).await;
    stored.status(json!({"phase": "Failed"})).await;
    assert_eq!(
        stored.api.get("earlier").await.unwrap().spec.approval.unwrap().at,
        before["at"].as_str().map(|at| at.parse().unwrap())
    );
    let new = json!({"approval": {"by": "admin", "revision": "6.1.8", "at": null}});
    stored.refused(new.clone(), "an approval is given once").await;
    stored.patch(json!({"retry": "2026-11-21T11:00:00Z"})).await.unwrap();
    stored.status(json!({"phase": "Pending", "spentApproval": before})).await;
    stored.patch(new).await.unwrap();
}

#[tokio::test]
async fn a_rejection_is_given_once_while_the_revision_is_not_delivered() {
    let stored = stored("rejected", json!({})).await;
    let rejection = |reason: &str, retries: u32| json!({"rejection": {"by": "admin", "reason": reason, "revision": "6.1.8", "retries": retries}});
    let mut other = rejection("no", 0);
    other["rejection"]["revision"] = "6.1.9".into();
    stored.refused(other, "spec.rejection.revision must be spec.revision").await;
    stored.refused(rejection("", 0), "spec.rejection.reason in body should be at least 1 chars long").await;
    stored.refused(rejection("no", 1), "spec.rejection.retries must be status.retries").await;
    for phase in ["Delivered", "Succeeded"] {
        stored.status(json!({"phase": phase})).await;
        stored.refused(rejection("no", 0), "this promotion cannot be rejected any more").await;
    }
    stored.status(json!({"phase": "Proposed"})).await;
    stored.patch(rejection("no", 0)).await.unwrap();
    let once = "a rejection is given once, and cannot be changed or taken back";
    stored.refused(rejection("still no", 0), once).await;
    stored.refused(json!({"rejection": null}), once).await;
    // These would start again on their own.
    for (retries, phase) in [(1, "Pending"), (2, "Superseded"), (3, "Cancelled")] {
        stored.status(json!({"phase": phase, "retries": retries})).await;
        stored.patch(rejection("still no", retries)).await.unwrap();
    }
}

#[tokio::test]
async fn a_retry_only_moves_forward() {
    let stored = stored("retried", json!({})).await;
    let format = "spec.retry is the time of the request: write one such as 2026-11-21T10:00:00Z";
    for text in ["now", "", "2026-11-21", "9"] {
        stored.refused(json!({"retry": text}), format).await;
    }
    let long = format!("2026-11-21T10:00:00.{}Z", "0".repeat(1 << 20));
    stored.refused(json!({"retry": long}), "may not be more than 64").await;
    let forward = "spec.retry only moves forward: write a later time";
    stored.patch(json!({"retry": "2026-11-21T10:00:00Z"})).await.unwrap();
    stored.patch(json!({"retry": "2026-11-21T10:00:00.25Z"})).await.unwrap();
    for text in ["2026-11-21T10:00:00Z", "2026-11-21T09:00:00.25Z", "2026-11-21T11:00:00+01:00"] {
        stored.refused(json!({"retry": text}), forward).await;
    }
    stored.refused(json!({"retry": null}), forward).await;
    // A request with a time in the far future does not prevent later requests.
    stored.patch(json!({"retry": "9999-12-31T23:59:59.999999999Z"})).await.unwrap();
    stored.patch(json!({"retry": "2026-11-21T10:00:01Z"})).await.unwrap();
    stored.refused(json!({"retry": "2026-11-21T10:00:00Z"}), forward).await;
    // An earlier version stored a text that is no time.
    let earlier = self::stored("retried-earlier", json!({"retry": "again"})).await;
    earlier.refused(json!({"retry": null}), forward).await;
    earlier.patch(json!({"retry": "2026-11-21T10:00:00Z"})).await.unwrap();
}
