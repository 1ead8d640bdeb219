//! The state of a HelmRelease that Flux has given up on, read from the HelmRelease alone. The status of a
//! generation is about the values of that generation, so no object of another watch is needed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_api::flux::{FluxStatus, HelmRelease};
use sluice_core::chart_version::without_build_metadata;
use sluice_core::image;
use sluice_core::revision::Facet;
use sluice_core::value_check;

use super::health;

/// The most bytes of all image facets of a state.
const MAX_IMAGES_BYTES: usize = 16 << 10;
/// The names of the field beside `tag` that has an image's repository in the values of charts.
const REPOSITORY_FIELDS: [&str; 3] = ["repository", "image", "name"];

/// Returns the facets of the state that Flux will not try again, as far as they are certain: the chart of the last
/// attempt, and the images in the values. Empty if Flux tries the state again. Values in the object take
/// precedence over those of `valuesFrom` (fluxcd.io/flux/components/helm/helmreleases, "Values").
pub fn facets(object: &HelmRelease, status: &FluxStatus) -> BTreeMap<Facet, String> {
    let generation = object.metadata.generation.unwrap_or_default();
    if !health::has_given_up(generation, &status.conditions) {
        return BTreeMap::new();
    }
    let chart = status.last_attempted_revision.as_deref().map(without_build_metadata);
    let of_chart = status.history.iter().filter(|s| Some(without_build_metadata(&s.chart_version)) == chart);
    let app = of_chart.max_by_key(|snapshot| snapshot.version).and_then(|s| s.app_version.as_deref());
    let mut facets = object.spec.values.as_ref().map(images).unwrap_or_default();
    facets.extend(chart.map(|chart| (Facet::Chart, chart.to_string())));
    facets.extend(app.map(|app| (Facet::App, app.trim().to_string())));
    facets.extend(status.last_attempted_revision_digest.clone().map(|digest| (Facet::Digest, digest)));
    facets.retain(|facet, value| value_check::check(facet, value).is_ok());
    facets
}

/// Returns the images in the values as facets. Several tags of one repository are joined to one value, as for the
/// images of workloads. Empty if the facets exceed [`MAX_IMAGES_BYTES`].
fn images(values: &Value) -> BTreeMap<Facet, String> {
    let mut tags = BTreeMap::new();
    collect_tags(values, &mut tags);
    let joined = |(repository, tags): (String, BTreeSet<String>)| {
        (Facet::Image(repository), tags.into_iter().collect::<Vec<_>>().join(","))
    };
    let facets: BTreeMap<Facet, String> = tags.into_iter().map(joined).collect();
    let size: usize = facets.iter().map(|(facet, value)| facet.to_string().len() + value.len()).sum();
    if size > MAX_IMAGES_BYTES { BTreeMap::new() } else { facets }
}

/// Adds the tags of all images in the values, by repository.
fn collect_tags(values: &Value, tags: &mut BTreeMap<String, BTreeSet<String>>) {
    match values {
        Value::String(text) => add_image(text, tags),
        Value::Array(all) => all.iter().for_each(|value| collect_tags(value, tags)),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            if let (Some(repository), Some(tag)) = (REPOSITORY_FIELDS.into_iter().find_map(text), text("tag"))
            {
                let registry = text("registry").map(|registry| format!("{registry}/")).unwrap_or_default();
                add_image(&format!("{registry}{repository}:{tag}"), tags);
            }
            let nested = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "tag" | "digest"));
            nested.for_each(|(_, value)| collect_tags(value, tags));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the tag of a text that is an image reference with a tag or digest. Ignores other texts.
fn add_image(text: &str, tags: &mut BTreeMap<String, BTreeSet<String>>) {
    let name = text.rsplit('/').next().unwrap_or_default();
    let (repository, tag) = image::parts(text);
    let facet = Facet::Image(repository);
    if name.contains([':', '@'])
        && value_check::check(&facet, &tag).is_ok()
        && let Facet::Image(repository) = facet
    {
        tags.entry(repository).or_default().insert(tag);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_found_in_all_forms_that_charts_use() {
        let values = json!({
            "image": {"repository": "ghcr.io/acme/web", "tag": "1.2.0"},
            "job": {"image": {"registry": "ghcr.io", "repository": "acme/job", "tag": "3@sha256:aa"}},
            "sidecars": ["localhost:5000/proxy:7", {"image": "redis", "tag": "8"}],
            "worker": {"image": "ghcr.io/acme/worker@sha256:bb"},
            "migrate": {"repository": "ghcr.io/acme/two", "tag": "1"},
            "migrated": "ghcr.io/acme/two:2",
            "none": {"repository": "ghcr.io/acme/none", "tag": ""},
            "url": "https://example.com:8080/a", "replicas": 3, "text": "a b:c",
        });
        let expected = [
            ("ghcr.io/acme/job", "3"),
            ("ghcr.io/acme/two", "1,2"),
            ("ghcr.io/acme/web", "1.2.0"),
            ("ghcr.io/acme/worker", "sha256:bb"),
            ("localhost:5000/proxy", "7"),
            ("redis", "8"),
        ];
        let expected: BTreeMap<Facet, String> =
            expected.map(|(repository, tag)| (Facet::Image(repository.into()), tag.into())).into();
        assert_eq!(images(&values), expected);
        let many: Vec<String> = (0..2000).map(|n| format!("ghcr.io/acme/{n}:1")).collect();
        assert_eq!(images(&json!(many)), BTreeMap::new(), "too many to be kept");
    }
}
