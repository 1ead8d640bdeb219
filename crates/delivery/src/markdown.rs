//! Text as Markdown. Names, values and evidence come from elsewhere, so none of them can be markup, or mention a person.

use crate::foreign_text::{cut, one_line};

/// Text as Markdown code, between more backticks than it has in a row, so that nothing in it is markup.
pub(crate) fn code(text: &str) -> String {
    let text = cut(&one_line(text), 500);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.is_empty() || text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A sentence as Markdown, without markup and without a mention of people or issues.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in cut(&one_line(text), 500).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '~' | '|' => out.extend(['\\', c]),
            '@' | '#' => out.extend([c, '\u{200b}']),
            c => out.push(c),
        }
    }
    out
}
