//! What an event of Flux says. The forms of all its versions are read; what is not known is left
//! alone. Source: notification-controller, `apis/event/v1beta1` and `apis/event/v1`.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What is said where there should be a revision.
pub(super) const NO_REVISION: &str =
    "the event has no revision in its metadata: only events of Flux's own controllers are taken";

pub(super) use sluice_core::value::{VALUE_FORMAT, is_value};

/// An event as notification-controller posts it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// What it is about.
    pub involved_object: InvolvedObject,
    /// `info` or `error`.
    #[serde(default)]
    pub severity: String,
    /// When it happened, in whole seconds.
    #[serde(default)]
    pub timestamp: Option<Timestamp>,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// One word for what happened.
    #[serde(default)]
    pub reason: String,
    /// `revision`, and what the Alert adds.
    #[serde(default, deserialize_with = "few")]
    pub metadata: BTreeMap<String, String>,
}

/// How many values the metadata of an event may have. Flux's own events have five, and Alerts add a few.
const MOST: usize = 100;

/// Reads metadata that is not too large: a map of a million empty texts takes fifty times the room of its body.
fn few<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a map of texts with at most {MOST} entries")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = from.next_entry()? {
                map.insert(key, value);
                if map.len() > MOST {
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
    from.deserialize_any(Few)
}

/// All that is read of an event before its signature is verified: which cluster it says that it is from. Nothing else
/// of it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Origin {
    #[serde(default)]
    metadata: Clusters,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Clusters {
    cluster: Option<String>,
    #[serde(rename = "helm.toolkit.fluxcd.io/cluster")]
    of_helm: Option<String>,
    #[serde(rename = "kustomize.toolkit.fluxcd.io/cluster")]
    of_kustomize: Option<String>,
}

impl Origin {
    /// The name of the cluster.
    pub fn cluster(&self) -> Option<&str> {
        let all = [&self.metadata.cluster, &self.metadata.of_helm, &self.metadata.of_kustomize];
        all.into_iter().flatten().map(String::as_str).find(|cluster| !cluster.is_empty())
    }
}

/// Names an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObject {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its version when the event was made.
    pub resource_version: String,
}

impl InvolvedObject {
    /// Its API group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The object runs the revision that it names, by its own word.
    Deployed,
    /// It does not, or not any more.
    Failed,
    /// Nothing: it is on its way, waits, was put right, or says something of no concern here.
    Nothing,
}

impl Event {
    /// What follows from it. A Kustomization has arrived when its reconciliation succeeded, which its
    /// `Progressing` events come before; a HelmRelease when it was installed or upgraded, or its tests
    /// passed. Before Flux 2.2 a HelmRelease's reason was the severity, and only the message told.
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

    /// Whether it tells how the tests of a release ended, in the words of either age of Flux.
    pub fn is_of_tests(&self) -> bool {
        let legacy = self.reason == self.severity && self.message.starts_with("Helm test ");
        matches!(self.reason.as_str(), "TestSucceeded" | "TestFailed") || legacy
    }

    /// A value of its metadata, under its plain key or with the prefix of the object's group, which
    /// old notification-controllers leave in.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let prefixed = format!("{}/{key}", self.involved_object.group());
        let found = self.metadata.get(key).or_else(|| self.metadata.get(&prefixed));
        found.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The revision that it is about.
    pub fn revision(&self) -> Option<&str> {
        self.metadata("revision")
    }
}
