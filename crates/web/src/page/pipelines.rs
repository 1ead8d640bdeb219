//! The list of pipelines.

use std::sync::Arc;

use maud::{Markup, html};
use sluice_core::access::Caller;

use super::frame::{Group, Page, Part, Section};
use super::links::escaped;
use super::list_query::ListQuery;
use super::pipeline_row::row_id;
use crate::board::ShownPipeline;
use crate::find::visible_pipelines;
use crate::hub::Hub;
use crate::list_parameters::search_words;
use crate::pipeline_filter::PipelineFilter;
use crate::problem::Problem;
use crate::rights::Namespaces;
use crate::state::Api;

pub(super) async fn page<H: Hub>(api: &Api<H>, caller: &Caller, query: &ListQuery) -> Result<Page, Problem> {
    let wanted = search_words(&query.q)?;
    let board = api.boards.current(&api.hub).await;
    let visible = visible_pipelines(api, caller, &board).await?;
    let found: Vec<&Arc<ShownPipeline>> = visible
        .iter()
        .copied()
        .filter(|shown| wanted.iter().all(|word| shown.words.contains(word)))
        .collect();
    // An unknown filter in an old link shows all.
    let filter = PipelineFilter::parse(&query.of).unwrap_or_default();
    let rows: Vec<Part> = found
        .iter()
        .filter(|shown| filter.is_none_or(|filter| filter.is_of(&shown.screen)))
        .map(|shown| Part { id: row_id(&shown.screen), html: shown.row.clone() })
        .collect();
    let namespaces = visible.iter().map(|shown| shown.screen.namespace.clone()).collect();
    let may_create = !Namespaces::to_create_in(&api.hub, caller, namespaces).await?.is_empty();
    let head = html! {
        div.title {
            h1 { "Pipelines" }
            // Somebody without any pipeline may be allowed to create the first one of a namespace.
            @if may_create || visible.is_empty() { a.button href="/pipelines/new" { "New pipeline" } }
        }
        @if !visible.is_empty() { (filters(query, &found, filter)) }
        @if !board.is_complete { p.note { "Sluice is still reading: some pipelines may be missing." } }
    };
    let foot = match (visible.is_empty(), rows.is_empty()) {
        (true, _) => none(),
        (false, true) => html! { p.empty { "No pipeline matches. " a href="/" { "Show all" } } },
        _ => html! { p.small.quieter { (rows.len()) " of " (visible.len()) " pipelines" } },
    };
    let groups = vec![
        Group { class: "", parts: vec![Part::new("head", &head)] },
        Group { class: if rows.is_empty() { "" } else { "rows" }, parts: rows },
        Group { class: "", parts: vec![Part::new("foot", &foot)] },
    ];
    Ok(Page { title: "Pipelines".into(), section: Section::Pipelines, groups })
}

fn filters(query: &ListQuery, found: &[&Arc<ShownPipeline>], current: Option<PipelineFilter>) -> Markup {
    let count = |filter: PipelineFilter| found.iter().filter(|shown| filter.is_of(&shown.screen)).count();
    let address = |of: &str| match (of, query.q.as_str()) {
        ("", "") => "/".to_string(),
        ("", q) => format!("/?q={}", escaped(q)),
        (of, "") => format!("/?of={of}"),
        (of, q) => format!("/?q={}&of={of}", escaped(q)),
    };
    html! {
        form.filters method="get" action="/" role="search" {
            input type="search" name="q" value=(query.q) placeholder="Name, namespace, cluster, revision" aria-label="Filter";
            @if let Some(current) = current { input type="hidden" name="of" value=(current.word()); }
            a.chip href=(address("")) aria-current=[current.is_none().then_some("true")] { "All " (found.len()) }
            @for filter in PipelineFilter::ALL {
                a.chip.none[count(filter) == 0] href=(address(filter.word()))
                    aria-current=[(current == Some(filter)).then_some("true")] {
                    (filter.title()) " " (count(filter))
                }
            }
        }
    }
}

fn none() -> Markup {
    html! {
        div.empty {
            p { "There is no pipeline that you may see." }
            p.quiet {
                "A Pipeline names the environments of an application, in order. "
                a href="/pipelines/new" { "Write the first one" }
                ". To see those of others, you need the right to get pipelines and promotions in their namespace: the ClusterRole "
                code { "sluice-viewer" } " has it."
            }
        }
    }
}
