//! The state of a HelmRelease that Helm has given up on, read from the object alone: what Flux says there of a
//! generation is about the values of that generation, whatever a watch of another kind has shown already.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_api::flux::{FluxStatus, HelmRelease};
use sluice_core::revision::Facet;
use sluice_core::value;

use super::{health, image};

/// The most that the images of a state may take, in bytes.
const IMAGES_BYTES: usize = 16 << 10;
/// The names that charts give to the field with an image's repository, beside `tag`.
const REPOSITORY: [&str; 3] = ["repository", "image", "name"];

/// Returns the facets of the state that Flux will not try again, as far as they are certain: the chart that was
/// tried, and the images that the values name. Empty if Flux tries it again. Values in the object take precedence
/// over those of `valuesFrom` (fluxcd.io/flux/components/helm/helmreleases, "Values").
pub fn facets(object: &HelmRelease, status: &FluxStatus) -> BTreeMap<Facet, String> {
    let generation = object.metadata.generation.unwrap_or_default();
    if !health::has_given_up(generation, &status.conditions) {
        return BTreeMap::new();
    }
    let tried = status.last_attempted_revision.as_deref().map(without_metadata);
    let of_chart = status.history.iter().filter(|s| Some(without_metadata(&s.chart_version)) == tried);
    let app = of_chart.max_by_key(|snapshot| snapshot.version).and_then(|s| s.app_version.as_deref());
    let mut facets = object.spec.values.as_ref().map(images).unwrap_or_default();
    facets.extend(tried.map(|chart| (Facet::Chart, chart.to_string())));
    facets.extend(app.map(|app| (Facet::App, app.trim().to_string())));
    facets.extend(status.last_attempted_revision_digest.clone().map(|digest| (Facet::Digest, digest)));
    facets.retain(|facet, value| value::check(facet, value).is_ok());
    facets
}

/// A chart's version without build metadata.
fn without_metadata(version: &str) -> &str {
    version.split('+').next().unwrap_or_default()
}

/// The images that values name, as facets. Several tags of one repository make one value together, as they do where
/// workloads run them.
fn images(values: &Value) -> BTreeMap<Facet, String> {
    let mut tags = BTreeMap::new();
    find(values, &mut tags);
    let joined = |(repository, tags): (String, BTreeSet<String>)| {
        (Facet::Image(repository), tags.into_iter().collect::<Vec<_>>().join(","))
    };
    let facets: BTreeMap<Facet, String> = tags.into_iter().map(joined).collect();
    let size: usize = facets.iter().map(|(facet, value)| facet.to_string().len() + value.len()).sum();
    if size > IMAGES_BYTES { BTreeMap::new() } else { facets }
}

/// Finds the tags of images, by repository.
fn find(values: &Value, tags: &mut BTreeMap<String, BTreeSet<String>>) {
    match values {
        Value::String(text) => note(text, tags),
        Value::Array(all) => all.iter().for_each(|value| find(value, tags)),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            if let (Some(repository), Some(tag)) = (REPOSITORY.into_iter().find_map(text), text("tag")) {
                let registry = text("registry").map(|registry| format!("{registry}/")).unwrap_or_default();
                note(&format!("{registry}{repository}:{tag}"), tags);
            }
            let nested = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "tag" | "digest"));
            nested.for_each(|(_, value)| find(value, tags));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Notes an image reference, if a text is one that has a tag or a digest.
fn note(text: &str, tags: &mut BTreeMap<String, BTreeSet<String>>) {
    let name = text.rsplit('/').next().unwrap_or_default();
    let (repository, tag) = image::parts(text);
    let facet = Facet::Image(repository);
    if name.contains([':', '@'])
        && value::check(&facet, &tag).is_ok()
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
    fn images_are_found_in_every_form_that_charts_have() {
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
