//! The Leases of the controller: a shard whose Lease is not renewed has no replica that acts, so nothing changes.

use http_body_util::BodyExt;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease as KubernetesLease;
use kube::ResourceExt;
use kube::api::{ApiResource, ListParams};
use kube::client::Body;
use kube::core::{NotUsed, Object, ObjectList, Request};
use serde::{Deserialize, Serialize};
use sluice_core::Time;
use sluice_view::check::controller::Lease;

use crate::connection::Connection;
use crate::terminal::Io;

/// The labels of the Leases of the controller.
pub(crate) const LEASE_LABELS: &str = "app.kubernetes.io/part-of=sluice";

/// A Lease. A user may store in it a time that the common type cannot hold.
pub(crate) type StoredLease = Object<StoredLeaseSpec, NotUsed>;

/// The fields of a Lease that are looked at.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredLeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Time>,
    lease_duration_seconds: i64,
}

/// Returns the kind of Leases.
pub(crate) fn lease_resource() -> ApiResource {
    ApiResource::erase::<KubernetesLease>(&())
}

/// Returns what is looked at of a Lease.
pub(crate) fn lease(lease: StoredLease) -> Lease {
    Lease {
        name: lease.name_any(),
        holder: lease.spec.holder_identity,
        renewed: lease.spec.renew_time.map(|time| *time),
        duration: SignedDuration::from_secs(lease.spec.lease_duration_seconds),
    }
}

/// Returns the time in the header `Date` of an answer of the API server.
pub(crate) fn server_time(headers: &http::HeaderMap) -> Option<Timestamp> {
    let date = headers.get(http::header::DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(date).ok()
}

/// Warns if a shard of the controller in this namespace has no replica that acts. If the Leases cannot be read, there is no
/// warning.
pub(crate) async fn warn_if_nobody_acts(connection: &Connection, namespace: &str, io: &mut Io<'_>) {
    let Some((leases, now)) = read(connection, namespace).await else { return };
    let mut shards = leases.into_iter().filter(Lease::is_of_shard);
    if let Some(trouble) = shards.find_map(|lease| lease.trouble(now)) {
        io.note(&format!("! no controller acts: {trouble}: sluice check -n {}", connection.namespace));
    }
}

/// Returns the Leases and the time of the API server: this machine's clock may be wrong.
async fn read(connection: &Connection, namespace: &str) -> Option<(Vec<Lease>, Timestamp)> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let request = Request::new(path).list(&ListParams::default().labels(LEASE_LABELS)).ok()?;
    let answer = connection.client.send(request.map(Body::from)).await.ok()?;
    let now = server_time(answer.headers())?;
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    let listed: ObjectList<StoredLease> = serde_json::from_slice(&body).ok()?;
    Some((listed.items.into_iter().map(lease).collect(), now))
}
