//! Readers of conditions, messages, pages, the log and the output of commands are not authors of the code: no text for
//! them has Rust's `Debug` output.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{code, fail_if_any};

/// The values that product code writes with `Debug`, by file. Most are quoted strings, in which `Debug` escapes control
/// characters.
const ALLOWED: [(&str, &[&str]); 18] = [
    ("controller/src/hook/approval_rules.rs", &["approved", "sent_to"]),
    ("controller/src/hook/proxies.rs", &["0"]),
    ("controller/src/secret.rs", &["used_by"]),
    ("controller/src/watch/read_error.rs", &["group"]),
    ("core/src/pipeline.rs", &["name"]),
    ("core/src/revision.rs", &["0"]),
    ("core/src/setters/set_error.rs", &["key", "value"]),
    ("core/src/setters/field.rs", &["key", "rest"]),
    ("core/src/setters/marker.rs", &["", "MARKER_KEY", "found", "key"]),
    ("core/src/setters/update_error.rs", &[""]),
    ("delivery/src/address.rs", &["0", "text"]),
    ("view/src/pipeline_validation/metadata.rs", &["key", "name", "namespace", "prefix", "text"]),
    ("web/src/pipeline_filter.rs", &["of"]),
    ("web/src/trace_query.rs", &["", "text"]),
    ("delivery/src/git/error.rs", &["branch"]),
    // Input of a hash, which nobody reads.
    ("controller/src/access.rs", &["caller"]),
    ("delivery/src/order.rs", &[""]),
    ("web/src/requested_action.rs", &[""]),
];

/// The crates whose texts only developers read.
const FOR_DEVELOPERS: [&str; 3] = ["bench", "demo", "testkit"];

/// Returns the code before the tests of a file, which are its last module.
pub fn without_tests(text: &str) -> &str {
    text.split("mod tests {\n").next().unwrap_or(text)
}

/// Returns the paths of the files that `#[cfg(test)]` includes: a file, or all files of a folder.
pub fn test_modules(code: &[(String, String)]) -> BTreeSet<String> {
    let modules = code.iter().flat_map(|(path, text)| {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let after_mark = text.split("#[cfg(test)]\nmod ").skip(1);
        let names = after_mark.filter_map(|rest| rest.lines().next()?.strip_suffix(';'));
        names.map(move |name| format!("{folder}/{name}"))
    });
    let modules: Vec<String> = modules.collect();
    let is_in = |path: &str, module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let paths = code.iter().map(|(path, _)| path);
    paths.filter(|path| modules.iter().any(|module| is_in(path, module))).cloned().collect()
}

/// Returns the values that a text writes with `Debug`, each with its line: `{value:?}` and `{value:#?}`.
fn debug_values(text: &str) -> Vec<(usize, &str)> {
    let ends = [":?}", ":#?}"].into_iter().flat_map(|end| text.match_indices(end));
    let mut found: Vec<(usize, &str)> = ends
        .map(|(at, _)| {
            let name = text[..at].rsplit('{').next().unwrap_or_default();
            (text[..at].matches('\n').count() + 1, name)
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn no_text_has_debug_output() -> Result<()> {
    let code = code()?;
    let test_modules = test_modules(&code);
    let (mut broken, mut used) = (Vec::new(), BTreeSet::new());
    for (path, text) in &code {
        let Some((name, _)) = path.trim_start_matches("crates/").split_once("/src/") else { continue };
        if FOR_DEVELOPERS.contains(&name) || test_modules.contains(path) {
            continue;
        }
        for (line, value) in debug_values(without_tests(text)) {
            let allowed = ALLOWED
                .iter()
                .find(|(file, values)| path.strip_prefix("crates/") == Some(file) && values.contains(&value));
            match allowed {
                Some((file, _)) => drop(used.insert((*file, value.to_owned()))),
                None => broken.push(format!(
                    "{path}:{line}: {{{value}:?}}: write {{{value}}}, and give its type a Display in plain words; if it \
                     quotes a string, add it to ALLOWED in this test"
                )),
            }
        }
    }
    for (file, values) in ALLOWED {
        let unused = values.iter().filter(|value| !used.contains(&(file, (**value).to_owned())));
        broken.extend(unused.map(|value| {
            format!("crates/{file}: {{{value}:?}} is not there any more: remove it from ALLOWED in this test")
        }));
    }
    fail_if_any(&broken)
}

/// Fields of log lines are not written with `Debug` either.
#[test]
fn no_log_line_has_debug_output() -> Result<()> {
    let mut broken = Vec::new();
    for (path, text) in code()?.iter().filter(|(path, _)| path.contains("/src/") && !path.contains("testkit"))
    {
        for (n, line) in (1..).zip(text.lines()) {
            let words = line.split(['(', ',', ' ', '=']);
            if words
                .clone()
                .any(|word| word.strip_prefix('?').is_some_and(|rest| rest.starts_with(char::is_alphabetic)))
            {
                broken.push(format!("{path}:{n}: write %field, and give its type a Display in plain words"));
            }
        }
    }
    fail_if_any(&broken)
}

#[test]
fn debug_output_is_found_wherever_it_is_written() -> Result<()> {
    let text = "format!(\n\"{a:?} of {b} and \\\n {c.d:#?}\", x);\nwrite!(f, \"{:?}{0:?}\")";
    let found = debug_values(text);
    ensure!(found == [(2, "a"), (3, "c.d"), (4, ""), (4, "0")], "{found:?}");
    let parent = "#[cfg(test)]\nmod checks;\nmod b;\n#[cfg(test)]\nmod c;\n";
    let code =
        [("mod", parent), ("checks", ""), ("b", ""), ("c/mod", "mod d;"), ("c/d", ""), ("checks_of", "")];
    let code = code.map(|(name, text)| (format!("crates/a/src/{name}.rs"), text.to_owned()));
    let expected = ["checks", "c/mod", "c/d"].map(|name| format!("crates/a/src/{name}.rs"));
    ensure!(test_modules(&code) == BTreeSet::from(expected));
    ensure!(without_tests("a\n#[cfg(test)]\npub mod tests {\nb") == "a\n#[cfg(test)]\npub ");
    Ok(())
}
