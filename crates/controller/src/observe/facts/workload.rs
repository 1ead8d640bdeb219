//! The facts of a Deployment, StatefulSet, DaemonSet or CronJob.

use sluice_api::workload::Workload;

use super::flux_status::sanitized;
use super::metadata::{owner, release, spec_version};
use crate::observe::health;
use crate::record::cut;
use sluice_core::fleet::{Fact, Kind, WorkloadFact};

/// The most images of one workload that are kept.
const MAX_IMAGES: usize = 64;
/// The most bytes of an image that are kept. Registries accept names of 255 bytes, tags of 128 and digests of about 130
/// ([spec.md](https://github.com/opencontainers/distribution-spec/blob/main/spec.md), "Pulling manifests").
const MAX_IMAGE_BYTES: usize = 1024;

/// Returns the facts of a Deployment, StatefulSet, DaemonSet or CronJob.
pub fn facts(kind: Kind, object: &Workload) -> Fact {
    let state = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let terminating = object.metadata.deletion_timestamp.is_some();
    Fact::Workload(WorkloadFact {
        spec_version: spec_version(object),
        owner: owner(kind, object),
        release: release(object),
        status: sanitized(health::workload(kind.name(), generation, terminating, &object.spec, &state)),
        images: images(object),
    })
}

/// Returns the images, without what no registry would accept: a hostile cluster may name megabytes of them.
fn images(object: &Workload) -> Vec<String> {
    let mut images = object.spec.images();
    images.truncate(MAX_IMAGES);
    images.iter_mut().for_each(|image| cut(image, MAX_IMAGE_BYTES));
    images
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn too_many_and_too_long_images_are_cut() {
        let container =
            |n: usize| json!({"name": format!("c{n}"), "image": format!("{n}{}", "x".repeat(1 << 20))});
        let containers: Vec<_> = (0..100).map(container).collect();
        let spec = json!({"template": {"spec": {"containers": containers}}});
        let object =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
        let images = images(&serde_json::from_value(object).unwrap());
        assert_eq!(images.len(), MAX_IMAGES);
        assert!(
            images.iter().all(|image| image.len() <= MAX_IMAGE_BYTES + '…'.len_utf8()),
            "{}",
            images[0].len()
        );
    }
}
