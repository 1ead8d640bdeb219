//! The places of a pipeline: what has promotions of its own, a whole environment or one of its targets.

use std::borrow::Borrow;

use sluice_api::pipeline::{Environment, EnvironmentStatus, Per, Pipeline, PromotionPolicy, TargetStatus};
use sluice_api::promotion::{Phase, Promotion, PromotionStatus, place};
use sluice_core::Time;

/// An environment, or one target of an environment whose targets are promoted into separately.
pub(crate) struct Place<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The environment in the spec.
    pub environment: &'a Environment,
    /// The target, if each target is promoted into separately.
    pub target: Option<String>,
    /// The names of the predecessors.
    pub after: Vec<&'a str>,
    /// How revisions get here; `None` if the environment is only shown.
    pub policy: Option<&'a PromotionPolicy>,
    /// The environment in the status, if the controller has written it.
    pub status: Option<&'a EnvironmentStatus>,
}

/// The reasons of the controller's notes about what stays as it is until a person acts.
const NEEDS_PERSON: [&str; 8] = [
    "Ended",
    "NameNotAccepted",
    "NoWorkloads",
    "PromotesItsOwnCommits",
    "RecordFailed",
    "SourceNotReadable",
    "StrategyRefused",
    "Tampered",
];

impl<'a> Place<'a> {
    /// Returns all places of a pipeline, in the order of the spec.
    pub(crate) fn all(pipeline: &'a Pipeline) -> Vec<Place<'a>> {
        let spec = &pipeline.spec;
        let statuses = pipeline.status.as_ref().map(|status| &status.environments);
        let mut places = Vec::new();
        for (at, environment) in spec.environments.iter().enumerate() {
            let policy = spec.policy(environment);
            let request = policy.and_then(|p| p.strategy.as_ref()?.pull_request.as_ref());
            let targets = match request {
                Some(request) if request.per == Per::Target => {
                    environment.target_names().into_iter().map(Some).collect()
                }
                _ => vec![None],
            };
            let status = statuses.and_then(|all| all.get(&environment.name));
            for target in targets {
                places.push(Place { pipeline, environment, target, after: spec.after(at), policy, status });
            }
        }
        places
    }

    /// Returns the name as people read it: the environment, or `environment/target`.
    pub(crate) fn name(&self) -> String {
        place(&self.environment.name, self.target.as_deref())
    }

    /// Returns the observed targets of the place.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &'a TargetStatus> {
        let wanted = self.target.clone();
        let all = self.status.map_or(&[][..], |status| &status.targets);
        all.iter().filter(move |target| wanted.as_ref().is_none_or(|wanted| *wanted == target.name))
    }

    /// Returns the revision that all targets of the place run.
    pub(crate) fn revision(&self) -> Option<&'a str> {
        match &self.target {
            Some(_) => self.targets().next().and_then(|target| target.revision.as_deref()),
            None => self.status.and_then(|status| status.revision.as_deref()),
        }
    }

    /// Whether nothing happens until a person does what the controller's note says. The note of an environment whose targets
    /// are promoted into separately has the reason of the target that it names first, if it names one.
    pub(crate) fn note_needs_person(&self) -> bool {
        let Some(status) = self.status.filter(|status| NEEDS_PERSON.contains(&status.reason.as_str())) else {
            return false;
        };
        let names = |target: &String| status.message.starts_with(&format!("{target}: "));
        let is_of_all = !self.environment.target_names().iter().any(names);
        self.target.as_ref().is_none_or(|target| is_of_all || names(target))
    }

    /// Returns the newest promotion into the place, if it explains what the place runs or why that does not change: not
    /// one that succeeded, was replaced or was cancelled, nor one that failed although the place runs its revision.
    pub(crate) fn current<'p, P: Borrow<Promotion>>(&self, promotions: &'p [P]) -> Option<&'p Promotion> {
        let is_here = |p: &&Promotion| {
            Some(&p.spec.pipeline) == self.pipeline.metadata.name.as_ref()
                && p.spec.environment == self.environment.name
                && p.spec.target == self.target
        };
        let promotions = promotions.iter().map(Borrow::borrow).filter(is_here);
        let newest = promotions.max_by_key(|p| p.current_order())?;
        let is_over = match newest.phase() {
            Phase::Succeeded | Phase::Superseded | Phase::Cancelled => true,
            Phase::Failed | Phase::Rejected => self.revision() == Some(newest.spec.revision.as_str()),
            Phase::Pending | Phase::Promoting | Phase::Proposed | Phase::Delivered => false,
        };
        (!is_over).then_some(newest)
    }

    /// Returns when a delivered promotion fails if its targets do not run it healthily by then.
    pub(crate) fn deadline(&self, status: &PromotionStatus) -> Option<Time> {
        let delivered = status.entered(Phase::Delivered)?;
        delivered.checked_add(self.policy?.timeout()).ok().map(Time::exact)
    }
}
