//! The values that a promotion would set in a checkout, found as the controller finds them.

use std::collections::BTreeMap;

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use sluice_api::Pipeline;
use sluice_api::pipeline::{self as api, Environment, Per};
use sluice_core::fleet::Kind;
use sluice_core::setters::{
    self, Choice, EditedFile, MarkerRequest, Plan, SetError, Update, UpdateError, UpdateTarget,
};
use sluice_core::{Facet, FacetKey, Revision};

use crate::checkout::CheckoutFile;

/// The placeholder for the promoted revision if `--revision` is not given.
const REVISION: &str = "REVISION";

/// The notes for environments in which no values are looked up.
const FIRST: &str = "first environment: Sluice writes nothing here";
const FIRST_WITHOUT_MARKER: &str =
    "first environment: Sluice writes nothing here; to use /trigger, add a marker";

/// The preview of one environment.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EnvironmentPreview {
    /// The name of the environment.
    pub environment: String,
    /// The values to set, in the order of their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueChange>,
    /// Why the values cannot be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<PreviewError>,
    /// Why no values are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<&'static str>,
}

/// A value that a promotion would set.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ValueChange {
    /// The file in the checkout.
    pub path: String,
    /// The line of the value, from 1.
    pub line: u32,
    /// The value in the file.
    pub from: String,
    /// The value of the promoted revision.
    pub to: String,
}

/// The error that prevents setting the values.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PreviewError {
    /// The reason of the failure, one word.
    pub reason: &'static str,
    /// What failed, and what to do.
    pub message: String,
}

/// Returns the previews of all environments, or of one. `asked` are the values of `--revision`: each is for a facet, or
/// for all facets.
pub(crate) fn preview(
    pipeline: &Pipeline,
    only: Option<&str>,
    files: &[CheckoutFile],
    asked: &[(Option<Facet>, String)],
) -> Vec<EnvironmentPreview> {
    let environments = pipeline.spec.environments.iter().enumerate();
    let wanted = environments.filter(|(_, e)| only.is_none_or(|only| only == e.name));
    let preview = |(at, environment)| match preview_of(pipeline, at, environment, files, asked) {
        // Only calls of /trigger promote into a first environment. Without them it needs no marker.
        preview if preview.error.is_some() && only.is_none() && pipeline.spec.after(at).is_empty() => {
            EnvironmentPreview {
                values: Vec::new(),
                error: None,
                skipped: Some(FIRST_WITHOUT_MARKER),
                ..preview
            }
        }
        preview => preview,
    };
    wanted.map(preview).collect()
}

fn preview_of(
    pipeline: &Pipeline,
    at: usize,
    environment: &Environment,
    files: &[CheckoutFile],
    asked: &[(Option<Facet>, String)],
) -> EnvironmentPreview {
    let mut preview = EnvironmentPreview {
        environment: environment.name.clone(),
        values: Vec::new(),
        error: None,
        skipped: None,
    };
    let strategy = pipeline.spec.policy(environment).and_then(|policy| policy.strategy.as_ref());
    match strategy {
        None if pipeline.spec.after(at).is_empty() => preview.skipped = Some(FIRST),
        None => preview.skipped = Some("the environment has no promotion"),
        Some(s) if s.pull_request.is_none() && s.commit.is_none() => {
            preview.skipped = Some("the strategy sets no values");
        }
        Some(strategy) => {
            let mut facets = tracked(pipeline);
            let open = facets.is_empty();
            if open {
                facets.push(guess(pipeline, Facet::Tag));
            }
            let alone = strategy.pull_request.as_ref().is_some_and(|s| s.per == Per::Target);
            let names = if alone { environment.target_names() } else { Vec::new() };
            let targets: Vec<Option<&str>> =
                if alone { names.iter().map(|name| Some(name.as_str())).collect() } else { vec![None] };
            for target in targets {
                let destination = Destination { pipeline, environment, target };
                match destination.set(strategy.updates(), files, (facets.clone(), open), asked) {
                    Ok(values) => preview.values.extend(values),
                    Err(why) => preview.error = preview.error.take().or(Some(why)),
                }
            }
        }
    }
    preview
}

/// Returns the facets that a pipeline tracks, for each workload that it names. Empty if they depend on the objects in the
/// clusters.
fn tracked(pipeline: &Pipeline) -> Vec<FacetKey> {
    let spec = &pipeline.spec;
    let mut workloads: Vec<(&str, &str)> = spec.app_ref.iter().map(|a| (&*a.kind, &*a.name)).collect();
    let targets = spec.environments.iter().flat_map(|e| &e.targets);
    workloads.extend(targets.flat_map(|t| t.workloads.iter().map(|w| (&*w.kind, &*w.name))));
    workloads.sort_unstable();
    workloads.dedup();
    let facets: Option<Vec<Facet>> = match &spec.tracks[..] {
        [] if !workloads.is_empty()
            && workloads.iter().all(|(kind, _)| *kind == Kind::HelmRelease.name()) =>
        {
            Some(vec![Facet::Chart])
        }
        [] => None,
        tracks => tracks.iter().map(|track| track.parse().ok()).collect(),
    };
    let key = |kind: &str, name: &str, facet: &Facet| FacetKey {
        kind: kind.into(),
        name: name.into(),
        facet: facet.clone(),
    };
    let facets = facets.unwrap_or_default();
    if workloads.is_empty() {
        return facets.into_iter().map(|facet| guess(pipeline, facet)).collect();
    }
    let of = |(kind, name): &(&str, &str)| facets.iter().map(|f| key(kind, name, f)).collect::<Vec<_>>();
    workloads.iter().flat_map(of).collect()
}

/// Returns the facet of a workload that the pipeline does not name, with a guessed kind and name.
fn guess(pipeline: &Pipeline, facet: Facet) -> FacetKey {
    FacetKey { kind: Kind::Kustomization.name().into(), name: pipeline.name_any(), facet }
}

fn revision(facets: &[FacetKey], asked: &[(Option<Facet>, String)]) -> Option<Revision> {
    let value = |key: &FacetKey| {
        let named = asked.iter().find(|(facet, _)| facet.as_ref() == Some(&key.facet));
        let any = asked.iter().find(|(facet, _)| facet.is_none());
        match (named.or(any), &key.facet) {
            (Some((_, value)), _) => value.clone(),
            (None, Facet::Digest) => format!("sha256:{REVISION}"),
            (None, _) => REVISION.into(),
        }
    };
    let all: BTreeMap<FacetKey, String> = facets.iter().map(|key| (key.clone(), value(key))).collect();
    Revision::new(all)
}

/// The environment or target that a promotion goes into.
struct Destination<'a> {
    pipeline: &'a Pipeline,
    environment: &'a Environment,
    /// The one target, if each target is promoted into separately.
    target: Option<&'a str>,
}

impl Destination<'_> {
    fn set(
        &self,
        updates: &[Update],
        files: &[CheckoutFile],
        (mut facets, open): (Vec<FacetKey>, bool),
        asked: &[(Option<Facet>, String)],
    ) -> Result<Vec<ValueChange>, PreviewError> {
        let mut guessed = open;
        loop {
            let Some(revision) = revision(&facets, asked) else { return Ok(Vec::new()) };
            let done = match updates.is_empty() {
                true => self.marked(files, &revision),
                false => self.listed(updates, files, &revision),
            };
            // If the tracked facets depend on the clusters, the preview uses the facets that the files ask for.
            match done {
                Err(UpdateError::Set(SetError::UnknownFacet { choice, .. })) if open && facets.len() < 64 => {
                    if std::mem::take(&mut guessed) {
                        facets.clear();
                    }
                    facets.push(wanted(self.pipeline, choice));
                }
                Err(error) => {
                    return Err(PreviewError { reason: error.reason(), message: error.to_string() });
                }
                Ok(values) if values.is_empty() => return Err(self.no_marker(files)),
                Ok(values) => return Ok(values),
            }
        }
    }

    fn no_marker(&self, files: &[CheckoutFile]) -> PreviewError {
        let (namespace, name) = (self.pipeline.namespace().unwrap_or_default(), self.pipeline.name_any());
        let target = self.target.map(|target| format!(", \"target\": \"{target}\"")).unwrap_or_default();
        let key = format!("{namespace}:{name}:{}", self.environment.name);
        let read = files.iter().map(|file| (file.path.clone(), file.bytes.as_slice()));
        let similar = setters::similar_marker(read, &key);
        let similar =
            similar.map(|similar| format!("; the most similar marker is {similar}")).unwrap_or_default();
        let message = format!(
            "no file has the marker {{\"{}\": \"{key}\"{target}}}: add it as a comment at the end of \
             the value's line, in a .yaml or .yml file, or name the value in the strategy's update{similar}",
            setters::MARKER_KEY
        );
        PreviewError { reason: "NoMarker", message }
    }

    fn marked(&self, files: &[CheckoutFile], revision: &Revision) -> Result<Vec<ValueChange>, UpdateError> {
        let (namespace, name) = (self.pipeline.namespace().unwrap_or_default(), self.pipeline.name_any());
        let request = MarkerRequest {
            namespace: &namespace,
            pipeline: &name,
            environment: &self.environment.name,
            target: self.target,
            revision,
        };
        let mut values = Vec::new();
        for file in files {
            let edited = setters::set_marked(&file.path, &file.bytes, &request)?;
            values.extend(edited.into_iter().flat_map(|edited| sets(file, edited)));
        }
        Ok(values)
    }

    fn listed(
        &self,
        updates: &[Update],
        files: &[CheckoutFile],
        revision: &Revision,
    ) -> Result<Vec<ValueChange>, UpdateError> {
        let targets = self.environment.targets.iter().zip(self.environment.target_names());
        let place = |(target, name): (&api::Target, String)| UpdateTarget {
            environment: self.environment.name.clone(),
            target: name,
            cluster: target.cluster_ref.as_ref().map(|c| c.name.clone()),
            namespace: target.namespace.clone(),
        };
        let places: Vec<UpdateTarget> = targets.map(place).collect();
        let plan = Plan::new(updates, &places, self.target)?;
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let selected: Vec<&CheckoutFile> = plan.select(&paths)?.into_iter().map(|at| &files[at]).collect();
        let read: Vec<(&str, &[u8])> = selected.iter().map(|file| (&*file.path, &*file.bytes)).collect();
        let done = plan.set(&read, revision)?;
        let set = selected.into_iter().zip(done).filter_map(|(file, edited)| Some((file, edited?)));
        Ok(set.flat_map(|(file, edited)| sets(file, edited)).collect())
    }
}

/// Returns the facet that a marker or an entry asks for.
fn wanted(pipeline: &Pipeline, choice: Choice) -> FacetKey {
    let mut key = guess(pipeline, choice.facet.unwrap_or(Facet::Tag));
    if let Some((kind, name)) = choice.workload.as_deref().and_then(|workload| workload.split_once('/')) {
        (key.kind, key.name) = (kind.into(), name.into());
    }
    key
}

fn sets(file: &CheckoutFile, edited: EditedFile) -> Vec<ValueChange> {
    let set = |value: setters::SetValue| ValueChange {
        path: file.path.clone(),
        line: value.line,
        from: value.old,
        to: value.new,
    };
    edited.values.into_iter().map(set).collect()
}
