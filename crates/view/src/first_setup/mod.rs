//! The first set-up of a pipeline: from one HelmRelease or Kustomization that runs, the manifests of all environments, with
//! a marker at each promoted value.

mod application;
mod error;
mod marked_yaml;
mod notes;
mod promoted;
mod readable;

use serde_json::Value;
use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, Target};
use sluice_core::dns_name::{is_label, is_subdomain};
use sluice_core::manifest_path;
use sluice_core::setters::{UpdateTarget, filled};

use crate::draft::{Draft, DraftTarget};
pub use application::{Application, MAX_BYTES};
pub use error::ApplicationError;
use marked_yaml::{MarkedEnvironment, marked_yaml, marker, put};

/// How many files one set-up has at most.
pub const MAX_FILES: usize = 64;
/// How many bytes all files have at most.
pub const MAX_TOTAL_BYTES: usize = 1 << 20;
/// Fields of the spec that follow the namespace of the object if they name it.
const NAMESPACES: [&str; 2] = ["/spec/targetNamespace", "/spec/storageNamespace"];

/// The files of a first set-up, without the Pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirstSetup {
    /// One file for each target whose manifest is not in git yet.
    pub files: Vec<ApplicationFile>,
    /// The targets whose manifest is in git already, and needs markers.
    pub in_git: Vec<MarkedByHand>,
    /// What people must know, a sentence each.
    pub notes: Vec<String>,
    /// Why there are no files, a sentence each.
    pub problems: Vec<String>,
}

/// The manifest of an application for one target.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationFile {
    /// The name of the environment.
    pub environment: String,
    /// The name of the target.
    pub target: String,
    /// Whether the target is on the hub.
    pub is_on_hub: bool,
    /// The path of the file, from the top of the repository.
    pub path: String,
    /// The manifest with its markers.
    pub yaml: String,
    /// The same manifest as an object.
    pub object: Value,
}

/// A target whose manifest people mark by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedByHand {
    /// The name of the environment.
    pub environment: String,
    /// The name of the target.
    pub target: String,
    /// The marker of each promoted value, with the path of the value.
    pub markers: Vec<(String, String)>,
}

impl FirstSetup {
    /// Returns the files for the environments of a draft. `pipeline` is the Pipeline that the draft makes.
    pub fn of(application: &Application, draft: &Draft, pipeline: &Pipeline) -> FirstSetup {
        let mut setup = FirstSetup { notes: notes::notes(application), ..FirstSetup::default() };
        if let Some(problem) = unnamed(draft, pipeline).or_else(|| other_application(application, draft)) {
            setup.problems.push(problem);
            return setup;
        }
        let entered =
            |at: usize, n: usize| draft.environments.get(at).and_then(|entered| entered.targets.get(n));
        for (at, environment) in pipeline.spec.environments.iter().enumerate() {
            for (n, name) in environment.target_names().into_iter().enumerate() {
                let place = (environment, &environment.targets[n], name);
                match entered(at, n).is_some_and(|entered| entered.in_git) {
                    true => setup.in_git.push(by_hand(application, draft, place)),
                    // One problem is enough: each file costs time.
                    false if setup.problems.is_empty() => setup.add(file(application, draft, place)),
                    false => {}
                }
            }
        }
        if !setup.problems.is_empty() {
            setup.files.clear();
        }
        setup
    }

    /// Adds a file, unless it is in the way of another one or the files become too many.
    fn add(&mut self, file: Result<ApplicationFile, String>) {
        let added = file.and_then(|file| {
            let total: usize = self.files.iter().map(|file| file.yaml.len()).sum();
            if self.files.len() == MAX_FILES || total + file.yaml.len() > MAX_TOTAL_BYTES {
                return Err(format!(
                    "there are more than {MAX_FILES} new files, or more than 1 MiB: begin with fewer targets, or mark targets whose manifests are in git already"
                ));
            }
            match self.files.iter().any(|other| other.path.eq_ignore_ascii_case(&file.path)) {
                true => Err(format!(
                    "several targets have the file {}: put {{environment}}, {{target}}, {{cluster}} or {{namespace}} into the path",
                    file.path
                )),
                false => Ok(file),
            }
        });
        match added {
            Ok(file) => self.files.push(file),
            Err(problem) => self.problems.push(problem),
        }
    }
}

impl Draft {
    /// Fills what a first set-up from an application needs, and keeps what was entered already. `place` is the cluster where
    /// it runs, as people enter it, if that is known.
    pub fn start_from(&mut self, application: &Application, place: Option<&str>) {
        (self.app_kind, self.app_name) = (application.kind.name().into(), application.name.clone());
        if self.name.is_empty() {
            self.name.clone_from(&application.name);
        }
        if self.files.is_empty() {
            self.files = format!("apps/{{environment}}/{}.yaml", application.name);
        }
        if application.namespace.is_empty() {
            return;
        }
        let is_there = |target: &DraftTarget| {
            target.namespace == application.namespace && place.is_none_or(|cluster| cluster == target.cluster)
        };
        let is_known = self.environments.iter().flat_map(|environment| &environment.targets).any(is_there);
        if let Some(cluster) = place.filter(|_| !is_known) {
            self.add_place(cluster, &application.namespace);
        }
        let targets = self.environments.iter_mut().flat_map(|environment| &mut environment.targets);
        targets.filter(|target| is_there(target)).for_each(|target| target.in_git = true);
    }
}

type Place<'a> = (&'a Environment, &'a Target, String);

/// Returns which names are missing or wrong: markers, paths and manifests need them.
fn unnamed(draft: &Draft, pipeline: &Pipeline) -> Option<String> {
    let environments = &pipeline.spec.environments;
    let are_named = is_label(&draft.namespace)
        && is_subdomain(&draft.name)
        && environments.iter().all(|e| is_label(&e.name) && e.targets.iter().all(|t| is_label(&t.namespace)));
    (!are_named).then(|| {
        "the files appear when the pipeline and each environment have a name and a namespace".to_string()
    })
}

/// Returns the problem if the Pipeline is for another application.
fn other_application(application: &Application, draft: &Draft) -> Option<String> {
    let (kind, name) = (application.kind.name(), &application.name);
    if draft.app_kind.is_empty() {
        return Some("a first set-up is for one application, and not for objects that labels choose: choose what Flux applies".into());
    }
    ((draft.app_kind.as_str(), &draft.app_name) != (kind, name)).then(|| {
        format!(
            "the application of the pipeline is {} {}, and the manifest is {kind} {name}: use one of them for both",
            draft.app_kind, draft.app_name
        )
    })
}

fn marked<'a>(draft: &'a Draft, environment: &'a Environment) -> MarkedEnvironment<'a> {
    MarkedEnvironment { namespace: &draft.namespace, pipeline: &draft.name, environment: &environment.name }
}

fn by_hand(application: &Application, draft: &Draft, (environment, _, target): Place<'_>) -> MarkedByHand {
    let of = marked(draft, environment);
    let markers = application.promoted.iter();
    MarkedByHand {
        environment: environment.name.clone(),
        target,
        markers: markers
            .map(|value| (promoted::field_of(&value.pointer), marker(of, &value.facet)))
            .collect(),
    }
}

fn file(
    application: &Application,
    draft: &Draft,
    (environment, target, name): Place<'_>,
) -> Result<ApplicationFile, String> {
    let names = UpdateTarget {
        environment: environment.name.clone(),
        target: name.clone(),
        cluster: target.cluster_ref.as_ref().map(|cluster| cluster.name.clone()),
        namespace: target.namespace.clone(),
    };
    let unusable = |problem: &str| format!("the path of the files cannot be used: {problem}");
    let path = filled(draft.files.trim(), &names).map_err(|problem| unusable(&problem))?;
    if let Some(problem) = manifest_path::problem(&path) {
        return Err(unusable(problem));
    }
    let mut object = application.object.clone();
    for pointer in NAMESPACES {
        let own = object.pointer(pointer).and_then(Value::as_str) == Some(application.namespace.as_str());
        if own && !application.namespace.is_empty() {
            put(&mut object, pointer, target.namespace.as_str().into());
        }
    }
    put(&mut object, "/metadata/namespace", target.namespace.as_str().into());
    let yaml = marked_yaml(&object, &application.promoted, marked(draft, environment))?;
    for value in &application.promoted {
        put(&mut object, &value.pointer, value.value.as_str().into());
    }
    let is_on_hub = target.cluster_ref.is_none();
    Ok(ApplicationFile { environment: environment.name.clone(), target: name, is_on_hub, path, yaml, object })
}

#[cfg(test)]
mod tests;
