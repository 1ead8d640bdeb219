//! Parses objects one by one, so that an unreadable object breaks neither a list nor a watch. To save time and
//! memory, `managedFields`, which is often the larger part of an object, is removed from the text before it is
//! parsed.

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
use sluice_core::fleet::ClusterKey;

use super::limit::{self, WatchLimits};
use super::object_text::{Beginning, ObjectText};
use super::too_large::{MAX_OBJECT_BYTES, TooLarge};
use crate::record::cut;

/// An object, or the error of parsing it.
#[derive(Clone, Debug)]
pub struct ParsedObject<K>(pub Result<K, UnreadableObject>);

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableObject {
    /// The beginning of the error.
    pub error: String,
    /// The name, namespace, UID and resource version of the object.
    pub metadata: ObjectMeta,
}

/// The most bytes of a name in Kubernetes.
const MAX_NAME_BYTES: usize = 253;
/// The most bytes that are kept of an error.
const MAX_ERROR_BYTES: usize = 300;

/// The part of an object that identifies it. Everything else is skipped, however deeply it is nested: types that keep other
/// fields aside until they know them, such as those of `kube`, fail at 128 levels, and users nest values in their objects.
#[derive(Deserialize)]
pub(super) struct IdentifiedObject {
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl IdentifiedObject {
    /// Reads the name, namespace, UID and resource version of the text of an object.
    ///
    /// # Errors
    /// When the text is not an object with metadata.
    pub(super) fn read(text: &[u8]) -> serde_json::Result<ObjectMeta> {
        let IdentifiedObject { metadata: Identity { name, namespace, uid, resource_version } } =
            serde_json::from_slice(text)?;
        Ok(ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() })
    }
}

impl UnreadableObject {
    /// Cuts the error and the texts of the metadata, because a cluster may send texts of any length and the error
    /// quotes the object.
    fn new(mut error: String, metadata: ObjectMeta) -> Self {
        cut(&mut error, MAX_ERROR_BYTES);
        let ObjectMeta { mut name, mut namespace, mut uid, mut resource_version, .. } = metadata;
        for text in [&mut name, &mut namespace, &mut uid, &mut resource_version].into_iter().flatten() {
            cut(text, MAX_NAME_BYTES);
        }
        Self {
            error,
            metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
        }
    }
}

impl<K: DeserializeOwned + Resource + 'static> ParsedObject<K> {
    /// Parses the text of an object, unless it has more bytes or values than the limits allow.
    ///
    /// # Errors
    /// When the text is not an object with metadata.
    pub fn within(text: ObjectText<'_>, limits: &WatchLimits) -> kube::Result<Self> {
        let text = match text {
            ObjectText::Whole(text) => text,
            ObjectText::Beginning(text) => return Self::too_long(Beginning::read(text).metadata),
        };
        let values = limit::count_values(text);
        if !limits.has_too_many(values) {
            return limit::one_at_a_time(values, || Self::read(text)).map_err(kube::Error::SerdeError);
        }
        let error = format!("it has more than {} values", limit::MAX_OBJECT_VALUES);
        let metadata = IdentifiedObject::read(text).map_err(kube::Error::SerdeError)?;
        Ok(ParsedObject(Err(UnreadableObject::new(error, metadata))))
    }

    /// Returns an unreadable object, which has too many bytes, by the metadata at its beginning.
    ///
    /// # Errors
    /// When the beginning does not have the name.
    pub(super) fn too_long(metadata: ObjectMeta) -> kube::Result<Self> {
        if metadata.name.is_none() {
            return Err(TooLarge::Object.into());
        }
        let error = format!("it has more than {} MiB", MAX_OBJECT_BYTES >> 20);
        Ok(ParsedObject(Err(UnreadableObject::new(error, metadata))))
    }

    /// Parses the text of an object. Of a Pipeline, which only the hub sends, it leaves out unreadable parts of
    /// the status.
    ///
    /// # Errors
    /// When the text is not an object with metadata.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        // With a known result, the compiler generates the lenient code for Pipelines only.
        let read =
            if TypeId::of::<K>() == TypeId::of::<Pipeline>() { lenient::read::<K> } else { parse_strictly };
        let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
        let text = without_managed_fields(text);
        match read(&text) {
            Ok(Lenient { object, left_out }) => {
                if !left_out.is_empty() {
                    let ObjectMeta { namespace, name, .. } = object.meta();
                    let pipeline =
                        [namespace, name].map(|text| text.as_deref().unwrap_or_default()).join("/");
                    let parts = left_out.join("; ");
                    tracing::warn!(
                        cluster = %ClusterKey::Local,
                        pipeline,
                        parts,
                        "cannot read parts of the status of a Pipeline; the status will be written again"
                    );
                }
                Ok(ParsedObject(Ok(object)))
            }
            Err(error) => {
                let metadata = IdentifiedObject::read(text.as_bytes())?;
                Ok(ParsedObject(Err(UnreadableObject::new(error.to_string(), metadata))))
            }
        }
    }
}

impl<'de, K: DeserializeOwned + Resource + 'static> Deserialize<'de> for ParsedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Parsing may need the text twice. As a tree of values it would take ten times the memory.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(text.get().as_bytes()).map_err(D::Error::custom)
    }
}

/// Parses an object, and leaves out nothing.
fn parse_strictly<K: DeserializeOwned>(text: &str) -> serde_json::Result<Lenient<K>> {
    serde_json::from_str(text).map(|object| Lenient { object, left_out: Vec::new() })
}

/// Reads the metadata of the text of an object, without `managedFields`.
///
/// # Errors
/// When the text is not an object with metadata.
pub(super) fn metadata_alone(text: &[u8]) -> serde_json::Result<PartialObjectMeta> {
    // Not the type itself: it keeps `managedFields` aside, which users can nest too deeply for that.
    #[derive(Deserialize)]
    struct WithMetadata {
        metadata: ObjectMeta,
    }
    let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    let WithMetadata { metadata } = serde_json::from_str(&without_managed_fields(text))?;
    Ok(PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData })
}

/// Returns the JSON text of an object with null as `managedFields`.
fn without_managed_fields(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct ManagedObject<'a> {
        #[serde(borrow)]
        metadata: ManagedMetadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ManagedMetadata<'a> {
        #[serde(borrow)]
        managed_fields: Option<&'a RawValue>,
    }
    let object = serde_json::from_str::<ManagedObject<'_>>(text).ok();
    let managed_fields = object.and_then(|object| object.metadata.managed_fields);
    let Some(managed_fields) = managed_fields.map(RawValue::get) else { return Cow::Borrowed(text) };
    // The raw value is a slice of the text, so the addresses tell its offset.
    let from = managed_fields.as_ptr() as usize - text.as_ptr() as usize;
    Cow::Owned([&text[..from], "null", &text[from + managed_fields.len()..]].concat())
}

impl<K: Resource> Resource for ParsedObject<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic_type)
    }

    fn group(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic_type)
    }

    fn version(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic_type)
    }

    fn plural(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic_type)
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
    use crate::watch::line::WatchLine;
    use kube::core::WatchEvent;
    use serde_json::json;
    use sluice_api::flux::HelmRelease;

    const GOOD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"good","managedFields":[{"manager":"kubectl"}]},"spec":{"environments":[]}}"#;
    const BAD: &str = r#"{"apiVersion":"pipelines.weave.works/v1alpha1","kind":"Pipeline","metadata":{"name":"bad"},"spec":{"environments":7}}"#;

    /// Users nest values as deeply as they like, and `managedFields` repeats it.
    #[test]
    fn a_deeply_nested_object_is_read_or_named() {
        for depth in [100, 200, 5_000] {
            let nested = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
            let text = format!(
                "{{\"apiVersion\":\"helm.toolkit.fluxcd.io/v2\",\"kind\":\"HelmRelease\",\"metadata\":{{\"name\":\"deep\",\
                 \"namespace\":\"apps\",\"uid\":\"u\",\"resourceVersion\":\"7\",\"managedFields\":[{{\"fieldsV1\":{nested}}}]}},\
                 \"spec\":{{\"interval\":\"1h\",\"values\":{nested}}},\"status\":{{}}}}"
            );
            let read = ParsedObject::<HelmRelease>::read(text.as_bytes()).unwrap();
            assert_eq!((read.meta().name.as_deref(), read.meta().uid.as_deref()), (Some("deep"), Some("u")));
            assert_eq!(read.0.is_ok(), depth == 100, "{depth}");
            assert_eq!(metadata_alone(text.as_bytes()).unwrap().metadata.name.as_deref(), Some("deep"));
            let limits = WatchLimits::hub("HelmReleases");
            for (kind, version) in [("ADDED", "7"), ("MODIFIED", "7"), ("DELETED", "7"), ("BOOKMARK", "7")] {
                let line = format!("{{\"type\":\"{kind}\",\"object\":{text}}}");
                let parsed =
                    crate::watch::line::parse::<HelmRelease>(ObjectText::Whole(line.as_bytes()), &limits);
                let at = match parsed.unwrap_or_else(|error| panic!("{kind} {depth}: {error}")) {
                    WatchLine::Applied(_, at) | WatchLine::Deleted(_, at) | WatchLine::Bookmark(at) => at,
                    WatchLine::Empty => panic!("{kind}"),
                };
                assert_eq!(at, version, "{kind} {depth}");
            }
        }
    }

    #[test]
    fn an_unreadable_object_does_not_break_a_list() {
        let read = |text: &str| ParsedObject::<Pipeline>::read(text.as_bytes());
        let bad = read(BAD).unwrap();
        assert!(bad.0.as_ref().unwrap_err().error.contains("invalid type"));
        assert_eq!(bad.meta().name.as_deref(), Some("bad"));
        let good = read(GOOD).unwrap().0.unwrap();
        assert_eq!((good.metadata.name.as_deref(), &good.metadata.managed_fields), (Some("good"), &None));
        assert!(read("7").is_err());
    }

    #[test]
    fn the_error_and_metadata_of_an_unreadable_object_are_cut() {
        let long = "x".repeat(1 << 20);
        let object = json!({"metadata": {"name": long, "annotations": {"a": long}, "labels": {"b": long}},
            "spec": {"environments": long}});
        let bad = ParsedObject::<Pipeline>::read(object.to_string().as_bytes()).unwrap().0.unwrap_err();
        assert!(bad.error.starts_with("invalid type: string") && bad.error.len() < 2 * MAX_ERROR_BYTES);
        assert!(bad.metadata.name.is_some_and(|name| name.len() < 2 * MAX_NAME_BYTES));
        assert_eq!((bad.metadata.annotations, bad.metadata.labels), (None, None));
    }

    #[test]
    fn an_object_of_another_kind_is_not_parsed_leniently_even_if_it_calls_itself_a_pipeline() {
        let text = BAD.replace(r#""spec":{"environments":7}"#, r#""spec":{},"status":7"#);
        assert!(ParsedObject::<HelmRelease>::read(text.as_bytes()).unwrap().0.is_err());
        assert!(
            lenient::read::<HelmRelease>(&text).is_ok(),
            "the lenient parser would parse it once more for each part that it leaves out"
        );
    }

    #[test]
    fn a_pipeline_with_a_status_of_the_predecessor_is_readable() {
        let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
        let object = ParsedObject::<Pipeline>::read(text.as_bytes()).unwrap().0.unwrap();
        assert_eq!(object.status.unwrap().environments["dev"].targets.len(), 2);
        let odd = text.replace(r#""ready": true"#, r#""ready": "yes""#);
        let object = ParsedObject::<Pipeline>::read(odd.as_bytes()).unwrap().0.unwrap();
        assert_eq!(object.spec.environments.len(), 2);
    }

    #[test]
    fn only_the_managed_fields_of_the_metadata_are_removed() {
        let text = r#"{"metadata": {"labels":{"managedFields":"a"}, "managedFields" : [{"manager":"}],\""}] ,"name":"b"},"spec":{"managedFields":[1]}}"#;
        let left = r#"{"metadata": {"labels":{"managedFields":"a"}, "managedFields" : null ,"name":"b"},"spec":{"managedFields":[1]}}"#;
        assert_eq!(without_managed_fields(text), left);
        for text in [BAD, "{}", r#"{"metadata":7}"#, r#"{"metadata":{"managedFields":null}}"#] {
            assert_eq!(without_managed_fields(text), text);
        }
    }

    #[test]
    fn an_unreadable_object_does_not_break_a_watch() {
        let event = format!(r#"{{"type":"ADDED","object":{BAD}}}"#);
        let event: WatchEvent<ParsedObject<Pipeline>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Added(ParsedObject(Err(_)))));
    }
}
