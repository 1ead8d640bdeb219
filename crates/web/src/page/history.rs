//! What was promoted into the environments of one pipeline, the newest first: all that Sluice still has a record of.

use maud::{Markup, html};
use serde::Deserialize;
use sluice_core::access::Caller;
use sluice_view::history::{Entry, history};
use sluice_view::object_name::ObjectName;

use super::frame::{Group, Page, Part, Section};
use super::links::escaped;
use super::pipeline::past_entry;
use super::{links, words};
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;

/// Which promotions the page shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HistoryPageQuery {
    /// Only those into this environment, or `environment/target`.
    environment: String,
}

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
    query: &HistoryPageQuery,
) -> Result<Page, Problem> {
    let shown = find_pipeline(api, caller, object).await?;
    let chosen = Some(query.environment.as_str()).filter(|name| !name.is_empty());
    let entries = history(&object.name, chosen, &shown.promotions);
    let pipeline = shown.stored.whole();
    let environments: Vec<&str> =
        pipeline.spec.environments.iter().map(|environment| environment.name.as_str()).collect();
    let head = head(object, &environments, chosen);
    let parts = vec![Part::new("head", &head), Part::new("list", &list(object, &entries))];
    let groups = vec![Group::new("", parts)];
    Ok(Page { title: format!("History of {}", object.name), section: Section::Pipelines, groups })
}

fn head(object: &ObjectName, environments: &[&str], chosen: Option<&str>) -> Markup {
    let at = links::history(&object.namespace, &object.name);
    html! {
        (words::way_to_pipeline(&object.namespace, &object.name))
        h1 { "History" }
        nav.filters aria-label="Environments" {
            a.chip href=(at) aria-current=[chosen.is_none().then_some("true")] { "All environments" }
            @for environment in environments {
                @let address = format!("{at}?environment={}", escaped(environment));
                a.chip href=(address) aria-current=[(chosen == Some(*environment)).then_some("true")] { (environment) }
            }
        }
    }
}

fn list(object: &ObjectName, entries: &[Entry]) -> Markup {
    html! {
        @if entries.is_empty() { p.empty { "Nothing was promoted here, as far as Sluice has records." } }
        ol.timeline.wide { @for entry in entries { (past_entry(&object.namespace, entry)) } }
        p.small.quieter {
            "Sluice keeps a number of records of ended promotions. Git has all of them: "
            code { "git log --grep \"Sluice-Pipeline: " (object) "\"" }
        }
    }
}
