//! Reads a pipeline together with the promotions of its namespace, for commands that show a view of both.

use kube::api::ListParams;
use sluice_api::lenient::List;
use sluice_api::{Pipeline, Promotion};

use crate::connection::Connection;
use crate::exit::Outcome;
use crate::find::missing;
use crate::objects;
use crate::terminal::Io;

/// Returns a pipeline and the readable promotions of its namespace, and warns about the others.
///
/// # Errors
/// When the cluster does not answer, or the pipeline does not exist.
pub(crate) async fn pipeline(
    connection: &Connection,
    name: &str,
    io: &mut Io<'_>,
) -> Outcome<(Pipeline, Vec<Promotion>)> {
    let found = objects::get::<Pipeline>(connection, &connection.namespace, name).await?;
    let Some(pipeline) = found else { return Err(missing::<Pipeline>(connection, name, false).await) };
    let promotions = promotions(connection, |spec_pipeline| spec_pipeline == name, io).await?;
    Ok((pipeline, promotions))
}

/// Returns the readable promotions of a namespace that belong to a wanted pipeline, and warns about the unreadable ones.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn promotions(
    connection: &Connection,
    is_wanted: impl Fn(&str) -> bool,
    io: &mut Io<'_>,
) -> Outcome<Vec<Promotion>> {
    let here = Some(connection.namespace.as_str());
    let List { mut items, mut unreadable } =
        objects::list::<Promotion>(connection, here, &ListParams::default()).await?;
    items.retain(|promotion| is_wanted(&promotion.spec.pipeline));
    unreadable.retain(|bad| bad.may_be(|spec| is_wanted(&spec.pipeline)));
    objects::warn::<Promotion, _>(unreadable.iter(), io);
    Ok(items)
}
