//! The Kubernetes events of pipelines and their promotions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::GROUP;
use sluice_core::Time;

/// An event of a pipeline or promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    /// When it happened last; absent if the event does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// What happened, in one word.
    pub reason: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The object, as `pipeline/name` or `promotion/name`.
    pub object: String,
    /// What happened, as a sentence.
    pub message: String,
}

/// The events to show.
#[derive(Clone, Debug, Default)]
pub struct EventFilter<'a> {
    /// Only those of this pipeline and its promotions.
    pub pipeline: Option<&'a str>,
    /// The names of the promotions of the pipeline. Those that were deleted are in their events.
    pub promotions: &'a [String],
    /// Only these types; all if it is empty.
    pub types: &'a [String],
}

/// Returns the events of pipelines and promotions, the newest last.
pub fn events(listed: Vec<Event>, filter: &EventFilter<'_>) -> Vec<EventLine> {
    let wanted = listed.into_iter().filter(|event| filter.wants(event));
    let mut wanted: Vec<(EventLine, Option<String>)> =
        wanted.map(|event| (line(&event), event.metadata.name)).collect();
    wanted.sort_by(|(a, a_name), (b, b_name)| (a.last_seen, a_name).cmp(&(b.last_seen, b_name)));
    wanted.into_iter().map(|(line, _)| line).collect()
}

impl EventFilter<'_> {
    fn wants(&self, event: &Event) -> bool {
        let object = &event.involved_object;
        let is_ours = object.api_version.as_deref().is_some_and(|v| v.split('/').next() == Some(GROUP));
        let mut objects = [Some(object), event.related.as_ref()].into_iter().flatten();
        let is_of_pipeline =
            self.pipeline.is_none_or(|pipeline| objects.any(|object| self.is_of(pipeline, object)));
        let is_of_type =
            self.types.is_empty() || event.type_.as_ref().is_some_and(|t| self.types.contains(t));
        is_ours && is_of_pipeline && is_of_type
    }

    fn is_of(&self, pipeline: &str, object: &ObjectReference) -> bool {
        let name = object.name.as_deref().unwrap_or_default();
        match object.kind.as_deref() {
            Some("Pipeline") => name == pipeline,
            _ => self.promotions.iter().any(|promotion| promotion == name),
        }
    }
}

fn line(event: &Event) -> EventLine {
    let object = &event.involved_object;
    let kind = object.kind.as_deref().unwrap_or_default().to_lowercase();
    EventLine {
        last_seen: last_seen(event).map(Time::exact),
        type_: event.type_.clone().unwrap_or_else(|| "Normal".into()),
        reason: event.reason.clone().unwrap_or_default(),
        namespace: object.namespace.clone().unwrap_or_default(),
        object: format!("{kind}/{}", object.name.as_deref().unwrap_or_default()),
        message: event.message.clone().unwrap_or_default(),
    }
}

/// Returns the time of an event: that of its last repetition, if it has been repeated.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let repeated = event.series.as_ref().and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    repeated.or(last).or(first).or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}
