//! The scope of an export: the pipeline, the requested environments, and the clusters of their targets.

use kube::ResourceExt;
use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, Target};

use super::names::comment_text;
use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::Outcome;
use crate::find;
use crate::objects;
use crate::suggest::no_environment;

/// Returns the pipeline of this name, and the connection to its cluster.
pub(super) async fn pipeline(connect: &ClusterFlags, name: &str) -> Outcome<(Connection, Pipeline)> {
    let connection = connect.open(Some(API_CALL_TIMEOUT))?;
    match objects::get(&connection, &connection.namespace, name).await? {
        Some(pipeline) => Ok((connection, pipeline)),
        None => Err(find::missing::<Pipeline>(&connection, name, false).await),
    }
}

/// Returns all environments, or the one of this name.
pub(super) fn environments<'a>(pipeline: &'a Pipeline, name: Option<&str>) -> Outcome<Vec<&'a Environment>> {
    let all = &pipeline.spec.environments;
    let Some(name) = name else { return Ok(all.iter().collect()) };
    let found: Vec<_> = all.iter().filter(|e| e.name == name).collect();
    if found.is_empty() {
        let known: Vec<String> = all.iter().map(|e| e.name.clone()).collect();
        return Err(no_environment(&pipeline.name_any(), name, &known));
    }
    Ok(found)
}

/// Returns the name of a target's cluster, for comments.
pub(super) fn cluster_of(target: &Target, home: &str) -> String {
    match &target.cluster_ref {
        Some(cluster) => {
            let namespace = cluster.namespace.as_deref().unwrap_or(home);
            comment_text(&format!("cluster {namespace}/{}", cluster.name))
        }
        None => "the hub".into(),
    }
}
