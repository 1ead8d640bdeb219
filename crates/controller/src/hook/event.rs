//! An event of Flux, in the forms of all its versions. Unknown fields are ignored.
//! Source: notification-controller, `apis/event/v1beta1` and `apis/event/v1`.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The answer to an event without a revision.
pub(super) const NO_REVISION: &str =
    "the event has no revision in its metadata: only events of Flux's own controllers are accepted";

pub(super) use sluice_core::value_check::{VALUE_FORMAT, is_value};

/// An event as notification-controller posts it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedEvent {
    /// The object that the event is about.
    pub involved_object: InvolvedObject,
    /// `info` or `error`.
    #[serde(default)]
    pub severity: String,
    /// The time of the event, in whole seconds.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
    /// A text for people.
    #[serde(default)]
    pub message: String,
    /// A word such as `UpgradeSucceeded`.
    #[serde(default)]
    pub reason: String,
    /// The `revision`, and the values that the Alert adds.
    #[serde(default, deserialize_with = "read_metadata")]
    pub metadata: BTreeMap<String, String>,
}

/// How many values the metadata of an event may have. Flux's own events have five, and Alerts add a few.
const MAX_METADATA_ENTRIES: usize = 100;

/// Reads metadata with a limited number of entries: a map of a million empty texts takes fifty times the memory of
/// its body.
fn read_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct BoundedMap;
    impl<'de> Visitor<'de> for BoundedMap {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a map of texts with at most {MAX_METADATA_ENTRIES} entries")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = from.next_entry()? {
                map.insert(key, value);
                if map.len() > MAX_METADATA_ENTRIES {
                    return Err(serde::de::Error::invalid_length(map.len(), &self));
                }
            }
            Ok(map)
        }

        // Go writes an empty map as null.
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }
    }
    from.deserialize_any(BoundedMap)
}

/// The cluster that an event names. This is all that is read of an event before its signature is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EventOrigin {
    #[serde(default)]
    metadata: ClusterNames,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ClusterNames {
    cluster: Option<String>,
    #[serde(rename = "helm.toolkit.fluxcd.io/cluster")]
    of_helm: Option<String>,
    #[serde(rename = "kustomize.toolkit.fluxcd.io/cluster")]
    of_kustomize: Option<String>,
}

impl EventOrigin {
    /// Returns the name of the cluster, if the event names one.
    pub fn cluster(&self) -> Option<&str> {
        let all = [&self.metadata.cluster, &self.metadata.of_helm, &self.metadata.of_kustomize];
        all.into_iter().flatten().map(String::as_str).find(|cluster| !cluster.is_empty())
    }
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObject {
    /// The API group and version.
    pub api_version: String,
    /// The kind, such as `HelmRelease`.
    pub kind: String,
    /// The namespace on the event's cluster.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The resource version at the time of the event.
    pub resource_version: String,
}

impl InvolvedObject {
    /// Returns the API group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// What an event reports about its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The object runs the revision that the event names.
    Deployed,
    /// The object failed to reach a revision, or does not run it any more.
    Failed,
    /// Neither of these, for example progress, a dependency, or corrected drift.
    Nothing,
}

impl ReceivedEvent {
    /// Returns what the event reports. A Kustomization is deployed when its reconciliation has succeeded; a
    /// HelmRelease is deployed when it was installed or upgraded, or its tests have succeeded. Before Flux 2.2,
    /// the reason of a HelmRelease's event was its severity, so the message decides.
    pub fn meaning(&self) -> Meaning {
        let kind = self.involved_object.kind.as_str();
        if !matches!(kind, "Kustomization" | "HelmRelease") {
            return Meaning::Nothing;
        }
        match (kind, self.reason.as_str()) {
            _ if self.severity == "error" && self.reason != "DriftDetected" => Meaning::Failed,
            _ if self.severity == "error" => Meaning::Nothing,
            ("Kustomization", "ReconciliationSucceeded") => Meaning::Deployed,
            ("HelmRelease", "InstallSucceeded" | "UpgradeSucceeded" | "TestSucceeded") => Meaning::Deployed,
            ("HelmRelease", "info") => {
                let done = ["Helm install succeeded", "Helm upgrade succeeded", "Helm test succeeded"];
                match done.iter().any(|text| self.message.starts_with(text)) {
                    true => Meaning::Deployed,
                    false => Meaning::Nothing,
                }
            }
            _ => Meaning::Nothing,
        }
    }

    /// Returns true if the event reports the result of a release's tests, in the form of Flux before or since 2.2.
    pub fn is_test_result(&self) -> bool {
        let legacy = self.reason == self.severity && self.message.starts_with("Helm test ");
        matches!(self.reason.as_str(), "TestSucceeded" | "TestFailed") || legacy
    }

    /// Returns a value of the metadata, under its plain key or with the prefix of the object's group. Old versions
    /// of notification-controller do not remove the prefix.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let prefixed = format!("{}/{key}", self.involved_object.group());
        let found = self.metadata.get(key).or_else(|| self.metadata.get(&prefixed));
        found.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the revision that the event names.
    pub fn revision(&self) -> Option<&str> {
        self.metadata("revision")
    }
}
