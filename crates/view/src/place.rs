//! The places of a pipeline: what has promotions of its own, a whole environment or one of its targets.

use sluice_api::pipeline::{Environment, EnvironmentStatus, Per, Pipeline, PromotionPolicy, TargetStatus};
use sluice_api::promotion::{Promotion, PromotionStatus, place};

/// An environment, or one target of an environment whose targets are promoted into separately.
pub(crate) struct Place<'a> {
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
                places.push(Place { environment, target, after: spec.after(at), policy, status });
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

    /// Returns the promotions into the place, the newest first.
    pub(crate) fn promotions<'p>(&self, all: &'p [Promotion]) -> Vec<&'p Promotion> {
        let is_here =
            |p: &&Promotion| p.spec.environment == self.environment.name && p.spec.target == self.target;
        let mut here: Vec<&Promotion> = all.iter().filter(is_here).collect();
        here.sort_by_key(|p| std::cmp::Reverse(p.order()));
        here
    }
}

/// Returns the status of a promotion, or the status of one that the controller has not seen yet.
pub(crate) fn status_of(promotion: &Promotion) -> PromotionStatus {
    promotion.status.clone().unwrap_or_default()
}
