//! Reads the clocks of this machine and of the API server.

use jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Request;
use sluice_api::Pipeline;
use sluice_view::check::Reading;
use sluice_view::check::clocks::{ClockOf, Clocks};
use sluice_view::check::controller::Controller;

use crate::controller_lease::server_time;

/// Reads both clocks. `of` says whose clock that of this machine is. Every caller may read `/version`.
pub(super) async fn read(client: &Client, of: ClockOf) -> kube::Result<Clocks> {
    let request = Request::new("/version").list(&ListParams::default());
    let request = request.map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    let here = Timestamp::now();
    let server = server_time(answer.headers());
    Ok(Clocks { of, here, server: server.map_or(Reading::Absent, Reading::Known), newest: None })
}

/// Returns the newest time that the controller has written, and where it is.
pub(super) fn newest(controller: &Controller, pipelines: &[Pipeline]) -> Option<(Timestamp, String)> {
    let leases = controller.leases.known().into_iter().flatten();
    let renewals = leases.filter_map(|lease| Some((lease.renewed?, format!("Lease {}", lease.name))));
    let changes = pipelines.iter().flat_map(|pipeline| {
        let name = pipeline.metadata.name.as_deref().unwrap_or_default();
        let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
        conditions.map(move |condition| (condition.last_transition_time.0, format!("the status of {name}")))
    });
    renewals.chain(changes).max()
}
