//! Asks the controller what it has observed on the clusters. If it cannot be asked, that is a fact, too.

use sluice_view::check::observed::{IMAGE_NAME_PART, Observed};
use sluice_view::fleet::observed_clusters::Clusters;

use crate::connection::Connection;
use crate::controller_api::{ControllerApi, ServerFlags, unidentified};
use crate::exit::{Failure, Outcome};
use crate::versions::all_pages;

/// Asks the controller, with the caller's rights.
pub(super) async fn read(connection: &Connection, server: &ServerFlags) -> Observed {
    let unanswered = |why: &str, fix: &str| Observed::Unanswered { why: why.into(), fix: Some(fix.into()) };
    if let Some((why, fix)) = unidentified(connection) {
        return unanswered(why, fix);
    }
    match ask(connection, server).await {
        Ok(Some(observed)) => observed,
        Ok(None) => unanswered(
            "the controller has no API: it runs with --api-addr=0",
            "if commands such as trace should work, remove this flag from the Deployment",
        ),
        Err(Failure { message, hint, .. }) => Observed::Unanswered { why: message, fix: hint },
    }
}

/// Returns `None` if the API is switched off.
async fn ask(connection: &Connection, server: &ServerFlags) -> Outcome<Option<Observed>> {
    let Some(api) = ControllerApi::open_unless_off(connection, server).await? else { return Ok(None) };
    let clusters = api.get::<Clusters>("/api/v1/clusters", &[]).await?.items;
    let (images, _) = all_pages(&api, "/api/v1/images", &[("name", IMAGE_NAME_PART)]).await?;
    Ok(Some(Observed::Answered { clusters, images }))
}
