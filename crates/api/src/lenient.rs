//! Lenient reading of Pipelines and Promotions. Another version of Sluice, the predecessor or a person may have written the
//! status of a Pipeline: its unreadable parts are left out, and the controller writes them again. A spec and the status
//! of a Promotion are read strictly. In a list, each object is read separately. Each part that is left out costs one more
//! parse, so only objects of a trusted server may be read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::GetParams;
use kube::core::object::HasSpec;
use kube::core::{Request, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

/// An object without the unreadable parts of its status.
#[derive(Clone, Debug)]
pub struct Lenient<K> {
    /// The object without these parts.
    pub object: K,
    /// The path of each part that was left out, with the error.
    pub left_out: Vec<String>,
}

/// The most single parts that are left out. After them, as many whole environments are left out at most, and then
/// the whole status. Each part that is left out costs one more parse.
const MAX_PARTS: usize = 16;

/// The most characters of an error message, which may quote the unreadable value.
const MAX_ERROR_CHARS: usize = 300;

/// Reads an object from an API server; `None` if it does not exist.
///
/// # Errors
/// When the API server does not answer or does not serve the kind, or as `SerdeError` when the object is unreadable.
pub async fn get<K>(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Lenient<K>>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let text = get_text::<K>(client, namespace, name).await?;
    text.map(|text| read(&text)).transpose().map_err(kube::Error::SerdeError)
}

/// Reads the JSON of an object from an API server; `None` if it does not exist.
///
/// # Errors
/// When the API server does not answer or does not serve the kind.
pub async fn get_text<K>(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()>,
{
    let request = Request::new(K::url_path(&(), Some(namespace))).get(name, &GetParams::default());
    match client.request_text(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(text) => Ok(Some(text)),
        Err(kube::Error::Api(status)) if is_missing_object(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a status says that one object does not exist. An API server that does not serve the object's kind also
/// answers 404, without the name of an object.
pub fn is_missing_object(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Reads the JSON of an object.
///
/// # Errors
/// When it cannot be read even without its status.
pub fn read<K: DeserializeOwned>(text: &str) -> serde_json::Result<Lenient<K>> {
    match serde_json::from_str(text) {
        Ok(object) => Ok(Lenient { object, left_out: Vec::new() }),
        Err(error) => salvage(serde_json::from_str(text)?, error),
    }
}

/// Reads an object from a tree of JSON.
///
/// # Errors
/// As [`read`].
pub fn from_value<K: DeserializeOwned>(tree: Value) -> serde_json::Result<Lenient<K>> {
    match K::deserialize(&tree) {
        Ok(object) => Ok(Lenient { object, left_out: Vec::new() }),
        Err(error) => salvage(tree, error),
    }
}

/// A list whose objects are read separately.
#[derive(Clone, Debug)]
pub struct List<K: HasSpec> {
    /// The readable objects, in the order of the list.
    pub items: Vec<K>,
    /// The unreadable objects.
    pub unreadable: Vec<Unreadable<K::Spec>>,
}

/// An unreadable object.
#[derive(Clone, Debug)]
pub struct Unreadable<S> {
    /// The object's metadata.
    pub metadata: ObjectMeta,
    /// The object's spec, if it is readable.
    pub spec: Option<S>,
    /// The error of the parser.
    pub error: String,
}

impl<S> Unreadable<S> {
    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if the spec meets a condition or is unreadable.
    pub fn may_be(&self, is: impl FnOnce(&S) -> bool) -> bool {
        self.spec.as_ref().is_none_or(is)
    }
}

/// Reads the JSON of a list.
///
/// # Errors
/// When the text is no list of objects with metadata.
pub fn read_list<K>(text: &str) -> serde_json::Result<List<K>>
where
    K: DeserializeOwned + HasSpec<Spec: DeserializeOwned>,
{
    #[derive(Deserialize)]
    struct Texts<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let mut list = List { items: Vec::new(), unreadable: Vec::new() };
    for text in serde_json::from_str::<Texts<'_>>(text)?.items {
        match read_item(text.get())? {
            Ok(object) => list.items.push(object),
            Err(object) => list.unreadable.push(object),
        }
    }
    Ok(list)
}

/// Reads the JSON of an object of a list.
///
/// # Errors
/// When the text is no object with metadata.
pub fn read_item<K>(text: &str) -> serde_json::Result<Result<K, Unreadable<K::Spec>>>
where
    K: DeserializeOwned + HasSpec<Spec: DeserializeOwned>,
{
    match read(text) {
        Ok(Lenient { object, .. }) => Ok(Ok(object)),
        Err(error) => unreadable(text, &error).map(Err),
    }
}

fn unreadable<S: DeserializeOwned>(
    text: &str,
    error: &serde_json::Error,
) -> serde_json::Result<Unreadable<S>> {
    #[derive(Deserialize)]
    struct WithMetadata {
        metadata: ObjectMeta,
    }
    #[derive(Deserialize)]
    struct WithSpec<S> {
        spec: S,
    }
    let WithMetadata { metadata } = serde_json::from_str(text)?;
    let spec = serde_json::from_str(text).ok().map(|WithSpec { spec }| spec);
    Ok(Unreadable { metadata, spec, error: error.to_string().chars().take(MAX_ERROR_CHARS).collect() })
}

/// Reads a Pipeline without the unreadable parts of its status.
fn salvage<K: DeserializeOwned>(mut tree: Value, first: serde_json::Error) -> serde_json::Result<Lenient<K>> {
    let is = |key: &str, of: fn(&str) -> bool| tree[key].as_str().is_some_and(of);
    let is_ours = is("apiVersion", |version| version.split('/').next() == Some(crate::GROUP));
    if !is_ours || !is("kind", |kind| kind == "Pipeline") {
        return Err(first);
    }
    let mut left_out = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, K>(&tree) {
            Ok(object) => return Ok(Lenient { object, left_out }),
            Err(error) => error,
        };
        let depth = match left_out.len() {
            n if n < MAX_PARTS => usize::MAX,
            // Three steps: `status`, `environments`, and the name of an environment.
            n if n < 2 * MAX_PARTS => 3,
            _ => 1,
        };
        if remove(&mut tree, error.path(), depth).is_none() {
            return Err(first);
        }
        let part = format!("{}: {}", error.path(), error.inner());
        left_out.push(part.chars().take(MAX_ERROR_CHARS).collect());
    }
}

/// Removes the value at a path of the status, or the value that contains it at most `depth` steps from the root. Returns
/// the removed value.
fn remove(tree: &mut Value, path: &Path, depth: usize) -> Option<Value> {
    // The rest of the path after an unknown step has no value.
    let steps = path.iter().take(depth).take_while(|s| !matches!(s, Segment::Enum { .. } | Segment::Unknown));
    let steps: Vec<&Segment> = steps.collect();
    let (last, parents) = steps.split_last()?;
    if !matches!(steps[0], Segment::Map { key } if key == "status") {
        return None;
    }
    let parent = parents.iter().try_fold(tree, |at, step| match step {
        Segment::Map { key } => at.get_mut(key),
        Segment::Seq { index } => at.get_mut(*index),
        Segment::Enum { .. } | Segment::Unknown => None,
    })?;
    match (last, parent) {
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => Some(items.remove(*index)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Pipeline;
    use crate::pipeline::Health;

    fn pipeline(status: Value) -> Value {
        json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
            "spec": {"environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]}, "status": status})
    }

    fn read_tree(tree: &Value) -> serde_json::Result<Lenient<Pipeline>> {
        read(&tree.to_string())
    }

    #[test]
    fn a_status_of_the_predecessor_is_read() {
        let object: Value =
            serde_json::from_str(include_str!("../tests/data/predecessor-level-mode.json")).unwrap();
        let read = read_tree(&object).unwrap();
        assert_eq!(read.left_out, Vec::<String>::new());
        let status = read.object.status.unwrap();
        let target = &status.environments["dev"].targets[0];
        assert_eq!(
            (target.name.as_str(), target.ready, target.revision.as_deref()),
            ("", true, Some("6.1.8"))
        );
    }

    #[test]
    fn only_the_unreadable_parts_of_a_status_are_left_out() {
        let good = json!({"name": "eu", "namespace": "podinfo", "health": "Ready",
            "verified": [{"facets": {"HelmRelease/podinfo:chart": "6.1.8"}, "arrival": 3, "at": "2026-11-20T12:00:00Z"}]});
        let mut odd = good.clone();
        (odd["name"], odd["health"], odd["ready"]) = ("us".into(), "Splendid".into(), json!({"a": 1}));
        let status = json!({"observedGeneration": 2, "summary": 7,
            "environments": {"dev": {"targets": [odd, good, "none"]}, "prod": "none"}});
        let read = read_tree(&pipeline(status)).unwrap();
        assert_eq!(read.left_out.len(), 5, "{:?}", read.left_out);
        let status = read.object.status.unwrap();
        assert_eq!((status.observed_generation, &status.summary), (2, &None));
        let targets = &status.environments["dev"].targets;
        assert_eq!((targets.len(), targets[0].health), (2, Health::Unknown));
        assert_eq!(targets[0].verified, targets[1].verified, "what was proven counts");
        assert_eq!(targets[1].verified[0].arrival, 3);
    }

    #[test]
    fn a_status_with_many_unreadable_parts_is_read_with_few_parses() {
        let targets: Vec<Value> = (0..500).map(|_| json!({"health": "Splendid"})).collect();
        let environments: serde_json::Map<String, Value> =
            (0..40).map(|n| (format!("e{n}"), json!({"targets": targets}))).collect();
        let read = read_tree(&pipeline(json!({"environments": environments}))).unwrap();
        assert!(read.left_out.len() <= 2 * MAX_PARTS + 1, "{}", read.left_out.len());
        let read = read_tree(&pipeline(json!("none"))).unwrap();
        assert_eq!((read.object.status, read.left_out.len()), (None, 1));
    }

    #[test]
    fn an_unreadable_spec_is_an_error() {
        let mut object = pipeline(json!({"summary": 7}));
        object["spec"]["environments"] = 7.into();
        let error = read_tree(&object).unwrap_err().to_string();
        assert!(error.contains("invalid type"), "{error}");
        assert!(from_value::<Pipeline>(object).is_err() && read::<Pipeline>("[").is_err());
    }

    #[test]
    fn an_unreadable_status_of_a_promotion_is_an_error() {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "a"}, "status": {"phase": "Splendid"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}}});
        assert!(from_value::<crate::Promotion>(object).is_err());
    }

    #[test]
    fn the_other_objects_of_a_list_are_read_beside_an_unreadable_one() {
        let promotion = |name: &str, phase: &str, sequence: Value| {
            json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
                "metadata": {"name": name, "labels": {"a": "b"}}, "status": {"phase": phase},
                "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {},
                    "sequence": sequence}})
        };
        let items = [
            promotion("newer-version", "Splendid", 7.into()),
            promotion("good", "Pending", 8.into()),
            promotion("no-spec", "Pending", "x".repeat(1000).into()),
        ];
        let list =
            read_list::<crate::Promotion>(&json!({"kind": "PromotionList", "items": items}).to_string());
        let List { items, unreadable } = list.unwrap();
        assert_eq!(items.iter().map(|p| p.spec.sequence).collect::<Vec<_>>(), [8]);
        let [newer, no_spec] = &unreadable[..] else { panic!("{unreadable:?}") };
        assert_eq!((newer.name(), newer.spec.as_ref().map(|s| s.sequence)), ("newer-version", Some(7)));
        assert!(newer.error.contains("unknown variant `Splendid`") && newer.metadata.labels.is_some());
        assert!(newer.may_be(|s| s.pipeline == "podinfo") && !newer.may_be(|s| s.pipeline == "other"));
        assert!(no_spec.spec.is_none() && no_spec.may_be(|s| s.pipeline == "other"));
        assert!(no_spec.error.chars().count() <= MAX_ERROR_CHARS);
        assert!(read_list::<crate::Promotion>("[]").is_err());
    }

    #[test]
    fn a_pipeline_with_an_unreadable_part_of_its_status_is_read_in_a_list() {
        let list = json!({"items": [pipeline(json!({"summary": 7, "observedGeneration": 2}))]});
        let List { items, unreadable } = read_list::<Pipeline>(&list.to_string()).unwrap();
        assert_eq!(items[0].status.as_ref().map(|status| status.observed_generation), Some(2));
        assert!(unreadable.is_empty());
    }
}
