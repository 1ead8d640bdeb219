//! Reads a pipeline together with its promotions, for commands that show a view of both.

use kube::api::ListParams;
use sluice_api::lenient::List;
use sluice_api::{Pipeline, Promotion};

use crate::connection::Connection;
use crate::exit::Outcome;
use crate::find::missing;
use crate::objects;
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
    let found = objects::get::<Pipeline>(connection, &connection.namespace, name).await?;
    let Some(pipeline) = found else { return Err(missing::<Pipeline>(connection, name, false).await) };
    let here = Some(connection.namespace.as_str());
    let List { mut items, mut unreadable } =
        objects::list::<Promotion>(connection, here, &ListParams::default()).await?;
    items.retain(|promotion| promotion.spec.pipeline == name);
    unreadable.retain(|bad| bad.may_be(|spec| spec.pipeline == name));
    objects::warn::<Promotion, _>(unreadable.iter(), io);
    Ok((pipeline, items))
}
