//! The promotions into one environment of a pipeline, as the API server lists them for a call. They are read one by one,
//! without the metadata that is not read: users may fill the labels of each with 1.5 MB.

use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::Error;
use sluice_api::lenient::{self, List};
use sluice_api::{Promotion, PromotionSpec};

use crate::pipeline_key::PipelineKey;
use crate::record::promotion::{self, PIPELINE_LABEL};
use crate::state::unread_metadata::{remove_unread, without_unread};
use crate::watch::limit::WatchLimits;
use crate::watch::list;
use crate::watch::object_text::ObjectText;

/// The promotions into one environment of a pipeline.
pub(super) struct PromotionsInto {
    pub list: List<Promotion>,
    /// The bytes of the revisions of all promotions of the pipeline.
    pub bytes: usize,
}

/// Lists the promotions into an environment of a pipeline. The list may also contain promotions of another pipeline, if the
/// names of both are shortened to the same label, and unreadable ones that may be for the environment.
///
/// # Errors
/// When the API server does not answer with a list.
pub(super) async fn read(
    client: &Client,
    pipeline: &PipelineKey,
    environment: &str,
) -> kube::Result<PromotionsInto> {
    let of_pipeline = format!("{PIPELINE_LABEL}={}", promotion::label(&pipeline.name));
    let request = Request::new(Promotion::url_path(&(), Some(&pipeline.namespace)))
        .list(&ListParams::default().labels(&of_pipeline))
        .map_err(kube::Error::BuildRequest)?;
    let mut into = PromotionsInto { list: List { items: Vec::new(), unreadable: Vec::new() }, bytes: 0 };
    let each = |text: ObjectText<'_>| {
        let text = std::str::from_utf8(text.whole()?).map_err(serde_json::Error::custom);
        let read = text.and_then(lenient::read_item::<Promotion>).map_err(kube::Error::SerdeError)?;
        let is_into = |spec: &PromotionSpec| spec.environment == environment;
        match read {
            Ok(object) => {
                into.bytes += bytes(&object.spec);
                into.list.items.extend(is_into(&object.spec).then(|| without_unread(object)));
            }
            Err(mut object) => {
                into.bytes += object.spec.as_ref().map_or(0, bytes);
                remove_unread(&mut object.metadata);
                into.list.unreadable.extend(object.may_be(is_into).then_some(object));
            }
        }
        Ok(())
    };
    list::read(client, request, &WatchLimits::hub("Promotions"), each).await?;
    Ok(into)
}

/// The bytes of a revision.
fn bytes(spec: &PromotionSpec) -> usize {
    spec.facets.iter().map(|(key, value)| key.len() + value.len()).sum()
}
