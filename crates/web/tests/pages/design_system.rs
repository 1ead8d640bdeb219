//! The page of the documentation about the design system says what the style sheet has, and the colours have enough
//! contrast.

use std::collections::BTreeMap;
use std::path::Path;

const CSS: &str = include_str!("../../assets/page.css");
const PAGE: &str = include_str!("../../../../docs/design-system.md");

/// Returns the tokens of a block of the style sheet with their values.
fn tokens(block: &str) -> BTreeMap<&str, &str> {
    let declarations = block.split(['{', ';', '}']).filter_map(|text| text.trim().split_once(": "));
    declarations.filter(|(name, _)| name.starts_with("--")).collect()
}

/// Returns the tokens of light pages, and those that dark pages change.
fn themes() -> [BTreeMap<&'static str, &'static str>; 2] {
    let (light, rest) = CSS.split_once("@media (prefers-color-scheme: dark)").unwrap();
    [tokens(light), tokens(rest.split("\n}\n").next().unwrap())]
}

/// Returns the rows of all tables of the page, each cell without its quotes.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
}

#[test]
fn the_page_has_every_token_with_its_values() {
    let [light, dark] = themes();
    let described: BTreeMap<&str, Vec<&str>> =
        rows().filter(|row| row[0].starts_with("--")).map(|row| (row[0], row)).collect();
    for (token, value) in &light {
        if ["--sans", "--mono"].contains(token) {
            assert!(PAGE.contains(&format!("`{token}`")), "{token}");
            continue;
        }
        let row = described.get(token).unwrap_or_else(|| panic!("docs/design-system.md has no {token}"));
        assert_eq!(row[1], *value, "{token}");
        if let Some(dark) = dark.get(token) {
            assert_eq!(row[2], *dark, "{token} of dark pages");
        }
    }
    for token in described.keys().chain(dark.keys()) {
        assert!(light.contains_key(token), "the style sheet has no {token}");
    }
}

#[test]
fn every_component_of_the_page_is_in_the_style_sheet_and_in_the_code() {
    let components = PAGE.split("## Components").nth(1).unwrap();
    let mut names = components.split('`').skip(1).step_by(2);
    let (mut classes, mut files) = (0, 0);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    names.by_ref().for_each(|name| match name.strip_prefix('.') {
        Some(class) => {
            let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
            let selector = format!(".{class}");
            let mut uses = CSS.split(&selector).skip(1);
            assert!(uses.any(|after| after.starts_with(is_end)), "the style sheet has no {name}");
            classes += 1;
        }
        None => {
            assert!(root.join(name).exists(), "there is no {name}");
            files += 1;
        }
    });
    assert!(classes > 30 && files > 10, "{classes} classes and {files} files were found");
}

#[test]
fn every_size_of_text_is_one_of_the_scale() {
    let rules = CSS.split_once("\n}\n").unwrap().1;
    for declaration in rules.split([';', '{']).map(str::trim).filter(|text| text.starts_with("font")) {
        assert!(!declaration.contains("px"), "use a token of the type scale: {declaration}");
    }
}

/// Returns the relative luminance of a colour (<https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>).
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_and_shapes_have_enough_contrast_in_both_themes() {
    let [light, dark] = themes();
    let text = [
        "--ink",
        "--ink-2",
        "--ink-3",
        "--accent",
        "--ready",
        "--progress",
        "--pending",
        "--failed",
        "--unknown",
        "--suspended",
    ];
    for theme in [&light, &dark] {
        for of in text {
            for on in ["--bg", "--surface"] {
                let found = contrast(theme[of], theme[on]);
                assert!(found >= 4.5, "{of} {} on {on} {}: {found:.2}", theme[of], theme[on]);
            }
        }
        for (of, on) in [("--ink", "--failed-bg"), ("--pending", "--note-bg"), ("--ink", "--accent-bg")] {
            assert!(contrast(theme[of], theme[on]) >= 4.5, "{of} on {on}");
        }
        for (of, on) in
            [("--focus", "--surface"), ("--line-control", "--bg"), ("--line-control", "--surface")]
        {
            let found = contrast(theme[of], theme[on]);
            assert!(found >= 3.0, "{of} {} on {on} {}: {found:.2}", theme[of], theme[on]);
        }
    }
}
