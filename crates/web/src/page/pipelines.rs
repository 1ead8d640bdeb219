//! The list of pipelines.

use std::sync::Arc;

use maud::{Markup, html};
use sluice_core::access::Caller;
use sluice_core::observed::Health;

use super::frame::{Fold, Group, Page, Part, Section};
use super::links::escaped;
use super::list_query::ListQuery;
use super::pipeline_row::row_id;
use super::shape::{Shape, badge};
use crate::board::ShownPipeline;
use crate::find::visible_pipelines;
use crate::hub::Hub;
use crate::list_parameters::search_words;
use crate::pipeline_filter::PipelineFilter;
use crate::pipeline_groups::{GroupName, Grouping, by_health, groups};
use crate::pipeline_search::EXAMPLES;
use crate::problem::Problem;
use crate::rights::Namespaces;
use crate::state::Api;

/// The longest list whose groups are all open at first.
const MAX_OPEN_ROWS: usize = 50;

pub(super) async fn page<H: Hub>(api: &Api<H>, caller: &Caller, query: &ListQuery) -> Result<Page, Problem> {
    let wanted = search_words(&query.q)?;
    let board = api.boards.current(&api.hub).await;
    let visible = visible_pipelines(api, caller, &board).await?;
    let found: Vec<&Arc<ShownPipeline>> =
        visible.iter().copied().filter(|shown| shown.searched.have(&wanted)).collect();
    // An unknown filter or grouping in an old link shows all, without groups.
    let filter = PipelineFilter::parse(&query.of).unwrap_or_default();
    let grouping = Grouping::parse(&query.group);
    let rows: Vec<&Arc<ShownPipeline>> = found
        .iter()
        .copied()
        .filter(|shown| filter.is_none_or(|filter| filter.is_of(&shown.screen)))
        .collect();
    let namespaces = visible.iter().map(|shown| shown.screen.namespace.clone()).collect();
    let may_create = !Namespaces::to_create_in(&api.hub, caller, namespaces).await?.is_empty();
    let head = html! {
        div.title {
            h1 { "Pipelines" }
            // Somebody without any pipeline may be allowed to create the first one of a namespace.
            @if may_create || visible.is_empty() { a.button href="/pipelines/new" { "New pipeline" } }
        }
        @if !visible.is_empty() { (filters(query, &found, filter, grouping)) }
        @if !board.is_complete { p.note { "Sluice is still reading: some pipelines may be missing." } }
    };
    let mut lists = list(&rows, grouping);
    let foot = match (visible.is_empty(), rows.is_empty()) {
        (true, _) => none(),
        (false, true) => {
            html! {
                div.empty {
                    p { "No pipeline matches. " a href=(address("", "", &query.group)) { "Show all" } }
                    p.quiet {
                        "A search finds names, namespaces, applications, clusters and revisions. With a kind it looks only there: "
                        @for (word, _) in EXAMPLES { code { (word) } " " }
                    }
                }
            }
        }
        _ => html! {
            p.small.quieter {
                (rows.len()) " of " (visible.len()) " pipelines"
                @if grouping.is_some() { " in " (lists.len()) (if lists.len() == 1 { " group" } else { " groups" }) }
            }
        },
    };
    let mut groups = vec![Group::new("", vec![Part::new("head", &head)])];
    groups.append(&mut lists);
    groups.push(Group::new("", vec![Part::new("foot", &foot)]));
    Ok(Page { title: "Pipelines".into(), section: Section::Pipelines, groups })
}

/// Returns the rows, in one list or in groups. In a long list, groups in which everything is fine are folded at first. Among
/// groups by health, that is the group Ready, whose heading says how many need a person.
fn list(rows: &[&Arc<ShownPipeline>], grouping: Option<Grouping>) -> Vec<Group> {
    let parts = |rows: &[&Arc<ShownPipeline>]| -> Vec<Part> {
        rows.iter().map(|shown| Part { id: row_id(&shown.screen), html: shown.row.clone() }).collect()
    };
    let Some(grouping) = grouping else {
        return if rows.is_empty() { Vec::new() } else { vec![Group::new("rows", parts(rows))] };
    };
    let stands_out =
        |shown: &&Arc<ShownPipeline>| PipelineFilter::ALL.iter().any(|filter| filter.is_of(&shown.screen));
    let group = |(name, members): (GroupName, Vec<&Arc<ShownPipeline>>)| {
        let is_fine = match grouping {
            Grouping::Health => members.iter().all(|shown| shown.screen.health() == Health::Ready),
            Grouping::Namespace | Grouping::Application => !members.iter().any(stands_out),
        };
        let is_open = rows.len() <= MAX_OPEN_ROWS || !is_fine;
        let fold = Fold { heading: heading(grouping, &name, &members), is_open };
        Group { class: "rows", fold: Some(fold), parts: parts(&members) }
    };
    groups(rows, grouping).into_iter().map(group).collect()
}

/// Returns the heading of a group: its name, how many pipelines it has, their health, and how many need a person.
fn heading(grouping: Grouping, name: &GroupName, members: &[&Arc<ShownPipeline>]) -> Part {
    let id = format!("group:{}:{}:{}", grouping.word(), name.detail, name.title.replace(' ', "-"));
    let health = by_health(members);
    let is_mixed = health.len() > 1;
    // What is fine is said only if everything is. The name of a group by health says it.
    let is_said = |(health, _): &&(Health, usize)| {
        grouping != Grouping::Health && (!is_mixed || *health != Health::Ready)
    };
    let person = members.iter().filter(|shown| PipelineFilter::Person.is_of(&shown.screen)).count();
    let html = html! {
        summary id=(id) {
            h2 {
                @match (grouping, health.first()) {
                    (Grouping::Health, Some((health, _))) => (badge(Shape::of_health(*health), &name.title)),
                    _ => (name.title),
                }
                @if !name.detail.is_empty() { span.quieter { " · " (name.detail) } }
            }
            span.quieter { (members.len()) (if members.len() == 1 { " pipeline" } else { " pipelines" }) }
            @for (health, count) in health.iter().filter(is_said) {
                @let shape = Shape::of_health(*health);
                @if is_mixed { (badge(shape, &format!("{count} {health}"))) } @else { (badge(shape, &health.to_string())) }
            }
            @if person > 0 { span { (person) (if person == 1 { " needs a person" } else { " need a person" }) } }
        }
    };
    Part { id, html: html.into_string().into() }
}

/// Returns the address of the list.
fn address(q: &str, of: &str, group: &str) -> String {
    let pairs = [("q", q), ("of", of), ("group", group)];
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if query.is_empty() { "/".into() } else { format!("/?{}", query.join("&")) }
}

fn filters(
    query: &ListQuery,
    found: &[&Arc<ShownPipeline>],
    current: Option<PipelineFilter>,
    grouping: Option<Grouping>,
) -> Markup {
    let count = |filter: PipelineFilter| found.iter().filter(|shown| filter.is_of(&shown.screen)).count();
    let of = current.map_or("", PipelineFilter::word);
    let group = grouping.map_or("", Grouping::word);
    html! {
        form.filters method="get" action="/" role="search" {
            input type="search" name="q" value=(query.q) placeholder="Name, revision, or cluster:eu" aria-label="Filter";
            @if !of.is_empty() { input type="hidden" name="of" value=(of); }
            @if !group.is_empty() { input type="hidden" name="group" value=(group); }
            a.chip href=(address(&query.q, "", group)) aria-current=[current.is_none().then_some("true")] { "All " (found.len()) }
            @for filter in PipelineFilter::ALL {
                a.chip.none[count(filter) == 0] href=(address(&query.q, filter.word(), group))
                    aria-current=[(current == Some(filter)).then_some("true")] {
                    (filter.title()) " " (count(filter))
                }
            }
            span.group-by role="group" aria-label="Group by" {
                span aria-hidden="true" { "Group by" }
                @for choice in Grouping::ALL {
                    a href=(address(&query.q, of, choice.word())) aria-current=[(grouping == Some(choice)).then_some("true")] {
                        (choice.word())
                    }
                }
                a href=(address(&query.q, of, "")) aria-current=[grouping.is_none().then_some("true")] { "none" }
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
