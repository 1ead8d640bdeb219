//! KindState objects so that one that cannot be read spoils neither a list nor a watch, and so that a
//! list of thousands takes little time and room to read: who manages which field, often the better
//! part of an object, is cut out of its text before anything is made of it.

use std::any::TypeId;
use std::borrow::Cow;

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sluice_api::Pipeline;
use sluice_api::lenient::{self, Lenient};

use super::limit::{self, WatchLimits};
use crate::record::cut;

/// An object, or why it cannot be read.
#[derive(Clone, Debug)]
pub struct Guard<K>(pub Result<K, Unreadable>);

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Why.
    pub error: String,
    /// Which.
    pub metadata: ObjectMeta,
}

/// The longest name that an object may have, and the longest cause that is kept, in bytes.
const NAME: usize = 253;
const CAUSE: usize = 300;

impl Unreadable {
    /// Keeps the name of an object and the beginning of the error. The sender decides how long both are, for the
    /// error quotes the object.
    fn new(mut error: String, metadata: ObjectMeta) -> Self {
        cut(&mut error, CAUSE);
        let ObjectMeta { mut name, mut namespace, mut uid, mut resource_version, .. } = metadata;
        for text in [&mut name, &mut namespace, &mut uid, &mut resource_version].into_iter().flatten() {
            cut(text, NAME);
        }
        Self {
            error,
            metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
        }
    }
}

impl<K: DeserializeOwned + Resource + 'static> Guard<K> {
    /// Reads the text of an object, unless it has more values than the limits allow.
    ///
    /// # Errors
    /// When it is the text of no object at all.
    pub fn within(text: &[u8], limits: &WatchLimits) -> serde_json::Result<Self> {
        let values = limit::values(text);
        if !limits.has_too_many(values) {
            return limit::one_by_one(values, || Self::read(text));
        }
        #[derive(Deserialize)]
        struct Object {
            metadata: Named,
        }
        #[derive(Deserialize)]
        struct Named {
            name: Option<String>,
            namespace: Option<String>,
        }
        let Object { metadata: Named { name, namespace } } = serde_json::from_slice(text)?;
        let error = format!("it has more than {} values", limit::OBJECT_VALUES);
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        Ok(Guard(Err(Unreadable::new(error, metadata))))
    }

    /// Reads the text of an object; a Pipeline, which only the hub sends, leniently.
    ///
    /// # Errors
    /// When it is the text of no object at all.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        // Known when this is compiled: no other kind brings the code for it along.
        let read = if TypeId::of::<K>() == TypeId::of::<Pipeline>() { lenient::read::<K> } else { strictly };
        let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
        let text = without_managers(text);
        match read(&text) {
            Ok(Lenient { object, left_out }) => {
                if !left_out.is_empty() {
                    let ObjectMeta { namespace, name, .. } = object.meta();
                    let pipeline =
                        [namespace, name].map(|text| text.as_deref().unwrap_or_default()).join("/");
                    let parts = left_out.join("; ");
                    tracing::warn!(
                        pipeline,
                        parts,
                        "parts of the status of a Pipeline cannot be read: it is composed and written again"
                    );
                }
                Ok(Guard(Ok(object)))
            }
            Err(error) => {
                let known: PartialObjectMeta<K> = serde_json::from_str(&text)?;
                Ok(Guard(Err(Unreadable::new(error.to_string(), known.metadata))))
            }
        }
    }
}

impl<'de, K: DeserializeOwned + Resource + 'static> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text is kept for a second try: as a tree it would take ten times the room.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(text.get().as_bytes()).map_err(D::Error::custom)
    }
}

/// Reads an object as it is, or not at all.
fn strictly<K: DeserializeOwned>(text: &str) -> serde_json::Result<Lenient<K>> {
    serde_json::from_str(text).map(|object| Lenient { object, left_out: Vec::new() })
}

/// An object's text without who manages which of its fields.
fn without_managers(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        managed_fields: Option<&'a RawValue>,
    }
    let found =
        serde_json::from_str::<Object<'_>>(text).ok().and_then(|object| object.metadata.managed_fields);
    let Some(managers) = found.map(RawValue::get) else { return Cow::Borrowed(text) };
    // What was found is a part of the text: where it stands in memory says where it stands there.
    let from = managers.as_ptr() as usize - text.as_ptr() as usize;
    Cow::Owned([&text[..from], "null", &text[from + managers.len()..]].concat())
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::WatchEvent;
    use serde_json::json;
    use sluice_api::flux::HelmRelease;

    const GOOD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"good","managedFields":[{"manager":"kubectl"}]},"spec":{"environments":[]}}"#;
    const BAD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"bad"},"spec":{"environments":7}}"#;

    #[test]
    fn one_bad_object_spoils_no_list() {
        let read = |text: &str| Guard::<Pipeline>::read(text.as_bytes());
        let bad = read(BAD).unwrap();
        assert!(bad.0.as_ref().unwrap_err().error.contains("invalid type"));
        assert_eq!(bad.meta().name.as_deref(), Some("bad"));
        let good = read(GOOD).unwrap().0.unwrap();
        assert_eq!((good.metadata.name.as_deref(), &good.metadata.managed_fields), (Some("good"), &None));
        assert!(read("7").is_err());
    }

    #[test]
    fn little_is_kept_of_what_cannot_be_read() {
        let long = "x".repeat(1 << 20);
        let object = json!({"metadata": {"name": long, "annotations": {"a": long}, "labels": {"b": long}},
            "spec": {"environments": long}});
        let bad = Guard::<Pipeline>::read(object.to_string().as_bytes()).unwrap().0.unwrap_err();
        assert!(bad.error.starts_with("invalid type: string") && bad.error.len() < 2 * CAUSE);
        assert!(bad.metadata.name.is_some_and(|name| name.len() < 2 * NAME));
        assert_eq!((bad.metadata.annotations, bad.metadata.labels), (None, None));
    }

    #[test]
    fn what_a_cluster_calls_a_pipeline_is_not_read_again_and_again() {
        let text = BAD.replace(r#""spec":{"environments":7}"#, r#""spec":{},"status":7"#);
        assert!(Guard::<HelmRelease>::read(text.as_bytes()).unwrap().0.is_err());
        assert!(
            lenient::read::<HelmRelease>(&text).is_ok(),
            "each part that is left out would be another try"
        );
    }

    #[test]
    fn a_pipeline_of_the_predecessor_is_read_whatever_its_status_says() {
        let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
        let object = Guard::<Pipeline>::read(text.as_bytes()).unwrap().0.unwrap();
        assert_eq!(object.status.unwrap().environments["dev"].targets.len(), 2);
        let odd = text.replace(r#""ready": true"#, r#""ready": "yes""#);
        let object = Guard::<Pipeline>::read(odd.as_bytes()).unwrap().0.unwrap();
        assert_eq!(object.spec.environments.len(), 2);
    }

    #[test]
    fn all_but_the_managers_stays() {
        let text = r#"{"metadata": {"labels":{"managedFields":"a"}, "managedFields" : [{"manager":"}],\""}] ,"name":"b"},"spec":{"managedFields":[1]}}"#;
        let left = r#"{"metadata": {"labels":{"managedFields":"a"}, "managedFields" : null ,"name":"b"},"spec":{"managedFields":[1]}}"#;
        assert_eq!(without_managers(text), left);
        for text in [BAD, "{}", r#"{"metadata":7}"#, r#"{"metadata":{"managedFields":null}}"#] {
            assert_eq!(without_managers(text), text);
        }
    }

    #[test]
    fn one_bad_object_spoils_no_watch() {
        let event = format!(r#"{{"type":"ADDED","object":{BAD}}}"#);
        let event: WatchEvent<Guard<Pipeline>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Added(Guard(Err(_)))));
    }
}
