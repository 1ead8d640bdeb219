//! The metadata of Pipelines and Promotions that Sluice does not read. It must not reach any memory: not that of the
//! cached objects, and not that of a list.

use kube::Resource;
use kube::api::ObjectMeta;

use crate::record::promotion::{ENVIRONMENT_LABEL, PIPELINE_LABEL};

/// The most references to owners that are kept of an object, and the most bytes of one.
const MAX_OWNERS: usize = 4;
const MAX_OWNER_BYTES: usize = 1 << 10;

/// Returns an object without the metadata that Sluice does not read. A user who may change the object may fill it: labels,
/// finalizers and owners with 1.5 MB, which take several times as much in memory. `kubectl apply` keeps a copy of the object
/// in an annotation.
pub(crate) fn without_unread<K: Resource>(mut object: K) -> K {
    remove_unread(object.meta_mut());
    object
}

/// Removes what Sluice does not read from the metadata of an object.
pub(crate) fn remove_unread(metadata: &mut ObjectMeta) {
    metadata.annotations = None;
    metadata.finalizers = None;
    metadata.managed_fields = None;
    let is_read = |label: &String| matches!(label.as_str(), PIPELINE_LABEL | ENVIRONMENT_LABEL);
    metadata.labels.iter_mut().for_each(|labels| labels.retain(|label, _| is_read(label)));
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|o| o.api_version.len() + o.kind.len() + o.name.len() + o.uid.len() <= MAX_OWNER_BYTES);
        owners.truncate(MAX_OWNERS);
        owners.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;
    use sluice_api::{Pipeline, Promotion};

    use super::super::fixtures::pipeline;
    use super::*;

    #[test]
    fn metadata_that_is_not_read_takes_no_memory() {
        let long = "x".repeat(2 << 10);
        let owner = |uid: &str| OwnerReference {
            kind: "Pipeline".into(),
            uid: uid.into(),
            ..OwnerReference::default()
        };
        let promotion = json!({"metadata": {}, "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1",
            "facets": {"tag": "1"}}});
        let filled = ObjectMeta {
            name: Some("podinfo".into()),
            labels: Some((0..10_000).map(|n| (format!("a{n}"), "b".into())).chain(own_labels()).collect()),
            annotations: Some([("a".into(), long.clone())].into()),
            finalizers: Some(vec![long.clone(); 100]),
            owner_references: Some([vec![owner("one"), owner(&long)], vec![owner("two"); 1000]].concat()),
            ..ObjectMeta::default()
        };
        let check = |kept: &ObjectMeta| {
            let size = serde_json::to_string(kept).unwrap().len();
            assert!(size < 1000, "{size} bytes");
            assert_eq!(kept.labels.clone().unwrap().into_iter().collect::<Vec<_>>(), own_labels());
            assert_eq!(kept.owner_references.as_ref().unwrap()[0].uid, "one");
        };
        let owned = Promotion { metadata: filled.clone(), ..serde_json::from_value(promotion).unwrap() };
        check(&without_unread(owned).metadata);
        check(&without_unread(Pipeline { metadata: filled, ..pipeline() }).metadata);
    }

    fn own_labels() -> Vec<(String, String)> {
        [ENVIRONMENT_LABEL, PIPELINE_LABEL].map(|label| (label.to_string(), "prod".to_string())).into()
    }
}
