//! The length of functions in product code, with all their lines: clippy's `too_many_lines` leaves out comments, blank
//! lines and the signature.

use anyhow::{Result, ensure};

use super::debug_output::{test_modules, without_tests};
use crate::{code, fail_if_any};

/// The most lines of a function, from its signature to its last brace.
const MAX_LINES: usize = 60;

/// Returns the name of the function whose signature begins on a line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(visible) = rest.strip_prefix("pub") {
        rest = visible
            .strip_prefix('(')
            .and_then(|scope| scope.split_once(')'))
            .map_or(visible, |(_, rest)| rest);
        rest = rest.trim_start();
    }
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Returns the functions of a formatted text, each with its line and its number of lines.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function_name(line)?)));
    let found = starts.filter_map(|(at, name)| {
        let body = (at..lines.len()).find(|line| lines[*line].ends_with(['{', ';', '}']))?;
        if !lines[body].ends_with('{') {
            return None;
        }
        let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
        let end = (body..lines.len()).find(|line| lines[*line].strip_prefix(indent) == Some("}"))?;
        Some((at + 1, name, end - at + 1))
    });
    found.collect()
}

#[test]
fn no_function_is_too_long() -> Result<()> {
    let code = code()?;
    let test_modules = test_modules(&code);
    let (mut broken, mut count) = (Vec::new(), 0);
    let is_product = |path: &str| path.split('/').nth(2) == Some("src") && !test_modules.contains(path);
    for (path, text) in code.iter().filter(|(path, _)| is_product(path)) {
        for (line, name, length) in functions(without_tests(text)) {
            count += 1;
            if length > MAX_LINES {
                broken.push(format!(
                    "{path}:{line}: {name} has {length} lines, but at most {MAX_LINES} are allowed: move a part of it to \
                     another function"
                ));
            }
        }
    }
    ensure!(count > 3000, "only {count} functions were found: adapt this test to how they are written");
    fail_if_any(&broken)
}

#[test]
fn functions_are_found_with_all_their_lines() -> Result<()> {
    let text = "pub(crate) async fn a<T>(\n    b: T,\n) -> T\nwhere\n    T: Copy,\n{\n    // c\n\n    b\n}\n\n\
                trait D {\n    fn e(&self);\n    fn f(&self) {}\n    fn g(&self) {\n        if h {\n        }\n    }\n}\n";
    let found = functions(text);
    ensure!(found == [(1, "a", 10), (15, "g", 4)], "{found:?}");
    Ok(())
}
