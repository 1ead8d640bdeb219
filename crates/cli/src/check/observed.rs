//! Asks the controller what it has observed on the clusters. If it cannot be asked, that is a fact, too.

use sluice_view::check::observed::{IMAGE_NAME_PART, Observed};
use sluice_view::fleet::observed_clusters::Clusters;

use crate::connection::Connection;
use crate::controller_api::{ControllerApi, ServerFlags};
use crate::exit::{Failure, Outcome};
use crate::versions::all_pages;

/// Asks the controller, with the caller's rights.
pub(super) async fn read(connection: &Connection, server: &ServerFlags) -> Observed {
    ask(connection, server)
        .await
        .unwrap_or_else(|Failure { message, hint, .. }| Observed::Unanswered { why: message, fix: hint })
}

async fn ask(connection: &Connection, server: &ServerFlags) -> Outcome<Observed> {
    let api = ControllerApi::open(connection, server).await?;
    let clusters = api.get::<Clusters>("/api/v1/clusters", &[]).await?.items;
    let (images, _) = all_pages(&api, "/api/v1/images", &[("name", IMAGE_NAME_PART)]).await?;
    Ok(Observed::Answered { clusters, images })
}
