//! How pages write times, revisions and links.

use maud::{Markup, html};
use sluice_core::Time;

use super::links;

/// How many characters of a commit tell it from others.
const SHORT_COMMIT: usize = 8;

/// Returns a time. Without the script it is the absolute time; the script counts it up.
pub(crate) fn time(at: Time) -> Markup {
    let second = Time::to_second(*at);
    let text = at.strftime("%Y-%m-%d %H:%M").to_string();
    html! { time datetime=(second) title={ (at.strftime("%Y-%m-%d %H:%M:%S")) " UTC" } { (text) } }
}

/// Returns a revision: of a commit or digest its beginning, with all of it in the title.
pub(crate) fn revision(whole: &str) -> Markup {
    let short = short(whole);
    html! { span.mono title=[(short != whole).then_some(whole)] { (short) } }
}

/// Returns an image. A line breaks before its tag or digest rather than inside of it.
pub(crate) fn image(reference: &str) -> Markup {
    let name_at = reference.rfind('/').unwrap_or(0);
    let tag_at = reference[name_at..].find([':', '@']).map_or(reference.len(), |at| name_at + at);
    let (name, tag) = reference.split_at(tag_at);
    html! { (name) @if !tag.is_empty() { wbr; span.tag { (tag) } } }
}

/// Returns what tells a revision from others: `main@6a19e380` of `main@sha1:6a19e380…`.
pub(crate) fn short(whole: &str) -> String {
    let is_hash = |text: &str| text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (before, hash) = match whole.rsplit_once(':') {
        Some((before, hash)) if is_hash(hash) => {
            let tag = before.rsplit_once('@').map_or("", |(tag, _)| tag);
            (if tag.is_empty() { String::new() } else { format!("{tag}@") }, hash)
        }
        _ if is_hash(whole) => (String::new(), whole),
        _ => return whole.into(),
    };
    format!("{before}{}", &hash[..SHORT_COMMIT])
}

/// Returns the links above the title of a page about a pipeline, which lead to the pipeline.
pub(super) fn way_to_pipeline(namespace: &str, name: &str) -> Markup {
    html! {
        p.crumbs {
            a href="/" { "Pipelines" } " / " (namespace) " / " a href=(links::pipeline(namespace, name)) { (name) }
        }
    }
}

/// Whether an address of another program is one that a link may have.
pub(super) fn is_link(address: &str) -> bool {
    address.starts_with("https://") || address.starts_with("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_before_the_tag_of_an_image() {
        let broken = |reference: &str| {
            let text = image(reference).into_string();
            text.replace("<wbr><span class=\"tag\">", " ").replace("</span>", "")
        };
        for (reference, expected) in [
            ("ghcr.io/apps/web:1", "ghcr.io/apps/web :1"),
            ("localhost:5000/web", "localhost:5000/web"),
            ("localhost:5000/web:1@sha256:3b6c", "localhost:5000/web :1@sha256:3b6c"),
            ("web:1", "web :1"),
            ("web", "web"),
        ] {
            assert_eq!(broken(reference), expected);
        }
    }

    #[test]
    fn a_shortened_revision_stays_distinguishable() {
        let sha = "6a19e380336e08b2c9535434389af69359f9b1f0";
        assert_eq!(short("6.2.0"), "6.2.0");
        assert_eq!(short(&format!("main@sha1:{sha}")), "main@6a19e380");
        assert_eq!(short(&format!("sha1:{sha}")), "6a19e380");
        assert_eq!(short(sha), "6a19e380");
        assert_eq!(short(&format!("6.7.1@sha256:{sha}")), "6.7.1@6a19e380");
        assert_eq!(short("podinfo:6.1.8 redis:7"), "podinfo:6.1.8 redis:7");
    }
}
