//! Finds the promotion that a command names, by its own name or by its pipeline and environment. If there is none, the
//! error names what there is.

use std::collections::BTreeSet;
use std::fmt::Debug;

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::{ListParams, ObjectMeta};
use kube::core::NamespaceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::lenient::{List, Unreadable};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion, PromotionSpec};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::name_completion::{environments, promotions_and_pipelines};
use crate::object_argument;
use crate::objects;
use crate::place::Place;
use crate::suggest::instead;
use crate::terminal::Io;

/// The arguments that name a promotion.
#[derive(Args, Clone, Debug)]
pub(crate) struct PromotionArgs {
    /// The promotion's name; or, together with --environment, the pipeline's
    #[arg(value_parser = object_argument::either, add = ArgValueCompleter::new(promotions_and_pipelines))]
    pub name: String,
    /// The environment that the pipeline promotes into, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    pub environment: Option<String>,
}

/// Returns the promotion that the arguments name.
///
/// If there are several into one environment, it is the newest one for which `fits` is true. If there is none, it
/// is the newest one that no other has replaced, and the command reports what is wrong with it. With a revision,
/// the pipeline's name is enough.
///
/// # Errors
/// When there is no such promotion, or when an unreadable object may be the promotion.
pub(crate) async fn promotion(
    connection: &Connection,
    which: &PromotionArgs,
    revision: Option<&str>,
    fits: &dyn Fn(&Promotion) -> bool,
    io: &mut Io<'_>,
) -> Outcome<Promotion> {
    let environment = which.environment.as_deref();
    match (environment, revision) {
        (None, None) => return by_name(connection, &which.name).await,
        (None, Some(_)) => {
            if let Some(promotion) = objects::get(connection, &connection.namespace, &which.name).await? {
                return Ok(promotion);
            }
        }
        _ => {}
    }
    by_environment(connection, &which.name, (environment, revision), fits, io).await
}

/// Returns the pipeline of a promotion, if it can be read. Warns about an unreadable pipeline.
pub(crate) async fn pipeline_of(
    connection: &Connection,
    promotion: &Promotion,
    io: &mut Io<'_>,
) -> Option<Pipeline> {
    let namespace = promotion.namespace().unwrap_or_else(|| connection.namespace.clone());
    match objects::get(connection, &namespace, &promotion.spec.pipeline).await {
        Ok(pipeline) => pipeline,
        // A user without the permission to read pipelines may still approve.
        Err(failure) if failure.exit == Exit::Cluster => None,
        Err(failure) => {
            io.fail(&failure);
            None
        }
    }
}

async fn by_name(connection: &Connection, name: &str) -> Outcome<Promotion> {
    if let Some(promotion) = objects::get(connection, &connection.namespace, name).await? {
        return Ok(promotion);
    }
    match objects::get(connection, &connection.namespace, name).await {
        Ok(Some(pipeline)) => Err(is_a_pipeline(&pipeline)),
        _ => Err(missing::<Promotion>(connection, name, false).await),
    }
}

fn is_a_pipeline(pipeline: &Pipeline) -> Failure {
    let name = pipeline.name_any();
    let last = pipeline.spec.environments.last().map(|e| e.name.as_str()).unwrap_or_default();
    Failure::new(Exit::NotFound, format!("there is no promotion {name}, but a pipeline of that name"))
        .hinted(format!("say which environment: {name} --environment {last}"))
}

async fn by_environment(
    connection: &Connection,
    pipeline: &str,
    (environment, revision): (Option<&str>, Option<&str>),
    fits: &dyn Fn(&Promotion) -> bool,
    io: &mut Io<'_>,
) -> Outcome<Promotion> {
    // A promotion into the whole environment is meant by each of its targets, but not by the name of no target.
    if let Some(wanted) = environment.filter(|wanted| wanted.contains('/'))
        && let Ok(Some(found)) = objects::get::<Pipeline>(connection, &connection.namespace, pipeline).await
    {
        Place::find(&found, wanted)?;
    }
    let here = Some(connection.namespace.as_str());
    let List { items, mut unreadable } =
        objects::list::<Promotion>(connection, here, &ListParams::default()).await?;
    let is_there = |spec: &PromotionSpec| {
        spec.pipeline == pipeline && environment.is_none_or(|wanted| spec.changes(wanted))
    };
    let is_revision = |spec: &PromotionSpec| revision.is_none_or(|wanted| spec.revision == wanted);
    unreadable.retain(|bad| bad.may_be(|spec| is_there(spec) && is_revision(spec)));
    let there: Vec<Promotion> = items.into_iter().filter(|p| is_there(&p.spec)).collect();
    let places: BTreeSet<String> = there.iter().filter(|p| fits(p)).map(|p| p.spec.place()).collect();
    if places.len() > 1 {
        let places: Vec<String> = places.into_iter().collect();
        let message = match environment {
            Some(environment) => format!("each target of {environment} is promoted into separately"),
            None => format!("pipeline {pipeline} promotes it into several places"),
        };
        let hint = format!("name one: {pipeline} --environment {}", places.join(" or "));
        return Err(Failure::new(Exit::Error, message).hinted(hint));
    }
    let chosen = choose(there, fits);
    if let Some(bad) = unreadable.iter().find(|bad| may_be_requested(bad, chosen.as_ref())) {
        return Err(uncertain(bad, chosen.as_ref()));
    }
    objects::warn::<Promotion, _>(unreadable.iter(), io);
    match chosen {
        Some(promotion) => Ok(promotion),
        None => Err(no_promotion(connection, pipeline, environment).await),
    }
}

/// Returns true if an unreadable promotion may be the requested one instead of `chosen`: it is not an earlier promotion
/// into the same environment (or target).
fn may_be_requested(bad: &Unreadable<PromotionSpec>, chosen: Option<&Promotion>) -> bool {
    let Some(chosen) = chosen else { return true };
    let is_of_its_place = bad.spec.as_ref().is_some_and(|spec| spec.place() == chosen.spec.place());
    !is_of_its_place || bad.metadata.creation_timestamp >= chosen.creation_timestamp()
}

/// Returns the failure if it is uncertain which promotion is requested.
fn uncertain(bad: &Unreadable<PromotionSpec>, chosen: Option<&Promotion>) -> Failure {
    let failure = objects::failure(&objects::describe::<Promotion, _>(bad));
    let Some(chosen) = chosen else { return failure };
    let hint = failure.hint.clone().unwrap_or_default();
    failure.hinted(format!(
        "it may be the requested promotion: {hint}; to use {}, write its name",
        chosen.name_any()
    ))
}

/// Returns the promotion to change: the newest one that fits, else the newest one that waits, else the newest one
/// that was not replaced.
fn choose(mut promotions: Vec<Promotion>, fits: &dyn Fn(&Promotion) -> bool) -> Option<Promotion> {
    let is_replaced = |p: &Promotion| matches!(p.phase(), Phase::Superseded | Phase::Cancelled);
    let age = |p: &Promotion| (p.creation_timestamp(), p.name_any());
    let newest = promotions.iter().filter(|p| !is_replaced(p)).map(age).max();
    promotions.sort_by_cached_key(|p| {
        // A newer promotion into the same place has replaced what a succeeded one brought.
        let is_past = p.phase() == Phase::Succeeded && newest.as_ref() != Some(&age(p));
        let waits = p.phase() == Phase::Pending;
        // One that was replaced can be rejected by its name: who names a pipeline means what goes into it now.
        (fits(p) && !is_past && !is_replaced(p), !is_replaced(p), waits, age(p))
    });
    promotions.pop()
}

async fn no_promotion(connection: &Connection, pipeline: &str, environment: Option<&str>) -> Failure {
    match objects::get::<Pipeline>(connection, &connection.namespace, pipeline).await {
        Err(failure) => failure,
        Ok(None) => missing::<Pipeline>(connection, pipeline, false).await,
        Ok(Some(found)) => {
            let Some(environment) = environment else {
                return Failure::new(Exit::NotFound, format!("pipeline {pipeline} has no promotion"));
            };
            if let Err(failure) = Place::find(&found, environment) {
                return failure;
            }
            Failure::new(Exit::NotFound, format!("pipeline {pipeline} has no promotion into {environment}"))
        }
    }
}

/// Returns the failure for a missing object. It names similar objects of the namespace, or the namespace that has the
/// object if the user may list all namespaces.
pub(crate) async fn missing<K>(connection: &Connection, name: &str, everywhere: bool) -> Failure
where
    K: Resource<DynamicType = (), Scope: NamespaceScope> + Clone + Debug + DeserializeOwned,
{
    let here = &connection.namespace;
    let all: Api<K> = Api::all(connection.client.clone());
    let params = ListParams::default().match_any();
    let found = match all.list_metadata(&params).await {
        Err(_) if !everywhere => all.constrain(here).list_metadata(&params).await,
        found => found,
    };
    let there: Vec<ObjectMeta> =
        found.map(|l| l.items).unwrap_or_default().into_iter().map(|o| o.metadata).collect();
    let (kind, kinds) = (K::kind(&()).to_ascii_lowercase(), K::plural(&()));
    let place = if everywhere { "the cluster".into() } else { format!("namespace {here}") };
    let namespace = |object: &ObjectMeta| object.namespace.clone().unwrap_or_default();
    let end = match there.iter().find(|object| object.name.as_deref() == Some(name)) {
        Some(elsewhere) => format!("; there is one in namespace {0}: add -n {0}", namespace(elsewhere)),
        None => {
            let near = there.iter().filter(|object| everywhere || namespace(object) == *here);
            let names: Vec<String> = near.filter_map(|object| object.name.clone()).collect();
            instead(name, &names, &kinds, &place)
        }
    };
    Failure::new(Exit::NotFound, format!("there is no {kind} {name} in {place}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::{PromotionSpec, PromotionStatus};

    fn promotion(name: &str, created: i64, phase: Phase) -> Promotion {
        let mut promotion = Promotion::new(name, PromotionSpec::default());
        promotion.metadata.creation_timestamp = jiff::Timestamp::from_second(created)
            .ok()
            .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
        promotion.status = Some(PromotionStatus { phase, ..PromotionStatus::default() });
        promotion
    }

    #[test]
    fn the_newest_that_fits_is_chosen_else_the_newest_not_replaced() {
        let all = vec![
            promotion("a", 1, Phase::Pending),
            promotion("b", 2, Phase::Pending),
            promotion("c", 3, Phase::Succeeded),
            promotion("d", 4, Phase::Superseded),
        ];
        let chosen = |fits: &dyn Fn(&Promotion) -> bool| choose(all.clone(), fits).unwrap().name_any();
        assert_eq!(chosen(&|p| p.phase() == Phase::Pending), "b");
        assert_eq!(chosen(&|p| p.phase() == Phase::Succeeded), "c");
        assert_eq!(
            chosen(&|p| p.phase() == Phase::Superseded),
            "b",
            "one that was replaced is chosen by its name only"
        );
        assert_eq!(chosen(&|_| false), "b", "one that waits");
        assert!(choose(vec![], &|_| true).is_none());
    }

    #[test]
    fn an_unreadable_promotion_may_be_requested_unless_it_is_earlier_in_the_same_environment() {
        let chosen = promotion("chosen", 5, Phase::Pending);
        let bad = |created: i64, target: Option<&str>| Unreadable {
            metadata: promotion("bad", created, Phase::Pending).metadata,
            spec: Some(PromotionSpec { target: target.map(str::to_owned), ..PromotionSpec::default() }),
            error: "why".into(),
        };
        assert!(!may_be_requested(&bad(4, None), Some(&chosen)));
        assert!(may_be_requested(&bad(5, None), Some(&chosen)), "the order within one second is unknown");
        assert!(may_be_requested(&bad(6, None), Some(&chosen)));
        assert!(may_be_requested(&bad(4, Some("eu")), Some(&chosen)), "another target may be requested");
        assert!(may_be_requested(&Unreadable { spec: None, ..bad(4, None) }, Some(&chosen)));
        assert!(may_be_requested(&bad(4, None), None));
        let Failure { message, hint, .. } = uncertain(&bad(6, None), Some(&chosen));
        assert!(message.ends_with("bad cannot be read: why"), "{message}");
        assert!(hint.is_some_and(|hint| hint.ends_with("to use chosen, write its name")));
    }
}
