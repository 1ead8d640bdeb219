//! The requests of `/trigger`: whether a request fits the pipeline, and the promotions that it asks for. Their
//! names follow from the idempotency key, so a repeated request creates no other promotions.

use sluice_core::Time;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::Deserialize;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, Trigger};
use sluice_core::Revision;
use sluice_core::chart_version::without_build_metadata;
use sluice_core::decide::{MAX_BYTES_OF_PROMOTIONS, NewPromotion};
use sluice_core::observed::{MAX_REVISION_LEN, is_tracked};
use sluice_core::pipeline::Environment;
use sluice_core::promotion_name::trigger_name;
use sluice_core::revision::{Facet, FacetKey};
use sluice_core::tracks::Track;
use sluice_core::value_check;

use super::event::{VALUE_FORMAT, is_value};
use crate::observe::reported;
use crate::record::promotion;
use crate::translate;

/// The body of a request: `revision` if one facet makes a revision of the pipeline, otherwise each facet by its
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TriggerRequest {
    /// Identifies the request: another request with the same key asks for the same promotion.
    pub idempotency_key: String,
    /// The pipeline, as `<namespace>/<name>`. A request that names another pipeline than its path is rejected.
    pub pipeline: Option<String>,
    /// The value of the only facet.
    pub revision: Option<String>,
    /// The version of a chart.
    pub chart: Option<String>,
    /// The appVersion of a chart.
    pub app: Option<String>,
    /// The tag of an OCI artifact.
    pub tag: Option<String>,
    /// The digest of an OCI artifact.
    pub digest: Option<String>,
    /// The revision of a source, as Flux writes it.
    pub source: Option<String>,
    /// The tags of images, by repository.
    pub images: BTreeMap<String, String>,
}

/// An example of a body, for messages.
pub(super) const EXAMPLE_BODY: &str = r#"{"revision": "1.2.3", "idempotencyKey": "build-4711"}"#;

/// Checks the pipeline and the idempotency key of a request. `header` is the value of the header
/// `Idempotency-Key`.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn check(pipeline: &Pipeline, request: &TriggerRequest, header: Option<&[u8]>) -> Result<(), String> {
    let own = format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    if let Some(other) = request.pipeline.as_ref().filter(|named| **named != own) {
        return Err(format!(
            "the body asks for a revision in pipeline {other}, and was sent to {own}: send it to /trigger/{other}"
        ));
    }
    let key = request.idempotency_key.as_str();
    let good = !key.is_empty() && key.len() <= 128 && key.bytes().all(|b| b.is_ascii_graphic());
    if !good {
        return Err(format!(
            "idempotencyKey must be up to 128 ASCII letters, digits and signs without spaces, such as the number of a \
             build, in the body, because only the body is signed: write {EXAMPLE_BODY}"
        ));
    }
    match header {
        Some(header) if header != key.as_bytes() => Err(format!(
            "the header Idempotency-Key differs from idempotencyKey {key} in the signed body: leave the header out, \
             or send the same value"
        )),
        _ => Ok(()),
    }
}

/// Checks that a request names its pipeline if other pipelines accept the same key. Otherwise, a person who has
/// seen one call could send it to each of them. `others` is the number of these pipelines.
///
/// # Errors
/// What to add to the body.
pub fn check_names_pipeline(
    pipeline: &Pipeline,
    request: &TriggerRequest,
    others: usize,
) -> Result<(), String> {
    if others == 0 || request.pipeline.is_some() {
        return Ok(());
    }
    let own = format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    Err(format!(
        "other pipelines ({others}) accept calls with the trigger-key of the same Secret, so the body must name its \
         pipeline: add \"pipeline\": \"{own}\""
    ))
}

/// Returns the facets that make a revision in the first environment: those of the revision that was proven there
/// last, or if there is none, those that follow from the spec of the pipeline.
///
/// # Errors
/// When neither has facets. The text says what to write into the pipeline.
pub fn revision_shape(pipeline: &Pipeline) -> Result<BTreeSet<FacetKey>, String> {
    let model = translate::pipeline(pipeline);
    let Some((spec, first)) = pipeline.spec.environments.first().zip(model.environments.first()) else {
        return Err("the pipeline has no environment".into());
    };
    let evidence = translate::evidence(pipeline.status.as_ref());
    let proofs = first.targets.iter().filter_map(|target| evidence.of(&first.name, target).last());
    let proven = proofs.filter(|p| is_tracked(&model, &p.revision)).max_by_key(|p| p.arrival);
    if let Some(proof) = proven {
        return Ok(proof.revision.facets().map(|(key, _)| key.clone()).collect());
    }
    let members = spec.targets.iter().flat_map(|t| reported::members(pipeline.spec.app_ref.as_ref(), t));
    let mut keys = BTreeSet::new();
    for (kind, name) in members {
        for facet in facets_of_kind(kind, &model.tracks)? {
            keys.insert(FacetKey { kind: kind.into(), name: name.into(), facet });
        }
    }
    if keys.is_empty() { Err(UNKNOWN_SHAPE.into()) } else { Ok(keys) }
}

/// The answer to a request for a pipeline whose revisions have an unknown shape.
const UNKNOWN_SHAPE: &str = "the parts of a revision of this pipeline are not known yet, because its first environment \
                             has not been healthy: wait for that, or name the application in spec.appRef and the \
                             parts of its revision in spec.tracks";

/// Returns the facets of a member of this kind.
fn facets_of_kind(kind: &str, tracks: &[Track]) -> Result<Vec<Facet>, String> {
    let is_release = kind == "HelmRelease";
    if tracks.is_empty() {
        return if is_release { Ok(vec![Facet::Chart]) } else { Err(UNKNOWN_SHAPE.into()) };
    }
    let mut facets = Vec::new();
    for track in tracks {
        match track {
            Track::Images => return Err(UNKNOWN_SHAPE.into()),
            Track::Facet(Facet::Chart | Facet::App) if !is_release => {}
            Track::Facet(Facet::Tag | Facet::Source) if is_release => {}
            Track::Facet(facet) => facets.push(facet.clone()),
        }
    }
    Ok(facets)
}

/// Returns the revision that a request asks for. It must have each facet of the shape, and no other.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn requested_revision(shape: &BTreeSet<FacetKey>, request: &TriggerRequest) -> Result<Revision, String> {
    let expected: BTreeSet<&Facet> = shape.iter().map(|key| &key.facet).collect();
    let named = named_values(request);
    let write = || {
        format!(
            "write {}",
            expected.iter().map(|facet| field_example(facet)).collect::<Vec<_>>().join(" and ")
        )
    };
    let values: BTreeMap<&Facet, &str> = match (&request.revision, named.is_empty()) {
        (Some(revision), true) if expected.len() == 1 => {
            expected.iter().map(|facet| (*facet, revision.as_str())).collect()
        }
        (Some(_), true) => return Err(format!("a revision of this pipeline has several parts: {}", write())),
        (Some(_), false) => {
            return Err(format!("\"revision\" excludes other values: leave it out, and {}", write()));
        }
        (None, _) => named.iter().map(|(facet, value)| (facet, *value)).collect(),
    };
    if values.keys().copied().collect::<BTreeSet<&Facet>>() != expected {
        return Err(format!("a revision of this pipeline has other parts: {}", write()));
    }
    for (facet, value) in &values {
        check_value(facet, value)?;
    }
    let facets = shape.iter().map(|key| (key.clone(), values[&key.facet].to_string())).collect();
    let revision = Revision::new(facets).ok_or(UNKNOWN_SHAPE)?;
    match revision.text_len() {
        0..=MAX_REVISION_LEN => Ok(revision),
        _ => Err(format!(
            "the revision is too long: {} objects with these values have more than {} KiB; write shorter values, or give \
             the pipeline fewer objects",
            shape.len(),
            MAX_REVISION_LEN >> 10
        )),
    }
}

/// Returns why this number of promotions must not be added to those of the pipeline, whose revisions have `bytes`; `None`
/// if they may.
pub fn too_many(bytes: usize, missing: usize, revision: &Revision) -> Option<String> {
    let bytes = bytes + missing * revision.text_len();
    (bytes > MAX_BYTES_OF_PROMOTIONS).then(|| {
        format!(
            "with this one, the revisions of this pipeline's promotions would have more than {} MiB together: wait until \
             earlier promotions have ended, name fewer objects, or split the pipeline",
            MAX_BYTES_OF_PROMOTIONS >> 20
        )
    })
}

/// Returns the values that a request names by their facets.
fn named_values(request: &TriggerRequest) -> BTreeMap<Facet, &str> {
    let mut values = BTreeMap::new();
    for (facet, value) in [
        (Facet::Chart, &request.chart),
        (Facet::App, &request.app),
        (Facet::Tag, &request.tag),
        (Facet::Digest, &request.digest),
        (Facet::Source, &request.source),
    ] {
        if let Some(value) = value {
            values.insert(facet, value.as_str());
        }
    }
    values.extend(
        request.images.iter().map(|(repository, tag)| (Facet::Image(repository.clone()), tag.as_str())),
    );
    values
}

/// Returns an example of the JSON field of a facet.
fn field_example(facet: &Facet) -> String {
    match facet {
        Facet::Image(repository) => format!(r#""images": {{"{repository}": "..."}}"#),
        facet => format!(r#""{facet}": "...""#),
    }
}

fn check_value(facet: &Facet, value: &str) -> Result<(), String> {
    if !is_value(value) {
        return Err(format!("the value of {facet} must be {VALUE_FORMAT}"));
    }
    value_check::check(facet, value).map_err(|why| format!("the value of {facet} cannot be used: {why}"))?;
    let version = without_build_metadata(value);
    if *facet == Facet::Chart && version != value {
        return Err(format!("the version of a chart must not have build metadata: write {version}"));
    }
    Ok(())
}

/// Returns the promotions that a request asks for: one for the first environment, or one for each of its targets
/// if the pipeline promotes into each target separately. Their names follow from the key.
pub fn records(
    pipeline: &Pipeline,
    key: &str,
    revision: &Revision,
    all: &[Promotion],
    now: Timestamp,
) -> Vec<Promotion> {
    let model = translate::pipeline(pipeline);
    let lanes = model.environments.first().map(Environment::lanes).unwrap_or_default();
    lanes
        .iter()
        .map(|lane| {
            let new = new_promotion(pipeline, lane, trigger_name(&model, lane, key), revision.clone(), all);
            let mut object = promotion::object(pipeline, &new);
            object.spec.trigger = Some(Trigger { key: key.into(), at: Time::to_second(now) });
            object
        })
        .collect()
}

/// Returns the promotions of earlier requests with the key if they are complete, so that this request must not add
/// any of `records`. They are complete in two cases. First, the pipeline promotes into each target now, and
/// promoted into the environment as a whole then, or the reverse. Second, a request with another key came later,
/// because a missing promotion is then for a target that is new. Otherwise an earlier request may have created
/// only some of its promotions, and the result is `None`.
pub fn complete_promotions<'a>(
    pipeline: &Pipeline,
    key: &str,
    records: &[Promotion],
    all: &'a [Promotion],
) -> Option<Vec<&'a Promotion>> {
    let environment = &records.first()?.spec.environment;
    let triggered = all.iter().filter(|p| {
        (&p.spec.pipeline, &p.spec.environment) == (&pipeline.name_any(), environment)
            && p.spec.trigger.is_some()
    });
    let has_key = |p: &Promotion| p.spec.trigger.as_ref().is_some_and(|t| t.key == key);
    let (earlier, others): (Vec<_>, Vec<_>) = triggered.partition(|p| has_key(p));
    let sequence = |p: &&Promotion| p.spec.sequence;
    let another_came_later = others.iter().map(sequence).max() > earlier.iter().map(sequence).max();
    let same_lanes = earlier.first()?.spec.target.is_some() == records.first()?.spec.target.is_some();
    (another_came_later || !same_lanes).then_some(earlier)
}

/// Returns the promotion of a revision into a lane, with a sequence number after those of all promotions into it.
fn new_promotion(
    pipeline: &Pipeline,
    lane: &Environment,
    name: String,
    revision: Revision,
    all: &[Promotion],
) -> NewPromotion {
    let into_lane = all.iter().filter(|p| {
        let spec = &p.spec;
        (&spec.pipeline, &spec.environment, &spec.target)
            == (&pipeline.name_any(), &lane.name, &lane.only_target)
    });
    let status = pipeline.status.as_ref().and_then(|s| s.environments.get(&lane.name));
    let running = match &lane.only_target {
        None => status.and_then(|e| e.revision.as_ref()),
        Some(target) => status.and_then(|e| e.targets.iter().find(|t| t.name == *target)?.revision.as_ref()),
    };
    NewPromotion {
        name,
        sequence: into_lane.map(|p| p.spec.sequence).max().unwrap_or(0) + 1,
        environment: lane.name.clone(),
        target: lane.only_target.clone(),
        revision,
        run: 0,
        arrival: 0,
        replaces: running.cloned().unwrap_or_default(),
        proven_by: Vec::new(),
    }
}
