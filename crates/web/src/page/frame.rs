//! What all pages have in common: the document, the bar, and the parts that live updates replace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use maud::{DOCTYPE, Markup, Render, html};
use sha2::{Digest, Sha256};

use super::assets::{CSS, SCRIPT};
use super::shape::symbols;
use crate::pipeline_search::EXAMPLES;

/// The sections of the bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Pipelines,
    Promotions,
    Clusters,
    Charts,
    Images,
    /// None of them.
    Other,
}

impl Section {
    const BAR: [(Section, &str, &str); 5] = [
        (Section::Pipelines, "/", "Pipelines"),
        (Section::Promotions, "/promotions", "Promotions"),
        (Section::Clusters, "/clusters", "Clusters"),
        (Section::Charts, "/charts", "Charts"),
        (Section::Images, "/images", "Images"),
    ];
}

/// A part of a page that is replaced on its own when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The id of its outermost element.
    pub id: String,
    /// The element.
    pub html: Arc<str>,
}

impl Part {
    /// Returns a part with content, in a `div` with this id.
    pub(crate) fn new(id: &str, content: &Markup) -> Part {
        Part { id: id.into(), html: html! { div id=(id) { (content) } }.into_string().into() }
    }

    /// Returns an empty element in place of a part that the browser shows already. It is of the same kind, so that the script
    /// moves the shown one to its place.
    fn kept(&self) -> String {
        let kind: String = self.html.chars().skip(1).take_while(char::is_ascii_alphanumeric).collect();
        let id = html! { (self.id) }.into_string();
        format!("<{kind} id=\"{id}\" data-kept></{kind}>")
    }
}

/// The ids of the parts that are not sent again.
type KeptParts<'a> = HashSet<&'a str>;

/// Some parts after each other, in an element of a class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The class; empty for none.
    pub class: &'static str,
    /// The heading that folds the parts, if they have one.
    pub fold: Option<Fold>,
    /// The parts.
    pub parts: Vec<Part>,
}

impl Group {
    /// Returns a group without a heading.
    pub(crate) fn new(class: &'static str, parts: Vec<Part>) -> Group {
        Group { class, fold: None, parts }
    }

    /// Returns the heading and the parts, in order.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.fold.iter().map(|fold| &fold.heading).chain(&self.parts)
    }

    fn html(&self, kept: &KeptParts<'_>) -> Markup {
        let parts = ShownParts { parts: &self.parts, kept };
        html! {
            @if self.class.is_empty() { (parts) } @else { div.(self.class) { (parts) } }
        }
    }
}

/// A heading that folds the parts below it.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    /// The heading: a `summary`.
    pub heading: Part,
    /// Whether the parts are shown at first. What the person opens or closes later counts.
    pub is_open: bool,
}

/// The content of a page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// The title, without the product's name.
    pub title: String,
    /// The section that it belongs to.
    pub section: Section,
    /// The content.
    pub groups: Vec<Group>,
}

impl Page {
    /// Returns a page with one part.
    pub(crate) fn one(title: &str, section: Section, content: &Markup) -> Page {
        let groups = vec![Group::new("", vec![Part::new("page", content)])];
        Page { title: title.into(), section, groups }
    }

    /// Returns all parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().flat_map(Group::parts)
    }

    /// Returns a text that is the same for the same content.
    pub(crate) fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for group in &self.groups {
            digest.update(group.class);
            for part in group.parts() {
                // Between two parts is a byte that no text has.
                digest.update([0xff]);
                digest.update(&*part.html);
            }
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns what is inside of `main`.
    pub(crate) fn main(&self) -> Markup {
        self.main_without(&KeptParts::new())
    }

    /// Returns what is inside of `main`, for a browser that shows an earlier content: each part that has not changed is an empty
    /// element.
    pub(crate) fn main_after(&self, shown: &Page) -> Markup {
        let before: HashMap<&str, &Arc<str>> =
            shown.parts().map(|part| (part.id.as_str(), &part.html)).collect();
        let is_shown = |part: &&Part| before.get(part.id.as_str()) == Some(&&part.html);
        self.main_without(&self.parts().filter(is_shown).map(|part| part.id.as_str()).collect())
    }

    fn main_without(&self, kept: &KeptParts<'_>) -> Markup {
        html! {
            @for group in &self.groups {
                @if let Some(Fold { heading, is_open }) = &group.fold {
                    details.fold open[*is_open] { (ShownParts { parts: std::slice::from_ref(heading), kept }) (group.html(kept)) }
                } @else { (group.html(kept)) }
            }
        }
    }
}

/// Parts as they are sent. They are written into the page without a copy: a list has thousands.
struct ShownParts<'a> {
    parts: &'a [Part],
    kept: &'a KeptParts<'a>,
}

impl Render for ShownParts<'_> {
    fn render_to(&self, page: &mut String) {
        for part in self.parts {
            if self.kept.contains(part.id.as_str()) {
                page.push_str(&part.kept());
            } else {
                page.push_str(&part.html);
            }
        }
    }
}

/// What the frame says about who looks at the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Viewer {
    /// The name of the user; empty before sign-in.
    pub name: String,
    /// The token that forms send back.
    pub form_token: String,
    /// Whether people can change something here.
    pub may_change: bool,
    /// Whether the person can sign out here.
    pub may_sign_out: bool,
}

/// Returns the whole document. `live` is the address whose changes it follows; empty for none.
pub(crate) fn document(page: &Page, viewer: &Viewer, live: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " · Sluice" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href={ "/assets/" (CSS.name()) };
                script src={ "/assets/" (SCRIPT.name()) } defer {}
            }
            body data-live=[(!live.is_empty()).then_some(live)] data-have=[(!live.is_empty()).then(|| page.fingerprint())] {
                (symbols())
                a.skip href="#main" { "Skip to the content" }
                header.bar {
                    a.brand href="/" { "Sluice" }
                    @if !viewer.name.is_empty() { (bar(page.section, viewer)) }
                }
                p #lost role="status" hidden {
                    "The connection is lost. This page may be outdated. The browser reconnects automatically."
                }
                main #main { (page.main()) }
                (help())
            }
        }
    }
}

fn bar(section: Section, viewer: &Viewer) -> Markup {
    html! {
        nav aria-label="Main" {
            @for (of, address, title) in Section::BAR {
                a href=(address) aria-current=[(of == section).then_some("page")] { (title) }
            }
        }
        div.end {
            @if !viewer.may_change { span.readonly title="Start the controller with --api-actions to act from here" { "read-only" } }
            span.keys { kbd { "/" } " search" }
            span.keys { kbd { "?" } " keys" }
            span.user title=(viewer.name) { (short_name(&viewer.name)) }
            @if viewer.may_sign_out {
                form method="post" action="/sign-out" {
                    input type="hidden" name="token" value=(viewer.form_token);
                    button.plain { "Sign out" }
                }
            }
        }
    }
}

/// Returns the name of a user; of a service account its namespace and name.
fn short_name(name: &str) -> String {
    name.strip_prefix("system:serviceaccount:")
        .map_or_else(|| name.into(), |account| account.replace(':', "/"))
}

fn help() -> Markup {
    let keys = [
        ("/", "Search"),
        ("j k", "Next and previous row"),
        ("Enter", "Open the row"),
        ("g p", "Pipelines"),
        ("g r", "Promotions"),
        ("g c", "Clusters"),
        ("g h", "Charts"),
        ("g i", "Images"),
        ("a", "Approve, on the page of a pipeline or promotion"),
        ("?", "This list"),
        ("Esc", "Close it"),
    ];
    html! {
        dialog #keys aria-label="Keys and search" {
            h2 { "Keys" }
            dl { @for (key, what) in keys { div { dt { @for key in key.split(' ') { kbd { (key) } " " } } dd { (what) } } } }
            h2 { "Words of a search" }
            dl.words { @for (word, what) in EXAMPLES { div { dt { code { (word) } } dd { (what) } } } }
            form method="dialog" { button { "Close" } }
        }
    }
}
