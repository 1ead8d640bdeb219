//! Leases as plain values, and how they are called and spelled. One for each shard, and one by which
//! each replica says that it is there.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// Over how many shards a replica splits pipelines; on its own Lease.
const SHARDS: &str = "pipelines.weave.works/shards";

/// What a Lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The right to act for the pipelines of a shard.
    Shard(u32),
    /// That this replica is there.
    Replica(String),
}

impl Name {
    /// As the object is called, in an installation of this name.
    pub fn spell(&self, installation: &str) -> String {
        match self {
            Name::Shard(number) => format!("{installation}.shard-{number}"),
            Name::Replica(identity) => format!("{installation}.replica-{identity}"),
        }
    }

    /// What an object of that name is for; `None` if it is none of this installation's.
    pub fn read(text: &str, installation: &str) -> Option<Name> {
        let rest = text.strip_prefix(installation)?.strip_prefix('.')?;
        match rest.strip_prefix("shard-") {
            Some(number) => number.parse().ok().map(Name::Shard),
            // An identity has no dot; what has one is of another installation.
            None => {
                let identity = rest.strip_prefix("replica-").filter(|id| !id.contains('.'))?;
                Some(Name::Replica(identity.into()))
            }
        }
    }
}

/// What stands in a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who has it; nobody after it was handed back.
    pub holder: Option<String>,
    /// How long after a change it is left to its holder.
    pub duration: Duration,
    /// How often its holder has changed.
    pub transitions: i32,
    /// Over how many shards the holder splits pipelines, where it says so.
    pub shards: Option<u32>,
    /// The version under which all this stands.
    pub version: String,
}

impl Claim {
    /// Reads an object.
    pub fn read(lease: &Lease) -> Claim {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        Claim {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            transitions: spec.lease_transitions.unwrap_or_default(),
            shards: lease.annotations().get(SHARDS).and_then(|n| n.parse().ok()),
            version: lease.resource_version().unwrap_or_default(),
        }
    }

    /// The object that says this. Its times are for people: nobody reckons with another's clock.
    pub fn object(&self, name: &str, acquired: Timestamp, now: Timestamp) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(name.into()),
                resource_version: Some(self.version.clone()).filter(|v| !v.is_empty()),
                labels: Some([("app.kubernetes.io/part-of".into(), "sluice".into())].into()),
                annotations: self.shards.map(|n| [(SHARDS.into(), n.to_string())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: self.holder.clone(),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                acquire_time: Some(MicroTime(acquired)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(self.transitions),
                ..LeaseSpec::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_of_one_installation() {
        for name in [Name::Shard(0), Name::Shard(12), Name::Replica("sluice-5d9f-x2k".into())] {
            for installation in ["sluice", "sluice.team-a", "sluice.shard-5", "sluice.replica-5"] {
                let spelled = name.spell(installation);
                assert_eq!(Name::read(&spelled, installation), Some(name.clone()), "{spelled}");
                let others = ["sluice", "sluice.team-a", "sluice.team", "sluice.shard-5", "sluice.replica-5"];
                for other in others.iter().filter(|other| **other != installation) {
                    assert_eq!(Name::read(&spelled, other), None, "{spelled} is none of {other}'s");
                }
            }
        }
        for text in ["sluice", "sluice.shard-", "sluice.shard-x", "sluice.replica", "other.shard-1"] {
            assert_eq!(Name::read(text, "sluice"), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let claim = Claim {
            holder: Some("a".into()),
            duration: Duration::from_secs(10),
            transitions: 3,
            shards: Some(4),
            version: "7".into(),
        };
        assert_eq!(Claim::read(&claim.object("x", Timestamp::UNIX_EPOCH, Timestamp::now())), claim);
        let released = Claim { holder: None, ..claim };
        assert_eq!(Claim::read(&released.object("x", Timestamp::UNIX_EPOCH, Timestamp::now())), released);
    }
}
