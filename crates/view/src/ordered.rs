//! The fields of a manifest in the order in which people write them.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// The fields in order. Other fields follow, by their names.
const ORDER: [&str; 29] = [
    "apiVersion",
    "kind",
    "metadata",
    "type",
    "name",
    "namespace",
    "labels",
    "annotations",
    "suspend",
    "appRef",
    "tracks",
    "clusterRef",
    "observe",
    "workloads",
    "after",
    "targets",
    "environments",
    "manual",
    "minReadyTargets",
    "timeout",
    "promotion",
    "strategy",
    "url",
    "apiURL",
    "baseBranch",
    "branch",
    "secretRef",
    "path",
    "field",
];

/// A value whose fields are in order.
pub(crate) struct Ordered<'a>(pub(crate) &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let rank = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                fields.sort_by_key(|(name, _)| (rank(name), *name));
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Ordered(item))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}
