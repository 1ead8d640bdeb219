//! Whether a Promotion is still as Sluice recorded it. The rules of the CRD reject changes of its spec; this check
//! covers clusters without these rules, and Promotions that someone else created.

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_api::promotion::{Promotion, PromotionSpec};
use sluice_core::Revision;
use sluice_core::hex::sha256_hex;
use sluice_core::pipeline::{Environment, Pipeline};
use sluice_core::promotion_name::{promotion_name, trigger_name};

/// The reason of a Promotion that is not as Sluice recorded it.
pub(crate) const TAMPERED: &str = "Tampered";

/// The highest arrival and sequence that a pipeline reaches by counting. The API server accepts numbers up to
/// twice as high, so that it accepts the next ones too.
const MAX_COUNT: u64 = 1 << 52;

/// Returns why a record cannot be one that Sluice wrote for this pipeline, or `None` if it can be.
///
/// The message names a Promotion without an owner, whose name is of another pipeline, as one that its pipeline may have left:
/// Kubernetes removes the owner references if somebody deletes the pipeline with `--cascade=orphan`, and the name depends on
/// the uid of the pipeline.
///
/// The name says what a Promotion is for, and cannot change; the digest in the status says what the rest of the
/// spec was when the controller first saw it.
pub fn tampered(pipeline: &Pipeline, promotion: &Promotion) -> Option<String> {
    let what = difference(pipeline, promotion)?;
    let has_owner = promotion.owner_references().iter().any(|owner| owner.kind == "Pipeline");
    let remedy = match has_owner || what != OTHER_NAME {
        true => "Find out who wrote it, then delete it",
        false => {
            "It has no owner: it is left of a deleted pipeline of this name (kubectl delete --cascade=orphan), or \
             somebody wrote it. Delete it"
        }
    };
    Some(format!(
        "this Promotion is not as Sluice recorded it: {what}; Sluice does not deliver it. {remedy}: \
         kubectl delete promotion -n {} {}",
        pipeline.namespace,
        promotion.name_any()
    ))
}

/// The name of a Promotion is not the one that its pipeline gives it.
const OTHER_NAME: &str = "its name does not follow from its spec";

fn difference(pipeline: &Pipeline, promotion: &Promotion) -> Option<&'static str> {
    let spec = &promotion.spec;
    if spec.pipeline != pipeline.name {
        return Some("spec.pipeline names another pipeline");
    }
    let Some(revision) = Revision::from_strings(&spec.facets) else {
        return Some("spec.facets cannot be read");
    };
    if spec.revision != revision.to_string() {
        return Some("spec.revision is not the revision of spec.facets");
    }
    let place = place(spec);
    let name = match &spec.trigger {
        Some(trigger) => trigger_name(pipeline, &place, &trigger.key),
        None => promotion_name(pipeline, &place, &revision, spec.run),
    };
    if promotion.name_any() != name {
        return Some(OTHER_NAME);
    }
    if spec.arrival > MAX_COUNT || spec.sequence > MAX_COUNT {
        return Some("spec.arrival or spec.sequence is out of range");
    }
    let status = promotion.status.as_ref();
    let first_seen = status.map(|s| s.spec_digest.as_str()).filter(|digest| !digest.is_empty());
    match first_seen {
        Some(first_seen) if first_seen != digest(spec) => Some("its spec was changed after it was recorded"),
        _ => None,
    }
}

/// The environment or target of a promotion, as far as the promotion's name depends on it.
fn place(spec: &PromotionSpec) -> Environment {
    Environment {
        name: spec.environment.clone(),
        only_target: spec.target.clone(),
        targets: Vec::new(),
        depends_on: Vec::new(),
        policy: None,
    }
}

/// Returns the SHA-256 of the fields of a spec that never change, in hexadecimal.
///
/// Other versions of Sluice compare it too, so a new field may change the digest only if it is set.
pub fn digest(spec: &PromotionSpec) -> String {
    let evidence = |e: &sluice_api::promotion::Evidence| json!([e.environment, e.target, e.at]);
    let fields = json!([
        spec.pipeline,
        spec.environment,
        spec.target,
        spec.revision,
        spec.facets,
        spec.run,
        spec.arrival,
        spec.sequence,
        spec.replaces,
        spec.evidence.iter().map(evidence).collect::<Vec<Value>>(),
        spec.trigger.as_ref().map(|t| json!([t.key, t.at])),
    ]);
    sha256_hex(fields.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::api::ObjectMeta;
    use sluice_api::promotion::{Approval, Evidence, PromotionStatus, Rejection, Trigger};

    use super::*;

    fn pipeline() -> Pipeline {
        let (namespace, name, uid) = ("apps".into(), "podinfo".into(), "u-1".into());
        Pipeline { namespace, name, uid, suspended: false, tracks: Vec::new(), environments: Vec::new() }
    }

    fn facets(chart: &str) -> BTreeMap<String, String> {
        [("HelmRelease/podinfo:chart".to_string(), chart.to_string())].into()
    }

    /// A record as Sluice writes it, whose first status is stored.
    fn recorded(target: Option<&str>, key: Option<&str>) -> Promotion {
        let at = "2026-11-21T10:00:00Z".parse().unwrap();
        let evidence = Evidence { environment: "dev".into(), target: "eu".into(), at };
        let spec = PromotionSpec {
            pipeline: "podinfo".into(),
            environment: "prod".into(),
            target: target.map(String::from),
            revision: "6.1.8".into(),
            facets: facets("6.1.8"),
            run: 1,
            arrival: 7,
            sequence: 3,
            replaces: "6.1.7".into(),
            evidence: vec![evidence],
            trigger: key.map(|key| Trigger { key: key.into(), at }),
            ..PromotionSpec::default()
        };
        let revision = Revision::from_strings(&spec.facets).unwrap();
        let name = match key {
            Some(key) => trigger_name(&pipeline(), &place(&spec), key),
            None => promotion_name(&pipeline(), &place(&spec), &revision, 1),
        };
        let status = PromotionStatus { spec_digest: digest(&spec), ..PromotionStatus::default() };
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        Promotion { metadata, spec, status: Some(status) }
    }

    #[test]
    fn fields_that_people_may_set_are_no_tampering() {
        for promotion in [recorded(None, None), recorded(Some("eu"), None), recorded(None, Some("build-1"))] {
            assert_eq!(tampered(&pipeline(), &promotion), None);
            let mut set = promotion.clone();
            set.spec.approval = Some(Approval::default());
            set.spec.rejection = Some(Rejection::default());
            set.spec.retry = Some("2026-11-21T10:00:00Z".into());
            assert_eq!(tampered(&pipeline(), &set), None);
            set.status = None;
            assert_eq!(tampered(&pipeline(), &set), None, "it has no status yet");
        }
    }

    #[test]
    fn each_changed_field_is_found() {
        type SpecEdit = fn(&mut PromotionSpec);
        let named: [(&str, SpecEdit); 6] = [
            ("pipeline", |s| s.pipeline = "other".into()),
            ("environment", |s| s.environment = "dev".into()),
            ("target", |s| s.target = if s.target.is_some() { None } else { Some("us".into()) }),
            ("revision", |s| s.revision = "6.6.6".into()),
            ("facets", |s| (s.facets, s.revision) = (facets("6.6.6"), "6.6.6".into())),
            ("run", |s| s.run += 1),
        ];
        let digested: [(&str, SpecEdit); 5] = [
            ("arrival", |s| s.arrival = 999_999),
            ("sequence", |s| s.sequence += 1),
            ("replaces", |s| s.replaces.clear()),
            ("evidence", |s| s.evidence.clear()),
            ("trigger", |s| s.trigger.as_mut().unwrap().at = Default::default()),
        ];
        for (field, change) in named {
            for target in [None, Some("eu")] {
                let mut promotion = recorded(target, None);
                change(&mut promotion.spec);
                assert!(tampered(&pipeline(), &promotion).is_some(), "{field}");
                promotion.status = None;
                assert!(tampered(&pipeline(), &promotion).is_some(), "{field}, before its first status");
            }
        }
        for (field, change) in named.into_iter().chain(digested) {
            let mut promotion = recorded(None, Some("build-1"));
            change(&mut promotion.spec);
            assert!(tampered(&pipeline(), &promotion).is_some(), "{field}, of one that a call started");
        }
        let mut far = recorded(None, None);
        (far.spec.arrival, far.status) = (MAX_COUNT + 1, None);
        assert!(tampered(&pipeline(), &far).is_some(), "the next arrival would not be accepted");
        let mut unreadable = recorded(None, None);
        unreadable.spec.facets.clear();
        assert!(tampered(&pipeline(), &unreadable).is_some());
    }

    #[test]
    fn a_record_of_an_earlier_pipeline_of_this_name_is_found() {
        let mut new = pipeline();
        new.uid = "u-2".into();
        let mut left = recorded(None, None);
        let orphan = tampered(&new, &left).unwrap();
        let (kind, name, uid) = ("Pipeline".into(), "podinfo".into(), "u-2".into());
        left.metadata.owner_references =
            Some(vec![OwnerReference { kind, name, uid, ..OwnerReference::default() }]);
        let owned = tampered(&new, &left).unwrap();
        for (why, remedy) in [
            (
                orphan,
                "it is left of a deleted pipeline of this name (kubectl delete --cascade=orphan), or somebody",
            ),
            (owned, "does not deliver it. Find out who wrote it, then delete it: kubectl"),
        ] {
            assert!(why.contains("its name does not follow from its spec") && why.contains(remedy), "{why}");
            assert!(why.contains("kubectl delete promotion -n apps podinfo-prod-"), "{why}");
        }
    }
}
