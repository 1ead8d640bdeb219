//! The promotions of all pipelines, the newest first.

use maud::{Markup, html};
use sluice_api::promotion::Phase;
use sluice_core::access::Caller;
use sluice_view::history::{Entry, history};

use super::frame::{Group, Page, Part, Section};
use super::links;
use super::links::escaped;
use super::pipeline::past_entry;

use super::list_query::ListQuery;
use crate::find::visible_pipelines;
use crate::hub::Hub;
use crate::list_parameters::search_words;
use crate::problem::Problem;
use crate::state::Api;

/// How many promotions the page shows.
const SHOWN: usize = 200;

/// The phases that people choose among, by what they are about.
const CHOICES: [(&str, &str, &[Phase]); 4] = [
    ("open", "Open", &[Phase::Pending, Phase::Promoting, Phase::Proposed, Phase::Delivered]),
    ("waiting", "Waiting", &[Phase::Pending, Phase::Proposed]),
    ("failed", "Failed", &[Phase::Failed, Phase::Rejected]),
    ("done", "Succeeded", &[Phase::Succeeded]),
];

/// A promotion with the namespace and name of its pipeline.
type Found<'a> = (&'a str, &'a str, Entry);

pub(super) async fn page<H: Hub>(api: &Api<H>, caller: &Caller, query: &ListQuery) -> Result<Page, Problem> {
    let words = search_words(&query.q)?;
    let board = api.boards.current(&api.hub).await;
    let mut found: Vec<Found<'_>> = Vec::new();
    for shown in visible_pipelines(api, caller, &board).await? {
        let (namespace, name) = (shown.screen.namespace.as_str(), shown.screen.name.as_str());
        found
            .extend(history(name, None, &shown.promotions).into_iter().map(|entry| (namespace, name, entry)));
    }
    found.retain(|(namespace, name, entry)| {
        let text = format!("{namespace} {name} {} {} {}", entry.environment, entry.revision, entry.by)
            .to_lowercase();
        words.iter().all(|word| text.contains(word))
    });
    found.sort_by_key(|(_, _, entry)| std::cmp::Reverse(entry.since.or(entry.started)));
    let count = |phases: &[Phase]| found.iter().filter(|(_, _, entry)| phases.contains(&entry.phase)).count();
    let address = |of: &str| format!("/promotions?q={}&of={of}", escaped(&query.q));
    let chosen = CHOICES.iter().find(|(word, _, _)| *word == query.of);
    let head = html! {
        h1 { "Promotions" }
        form.filters method="get" action="/promotions" role="search" {
            input type="search" name="q" value=(query.q) placeholder="Pipeline, environment, revision, person" aria-label="Filter";
            @if let Some((word, _, _)) = chosen { input type="hidden" name="of" value=(word); }
            a.chip href=(address("")) aria-current=[chosen.is_none().then_some("true")] { "All " (found.len()) }
            @for (word, title, phases) in &CHOICES {
                a.chip.none[count(phases) == 0] href=(address(word)) aria-current=[(query.of == *word).then_some("true")] {
                    (title) " " (count(phases))
                }
            }
        }
    };
    let is_chosen =
        |(_, _, entry): &&Found<'_>| chosen.is_none_or(|(_, _, phases)| phases.contains(&entry.phase));
    let rows: Vec<&Found<'_>> = found.iter().filter(is_chosen).collect();
    let list = html! {
        @if rows.is_empty() && words.is_empty() && chosen.is_none() { (none()) }
        @else if rows.is_empty() { p.empty { "No promotion matches. " a href="/promotions" { "Show all" } } }
        ol.timeline.wide {
            @for (namespace, name, entry) in rows.iter().take(SHOWN) {
                li.of { a.small.quiet href=(links::pipeline(namespace, name)) { (namespace) "/" (name) } }
                (past_entry(namespace, entry))
            }
        }
        @if rows.len() > SHOWN { p.small.quieter { (rows.len() - SHOWN) " older ones are not shown: filter to find them" } }
    };
    let parts = vec![Part::new("head", &head), Part::new("list", &list)];
    Ok(Page { title: "Promotions".into(), section: Section::Promotions, groups: vec![Group::new("", parts)] })
}

fn none() -> Markup {
    html! {
        div.empty {
            p { "Nothing was promoted yet." }
            p.quiet {
                "This page will show each revision that Sluice promotes into an environment: who approved it, how it was delivered, and \
                 how it ended. A promotion starts when an environment runs a new revision healthily, and the next one has a strategy. "
                a href="/" { "See the pipelines" } "."
            }
        }
    }
}
