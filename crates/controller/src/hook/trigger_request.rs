//! What a CI system asks for by `/trigger`, whether it fits the pipeline, and under which name it is recorded: the same
//! idempotency key asks for the same thing once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::Deserialize;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Promotion, Trigger};
use sluice_core::Revision;
use sluice_core::decide::NewPromotion;
use sluice_core::observed::is_tracked;
use sluice_core::pipeline::Environment;
use sluice_core::promotion_name::trigger_name;
use sluice_core::revision::{Facet, FacetKey};
use sluice_core::tracks::Track;
use sluice_core::value;

use super::event::{VALUE_FORMAT, is_value};
use crate::observe::reported;
use crate::record::promotion;
use crate::translate;

/// What is asked for: `revision`, where one facet makes a revision of the pipeline, else each facet by
/// its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Request {
    /// Tells this asking from every other: the same again is the same promotion.
    pub idempotency_key: String,
    /// The pipeline that it is meant for, as namespace and name; a call that names another is refused.
    pub pipeline: Option<String>,
    /// The value of the one facet.
    pub revision: Option<String>,
    /// A chart's version.
    pub chart: Option<String>,
    /// A chart's appVersion.
    pub app: Option<String>,
    /// The tag of an OCI artifact.
    pub tag: Option<String>,
    /// The digest of an OCI artifact.
    pub digest: Option<String>,
    /// A source's revision as Flux writes it.
    pub source: Option<String>,
    /// Tags of images, by repository.
    pub images: BTreeMap<String, String>,
}

/// What to send.
pub(super) const EXAMPLE: &str = r#"{"revision": "1.2.3", "idempotencyKey": "build-4711"}"#;

/// Whether the request says for which pipeline and by which key it asks.
///
/// # Errors
/// What to write instead.
pub fn check(pipeline: &Pipeline, request: &Request, header: Option<&[u8]>) -> Result<(), String> {
    let own = format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    if let Some(other) = request.pipeline.as_ref().filter(|said| **said != own) {
        return Err(format!("it asks for a revision in pipeline {other}, and was sent to {own}"));
    }
    let key = request.idempotency_key.as_str();
    let good = !key.is_empty() && key.len() <= 128 && key.bytes().all(|b| b.is_ascii_graphic());
    if !good {
        return Err(format!(
            "idempotencyKey is up to 128 letters, digits and signs without spaces, such as the number of a build; it \
             stands in the body, which is signed, as the header Idempotency-Key is not: write {EXAMPLE}"
        ));
    }
    match header {
        Some(said) if said != key.as_bytes() => Err(format!(
            "the header Idempotency-Key is not {key}, as the body says: what the body says is signed; leave the \
             header out, or send the same"
        )),
        _ => Ok(()),
    }
}

/// Whether the request names its pipeline where it has to: a key that other pipelines take as well would otherwise
/// let a person who has seen one call send it to each of them.
///
/// # Errors
/// What to write instead.
pub fn named(pipeline: &Pipeline, request: &Request, others: usize) -> Result<(), String> {
    if others == 0 || request.pipeline.is_some() {
        return Ok(());
    }
    let own = format!("{}/{}", pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    Err(format!(
        "other pipelines ({others}) take calls with the trigger-key of the same Secret, so the body has to say which \
         one it is for: add \"pipeline\": \"{own}\""
    ))
}

/// The facets that make a revision in the first environment: those that were last proven there, else
/// those that follow from what the pipeline names.
///
/// # Errors
/// What to write into the pipeline, when neither tells.
pub fn shape(pipeline: &Pipeline) -> Result<BTreeSet<FacetKey>, String> {
    let model = translate::pipeline(pipeline);
    let Some((first, known)) = pipeline.spec.environments.first().zip(model.environments.first()) else {
        return Err("the pipeline has no environment".into());
    };
    let evidence = translate::evidence(pipeline.status.as_ref());
    let proofs = known.targets.iter().filter_map(|target| evidence.of(&known.name, target).last());
    let proven = proofs.filter(|p| is_tracked(&model, &p.revision)).max_by_key(|p| p.arrival);
    if let Some(proof) = proven {
        return Ok(proof.revision.facets().map(|(key, _)| key.clone()).collect());
    }
    let members = first.targets.iter().flat_map(|t| reported::members(pipeline.spec.app_ref.as_ref(), t));
    let mut keys = BTreeSet::new();
    for (kind, name) in members {
        for facet in facets(kind, &model.tracks)? {
            keys.insert(FacetKey { kind: kind.into(), name: name.into(), facet });
        }
    }
    if keys.is_empty() { Err(UNKNOWN.into()) } else { Ok(keys) }
}

/// Why no revision fits yet.
const UNKNOWN: &str = "it is not known yet what a revision of this pipeline is made of: nothing has been healthy in its \
                       first environment; wait for that, or name the application in spec.appRef and what makes its \
                       revision in spec.tracks";

fn facets(kind: &str, tracks: &[Track]) -> Result<Vec<Facet>, String> {
    let is_release = kind == "HelmRelease";
    if tracks.is_empty() {
        return if is_release { Ok(vec![Facet::Chart]) } else { Err(UNKNOWN.into()) };
    }
    let mut facets = Vec::new();
    for track in tracks {
        match track {
            Track::Images => return Err(UNKNOWN.into()),
            Track::Facet(Facet::Chart | Facet::App) if !is_release => {}
            Track::Facet(Facet::Tag | Facet::Source) if is_release => {}
            Track::Facet(facet) => facets.push(facet.clone()),
        }
    }
    Ok(facets)
}

/// The revision that is asked for, if it has each facet of the shape, and no other.
///
/// # Errors
/// What to write instead.
pub fn fit(shape: &BTreeSet<FacetKey>, request: &Request) -> Result<Revision, String> {
    let wanted: BTreeSet<&Facet> = shape.iter().map(|key| &key.facet).collect();
    let given = given(request);
    let write =
        || format!("write {}", wanted.iter().map(|facet| spelled(facet)).collect::<Vec<_>>().join(" and "));
    let values: BTreeMap<&Facet, &str> = match (&request.revision, given.is_empty()) {
        (Some(revision), true) if wanted.len() == 1 => {
            wanted.iter().map(|facet| (*facet, revision.as_str())).collect()
        }
        (Some(_), true) => return Err(format!("a revision of this pipeline has several parts: {}", write())),
        (Some(_), false) => return Err(format!("revision stands alone: leave it out, and {}", write())),
        (None, _) => given.iter().map(|(facet, value)| (facet, *value)).collect(),
    };
    let asked: BTreeSet<&Facet> = values.keys().copied().collect();
    if asked != wanted {
        return Err(format!("a revision of this pipeline is another set of values: {}", write()));
    }
    for (facet, value) in &values {
        check_value(facet, value)?;
    }
    let facets = shape.iter().map(|key| (key.clone(), values[&key.facet].to_string())).collect();
    Revision::new(facets).ok_or_else(|| UNKNOWN.into())
}

fn given(request: &Request) -> BTreeMap<Facet, &str> {
    let mut given = BTreeMap::new();
    for (facet, value) in [
        (Facet::Chart, &request.chart),
        (Facet::App, &request.app),
        (Facet::Tag, &request.tag),
        (Facet::Digest, &request.digest),
        (Facet::Source, &request.source),
    ] {
        if let Some(value) = value {
            given.insert(facet, value.as_str());
        }
    }
    given.extend(
        request.images.iter().map(|(repository, tag)| (Facet::Image(repository.clone()), tag.as_str())),
    );
    given
}

/// A field as it is written.
fn spelled(facet: &Facet) -> String {
    match facet {
        Facet::Image(repository) => format!(r#""images": {{"{repository}": "..."}}"#),
        facet => format!(r#""{facet}": "...""#),
    }
}

fn check_value(facet: &Facet, value: &str) -> Result<(), String> {
    if !is_value(value) {
        return Err(format!("the value of {facet} is {VALUE_FORMAT}"));
    }
    value::check(facet, value).map_err(|why| format!("the value of {facet} cannot be used: {why}"))?;
    if *facet == Facet::Chart && value.contains('+') {
        let bare = value.split('+').next().unwrap_or_default();
        return Err(format!("a chart is known by its version without what follows the +: write {bare}"));
    }
    Ok(())
}

/// The records of what is asked for: one for the first environment, or one for each of its targets where each
/// is promoted into separately. The same key has the same names.
pub fn records(
    pipeline: &Pipeline,
    key: &str,
    revision: &Revision,
    all: &[Promotion],
    now: Timestamp,
) -> Vec<Promotion> {
    let model = translate::pipeline(pipeline);
    let places = model.environments.first().map(Environment::lanes).unwrap_or_default();
    places
        .iter()
        .map(|place| {
            let intent = intent(pipeline, place, trigger_name(&model, place, key), revision.clone(), all);
            let mut object = promotion::object(pipeline, &intent);
            object.spec.trigger = Some(Trigger { key: key.into(), at: translate::time(now) });
            object
        })
        .collect()
}

/// What the key has asked for before, where nothing is to be added to that: the pipeline promoted into the
/// environment as a whole then and into each target now, or the other way round; or something else was asked for
/// since, and what is missing is of a target that came later. Else what is missing got lost on the way.
pub fn answered<'a>(
    pipeline: &Pipeline,
    key: &str,
    records: &[Promotion],
    all: &'a [Promotion],
) -> Option<Vec<&'a Promotion>> {
    let environment = &records.first()?.spec.environment;
    let asked = all.iter().filter(|p| {
        (&p.spec.pipeline, &p.spec.environment) == (&pipeline.name_any(), environment)
            && p.spec.trigger.is_some()
    });
    let key_of = |p: &Promotion| p.spec.trigger.as_ref().is_some_and(|t| t.key == key);
    let (own, others): (Vec<_>, Vec<_>) = asked.partition(|p| key_of(p));
    let line = |p: &&Promotion| p.spec.sequence;
    let overtaken = others.iter().map(line).max() > own.iter().map(line).max();
    let as_before = own.first()?.spec.target.is_some() == records.first()?.spec.target.is_some();
    (overtaken || !as_before).then_some(own)
}

/// What is to be recorded, after all that is recorded for the place.
fn intent(
    pipeline: &Pipeline,
    place: &Environment,
    name: String,
    revision: Revision,
    all: &[Promotion],
) -> NewPromotion {
    let of = all.iter().filter(|p| {
        let spec = &p.spec;
        (&spec.pipeline, &spec.environment, &spec.target)
            == (&pipeline.name_any(), &place.name, &place.only_target)
    });
    let shown = pipeline.status.as_ref().and_then(|s| s.environments.get(&place.name));
    let runs = match &place.only_target {
        None => shown.and_then(|e| e.revision.as_ref()),
        Some(alone) => shown.and_then(|e| e.targets.iter().find(|t| t.name == *alone)?.revision.as_ref()),
    };
    NewPromotion {
        name,
        sequence: of.map(|p| p.spec.sequence).max().unwrap_or(0) + 1,
        environment: place.name.clone(),
        target: place.only_target.clone(),
        revision,
        run: 0,
        arrival: 0,
        replaces: runs.cloned().unwrap_or_default(),
        proven_by: Vec::new(),
    }
}
