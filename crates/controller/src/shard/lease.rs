//! Leases as plain values: their names and their contents. Each shard has a Lease, and each replica that takes
//! part has one.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as KubernetesLease;
use kube::ResourceExt;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::{NotUsed, Object, TypeMeta};
use serde::{Deserialize, Serialize};

/// The annotation of a replica's Lease: the number of shards that the replica splits pipelines over.
const SHARDS: &str = "pipelines.weave.works/shards";

/// What a Lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseName {
    /// Its holder acts for the pipelines of the shard.
    Shard(u32),
    /// The replica of this identity takes part.
    Replica(String),
}

impl LeaseName {
    /// The name of the object, in an installation of this name.
    pub fn object_name(&self, installation: &str) -> String {
        match self {
            LeaseName::Shard(number) => format!("{installation}.shard-{number}"),
            LeaseName::Replica(identity) => format!("{installation}.replica-{identity}"),
        }
    }

    /// Parses the name of an object. Returns `None` if it is not a Lease of this installation.
    pub fn parse(object_name: &str, installation: &str) -> Option<LeaseName> {
        let rest = object_name.strip_prefix(installation)?.strip_prefix('.')?;
        match rest.strip_prefix("shard-") {
            // `shard-00` is another object than `shard-0`, and not one that a replica has written.
            Some(digits) => {
                let number = digits.parse::<u32>().ok().filter(|number| number.to_string() == digits)?;
                Some(LeaseName::Shard(number))
            }
            // An identity has no dot. A name with a dot belongs to another installation.
            None => {
                let identity = rest.strip_prefix("replica-").filter(|id| !id.contains('.'))?;
                Some(LeaseName::Replica(identity.into()))
            }
        }
    }
}

/// A Lease as it is stored. The API server accepts times that a [`Timestamp`] cannot hold, such as the last hour of the
/// year 9999. Its times are for people, so they are never parsed: no Lease is unreadable.
pub type Lease = Object<LeaseFields, NotUsed>;

/// The spec of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseFields {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// Returns the kind Lease as the hub serves it.
pub fn lease_resource() -> ApiResource {
    ApiResource::erase::<KubernetesLease>(&())
}

/// The contents of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The identity of the holder; `None` after the Lease was handed back.
    pub holder: Option<String>,
    /// How long after a change other replicas leave the Lease to its holder.
    pub duration: Duration,
    /// How often the holder has changed.
    pub transitions: i32,
    /// The number of shards that the holder splits pipelines over. Only Leases of replicas have it.
    pub shards: Option<u32>,
    /// The object's version; empty if the Lease does not exist.
    pub version: String,
    /// True if the Lease was deleted, and exists only until its finalizers are removed.
    pub is_terminating: bool,
}

impl LeaseRecord {
    /// Reads an object.
    pub fn from_lease(lease: &Lease) -> LeaseRecord {
        let spec = lease.spec.clone();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        LeaseRecord {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            transitions: spec.lease_transitions.unwrap_or_default(),
            shards: lease.annotations().get(SHARDS).and_then(|n| n.parse().ok()),
            version: lease.resource_version().unwrap_or_default(),
            is_terminating: lease.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The object with these contents. Its times are for people: no replica compares them with its own clock.
    pub fn to_lease(&self, name: &str, acquired: Timestamp, now: Timestamp) -> Lease {
        // The API server expects six digits of the second
        // (https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/micro_time.go).
        let text = |time: Timestamp| Some(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
        Lease {
            types: Some(TypeMeta::resource::<KubernetesLease>()),
            metadata: ObjectMeta {
                name: Some(name.into()),
                resource_version: Some(self.version.clone()).filter(|v| !v.is_empty()),
                labels: Some([("app.kubernetes.io/part-of".into(), "sluice".into())].into()),
                annotations: self.shards.map(|n| [(SHARDS.into(), n.to_string())].into()),
                ..ObjectMeta::default()
            },
            spec: LeaseFields {
                holder_identity: self.holder.clone(),
                lease_duration_seconds: i64::try_from(self.duration.as_secs()).ok(),
                acquire_time: text(acquired),
                renew_time: text(now),
                lease_transitions: Some(self.transitions),
            },
            status: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_belongs_to_one_installation() {
        let names = [LeaseName::Shard(0), LeaseName::Shard(12), LeaseName::Replica("sluice-5d9f-x2k".into())];
        for name in names {
            for installation in ["sluice", "sluice.team-a", "sluice.shard-5", "sluice.replica-5"] {
                let object_name = name.object_name(installation);
                assert_eq!(LeaseName::parse(&object_name, installation), Some(name.clone()), "{object_name}");
                let others = ["sluice", "sluice.team-a", "sluice.team", "sluice.shard-5", "sluice.replica-5"];
                for other in others.iter().filter(|other| **other != installation) {
                    assert_eq!(LeaseName::parse(&object_name, other), None, "{object_name} {other}");
                }
            }
        }
        for object_name in [
            "sluice",
            "sluice.shard-",
            "sluice.shard-x",
            "sluice.shard-00",
            "sluice.shard-+1",
            "sluice.replica",
            "other.shard-1",
        ] {
            assert_eq!(LeaseName::parse(object_name, "sluice"), None, "{object_name}");
        }
    }

    #[test]
    fn a_record_reads_the_same_after_it_was_written() {
        let record = LeaseRecord {
            holder: Some("a".into()),
            duration: Duration::from_secs(10),
            transitions: 3,
            shards: Some(4),
            version: "7".into(),
            is_terminating: false,
        };
        let released = LeaseRecord { holder: None, ..record.clone() };
        for record in [record, released] {
            let lease = record.to_lease("x", Timestamp::UNIX_EPOCH, Timestamp::now());
            assert_eq!(LeaseRecord::from_lease(&lease), record);
        }
    }

    #[test]
    fn a_lease_with_any_time_is_readable() {
        let stored = serde_json::json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "sluice.shard-0", "resourceVersion": "7"},
            "spec": {"holderIdentity": "eve", "leaseDurationSeconds": 10, "renewTime": "9999-12-31T23:59:59.999999Z"}});
        let text = stored.to_string();
        assert!(
            serde_json::from_str::<KubernetesLease>(&text).is_err(),
            "the common type cannot hold this time"
        );
        let lease: Lease = serde_json::from_str(&text).unwrap();
        assert_eq!(LeaseRecord::from_lease(&lease).holder.as_deref(), Some("eve"));
    }
}
