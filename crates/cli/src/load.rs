//! Reads the pipelines and promotions that a view needs.

use kube::api::ListParams;
use sluice_api::lenient::List;
use sluice_api::{Pipeline, Promotion};

use crate::connection::Connection;
use crate::exit::{Exit, Outcome};
use crate::find::missing;
use crate::objects;
use crate::place::Place;
use crate::terminal::Io;

/// Returns a pipeline and its readable promotions, and warns about the others.
///
/// # Errors
/// When the cluster does not answer, or the pipeline does not exist.
pub(crate) async fn pipeline(
    connection: &Connection,
    name: &str,
    io: &mut Io<'_>,
) -> Outcome<(Pipeline, Vec<Promotion>)> {
    let pipeline = pipeline_alone(connection, name).await?;
    let here = Some(connection.namespace.as_str());
    let List { mut items, mut unreadable } =
        objects::list::<Promotion>(connection, here, &ListParams::default()).await?;
    items.retain(|promotion| promotion.spec.pipeline == name);
    unreadable.retain(|bad| bad.may_be(|spec| spec.pipeline == name));
    objects::warn::<Promotion, _>(unreadable.iter(), io);
    Ok((pipeline, items))
}

/// Returns a pipeline.
///
/// # Errors
/// When the cluster does not answer, or the pipeline does not exist.
pub(crate) async fn pipeline_alone(connection: &Connection, name: &str) -> Outcome<Pipeline> {
    let found = objects::get::<Pipeline>(connection, &connection.namespace, name).await?;
    match found {
        Some(pipeline) => Ok(pipeline),
        None => Err(missing::<Pipeline>(connection, name, false).await),
    }
}

/// Fails if there is no such pipeline, or if it has no such environment (or target). A user without the permission to read
/// pipelines may still see promotions.
pub(crate) async fn check_place(
    connection: &Connection,
    pipeline: &str,
    environment: Option<&str>,
) -> Outcome {
    match pipeline_alone(connection, pipeline).await {
        Ok(pipeline) => environment.map_or(Ok(()), |wanted| Place::find(&pipeline, wanted).map(drop)),
        Err(failure) if failure.exit == Exit::NotFound => Err(failure),
        Err(_) => Ok(()),
    }
}

/// Returns the readable pipelines of a namespace, or of all namespaces, and warns about the others.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn pipelines(
    connection: &Connection,
    namespace: Option<&str>,
    params: &ListParams,
    io: &mut Io<'_>,
) -> Outcome<Vec<Pipeline>> {
    let List { items, unreadable } = objects::list::<Pipeline>(connection, namespace, params).await?;
    objects::warn::<Pipeline, _>(unreadable.iter(), io);
    Ok(items)
}
