//! Finds the promotion that a person means, by its own name or by where it goes, and says what there
//! is when there is no such thing.

use std::collections::BTreeSet;
use std::fmt::Debug;

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::NamespaceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};

use crate::complete::{environments, promotions_and_pipelines};
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::reference;
use crate::server::is_missing;
use crate::suggest::instead;

/// Which promotion.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// The promotion's name; or, together with --environment, the pipeline's
    #[arg(value_parser = reference::either, add = ArgValueCompleter::new(promotions_and_pipelines))]
    pub name: String,
    /// The environment that the pipeline promotes into, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    pub environment: Option<String>,
}

/// The promotion that is meant. Of several into one environment it is the newest for which `fits`
/// is true, else the newest that no other has taken the place of: what is wrong with that one is
/// then the answer. With a revision the pipeline's name alone is enough.
pub(crate) async fn promotion(
    connection: &Connection,
    which: &Which,
    revision: Option<&str>,
    fits: &dyn Fn(&Promotion) -> bool,
) -> Outcome<Promotion> {
    match (&which.environment, revision) {
        (None, None) => by_name(connection, &which.name).await,
        (None, Some(_)) => {
            let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &connection.namespace);
            match api.get_opt(&which.name).await.map_err(|e| connection.explain(e))? {
                Some(promotion) => Ok(promotion),
                None => by_place(connection, &which.name, None, fits).await,
            }
        }
        (Some(environment), _) => by_place(connection, &which.name, Some(environment), fits).await,
    }
}

/// The pipeline of a promotion, if it can be read.
pub(crate) async fn pipeline_of(connection: &Connection, promotion: &Promotion) -> Option<Pipeline> {
    let namespace = promotion.namespace().unwrap_or_else(|| connection.namespace.clone());
    let api: Api<Pipeline> = Api::namespaced(connection.client.clone(), &namespace);
    api.get_opt(&promotion.spec.pipeline).await.ok().flatten()
}

/// Why nothing happens for now, if a promotion's pipeline is suspended.
pub(crate) fn suspended(pipeline: Option<&Pipeline>) -> Option<String> {
    let pipeline = pipeline.filter(|pipeline| pipeline.spec.suspend)?;
    Some(format!(
        "pipeline {} is suspended: nothing is done until spec.suspend is false",
        pipeline.name_any()
    ))
}

async fn by_name(connection: &Connection, name: &str) -> Outcome<Promotion> {
    let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &connection.namespace);
    match api.get(name).await {
        Ok(promotion) => Ok(promotion),
        Err(kube::Error::Api(status)) if is_missing(&status) => {
            let pipelines: Api<Pipeline> = Api::namespaced(connection.client.clone(), &connection.namespace);
            match pipelines.get_opt(name).await {
                Ok(Some(pipeline)) => Err(is_a_pipeline(&pipeline)),
                _ => Err(missing::<Promotion>(connection, name, false).await),
            }
        }
        Err(error) => Err(connection.explain(error)),
    }
}

fn is_a_pipeline(pipeline: &Pipeline) -> Failure {
    let name = pipeline.name_any();
    let last = pipeline.spec.environments.last().map(|e| e.name.as_str()).unwrap_or_default();
    Failure::new(Exit::NotFound, format!("there is no promotion {name}, but a pipeline of that name"))
        .hinted(format!("say which environment: {name} --environment {last}"))
}

async fn by_place(
    connection: &Connection,
    pipeline: &str,
    environment: Option<&str>,
    fits: &dyn Fn(&Promotion) -> bool,
) -> Outcome<Promotion> {
    let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let promotions = api.list(&ListParams::default()).await.map_err(|e| connection.explain(e))?.items;
    let is_there = |p: &Promotion| environment.is_none_or(|wanted| p.spec.is_into(wanted));
    let there: Vec<Promotion> =
        promotions.into_iter().filter(|p| p.spec.pipeline == pipeline && is_there(p)).collect();
    let places: BTreeSet<String> = there.iter().filter(|p| fits(p)).map(|p| p.spec.place()).collect();
    if places.len() > 1 {
        let places: Vec<String> = places.into_iter().collect();
        let message = match environment {
            Some(environment) => format!("each target of {environment} is promoted into by itself"),
            None => format!("pipeline {pipeline} promotes it into several places"),
        };
        let hint = format!("say which is meant: {pipeline} --environment {}", places.join(" or "));
        return Err(Failure::new(Exit::Error, message).hinted(hint));
    }
    match choose(there, fits) {
        Some(promotion) => Ok(promotion),
        None => Err(no_promotion(connection, pipeline, environment).await),
    }
}

fn choose(mut promotions: Vec<Promotion>, fits: &dyn Fn(&Promotion) -> bool) -> Option<Promotion> {
    promotions.sort_by_cached_key(|p| {
        let replaced = matches!(phase(p), Phase::Superseded | Phase::Cancelled);
        let waits = phase(p) == Phase::Pending;
        (fits(p), !replaced, waits, p.creation_timestamp(), p.name_any())
    });
    promotions.pop()
}

/// Where a promotion is; Pending before the controller has said anything.
pub(crate) fn phase(promotion: &Promotion) -> Phase {
    promotion.status.as_ref().map(|s| s.phase).unwrap_or_default()
}

async fn no_promotion(connection: &Connection, pipeline: &str, environment: Option<&str>) -> Failure {
    let api: Api<Pipeline> = Api::namespaced(connection.client.clone(), &connection.namespace);
    match api.get_opt(pipeline).await {
        Err(error) => connection.explain(error),
        Ok(None) => missing::<Pipeline>(connection, pipeline, false).await,
        Ok(Some(found)) => {
            let Some(environment) = environment else {
                return Failure::new(Exit::NotFound, format!("pipeline {pipeline} has no promotion"));
            };
            let names: Vec<String> = found.spec.environments.iter().map(|e| e.name.clone()).collect();
            let message = match names.iter().any(|n| n == environment) {
                true => format!("pipeline {pipeline} has no promotion into {environment}"),
                false => {
                    let end = instead(environment, &names, "environments", &format!("pipeline {pipeline}"));
                    format!("pipeline {pipeline} has no environment {environment}{end}")
                }
            };
            Failure::new(Exit::NotFound, message)
        }
    }
}

/// The failure that says `name` is not there, and what is: in this namespace or, where one may look
/// further, in another.
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
    let there = found.map(|list| list.items).unwrap_or_default();
    let (kind, kinds) = (K::kind(&()).to_ascii_lowercase(), K::plural(&()));
    let place = if everywhere { "the cluster".into() } else { format!("namespace {here}") };
    Failure::new(
        Exit::NotFound,
        format!("there is no {kind} {name} in {place}{}", other(name, &there, &kinds, here, everywhere)),
    )
}

fn other<K>(name: &str, there: &[PartialObjectMeta<K>], kinds: &str, here: &str, everywhere: bool) -> String
where
    K: Resource<DynamicType = ()>,
{
    let namespace = |o: &PartialObjectMeta<K>| o.metadata.namespace.clone().unwrap_or_default();
    let elsewhere = there.iter().find(|o| o.metadata.name.as_deref() == Some(name));
    if let Some(elsewhere) = elsewhere {
        return format!("; there is one in namespace {0}: add -n {0}", namespace(elsewhere));
    }
    let near = there.iter().filter(|o| everywhere || namespace(o) == here);
    let names: Vec<String> = near.filter_map(|o| o.metadata.name.clone()).collect();
    let place = if everywhere { "the cluster".to_owned() } else { format!("namespace {here}") };
    instead(name, &names, kinds, &place)
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
    fn the_newest_that_fits_is_meant_else_the_newest_that_counts() {
        let all = vec![
            promotion("a", 1, Phase::Pending),
            promotion("b", 2, Phase::Pending),
            promotion("c", 3, Phase::Succeeded),
            promotion("d", 4, Phase::Superseded),
        ];
        let chosen = |fits: &dyn Fn(&Promotion) -> bool| choose(all.clone(), fits).unwrap().name_any();
        assert_eq!(chosen(&|p| phase(p) == Phase::Pending), "b");
        assert_eq!(chosen(&|p| phase(p) == Phase::Succeeded), "c");
        assert_eq!(chosen(&|_| false), "b", "one that waits");
        assert!(choose(vec![], &|_| true).is_none());
    }
}
