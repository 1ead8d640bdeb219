//! Reading objects so that one that cannot be read spoils neither a list nor a watch, and so that a
//! list of thousands takes little room while it is read: who manages which field is dropped from
//! each object before the next one is read.

use std::borrow::Cow;

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text is kept for a second try: as a tree it would take ten times the room.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<K>(text.get()) {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                Ok(Guard(Ok(object)))
            }
            Err(error) => {
                let known: PartialObjectMeta<K> =
                    serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                Ok(Guard(Err(Unreadable { error: error.to_string(), metadata: known.metadata })))
            }
        }
    }
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
    use kube::core::{ObjectList, WatchEvent};
    use sluice_api::Pipeline;

    const GOOD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"good","managedFields":[{"manager":"kubectl"}]},"spec":{"environments":[]}}"#;
    const BAD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"bad"},"spec":{"environments":7}}"#;

    #[test]
    fn one_bad_object_spoils_no_list() {
        let list =
            format!(r#"{{"kind":"PipelineList","apiVersion":"v1","metadata":{{}},"items":[{BAD},{GOOD}]}}"#);
        let list: ObjectList<Guard<Pipeline>> = serde_json::from_str(&list).unwrap();
        assert!(list.items[0].0.as_ref().unwrap_err().error.contains("invalid type"));
        assert_eq!(list.items[0].meta().name.as_deref(), Some("bad"));
        let good = list.items[1].0.as_ref().unwrap();
        assert_eq!((good.metadata.name.as_deref(), &good.metadata.managed_fields), (Some("good"), &None));
    }

    #[test]
    fn one_bad_object_spoils_no_watch() {
        let event = format!(r#"{{"type":"ADDED","object":{BAD}}}"#);
        let event: WatchEvent<Guard<Pipeline>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Added(Guard(Err(_)))));
    }
}
