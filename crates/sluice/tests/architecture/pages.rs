//! Checks what the pages of the documentation name: links, reasons, metrics, tests, functions and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::{code, fail_if_any, files, root};

/// Returns the text of a page without its blocks of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the anchors of the headings of a page. A forge makes an anchor of a heading: lower case, `-` for a space,
/// without other punctuation, and with a number if it is repeated.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let page = prose(page);
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let mut anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let seen = times.entry(anchor.clone()).or_default();
        *seen += 1;
        if *seen == 1 { anchor } else { format!("{anchor}-{}", *seen - 1) }
    };
    headings.map(&mut anchor).collect()
}

/// Returns the targets of the links in a page that lead to another place of the checkout.
fn local_links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains(':')).map(str::to_owned).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() -> Result<()> {
    let pages: Vec<String> = files()?.into_iter().filter(|path| path.ends_with(".md")).collect();
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let (mut broken, mut count) = (Vec::new(), 0);
    for page in &pages {
        let path = root().join(page);
        for link in local_links(&read(&path)?) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            if !target.exists() {
                broken.push(format!("{page}: the link {link} leads to no file: correct it"));
            } else if !anchor.is_empty() && !anchors(&read(&target)?).contains(anchor) {
                broken.push(format!("{page}: the link {link} leads to no heading: correct it"));
            }
        }
    }
    ensure!(count > 100, "only {count} links were found: adapt this test to how pages write links");
    fail_if_any(&broken)
}

#[test]
fn links_and_anchors_are_found_outside_code() {
    let page = "# Add a cluster: how?\n[a](b.md#c), [d\ne](#f) [g](https://h.example/i)\n```\n# no\n[j](k)\n```\n## Add\n## Add\n";
    assert_eq!(local_links(page), ["b.md#c", "#f"]);
    assert_eq!(anchors(page), ["add-a-cluster-how", "add", "add-1"].map(str::to_owned).into());
}

/// Returns the quoted words that have the form of a reason: `NoMarker`.
fn reasons(text: &str) -> impl Iterator<Item = &str> {
    let is_reason = |word: &&str| {
        let letters = word.chars().all(|c| c.is_ascii_alphabetic());
        letters && word.len() > 3 && word.starts_with(|c: char| c.is_ascii_uppercase())
    };
    text.split('"').skip(1).step_by(2).filter(is_reason)
}

#[test]
fn every_reason_and_every_metric_is_explained() -> Result<()> {
    let troubleshooting = std::fs::read_to_string(root().join("docs/troubleshooting.md"))?;
    let metrics = std::fs::read_to_string(root().join("docs/metrics.md"))?;
    let mut broken = Vec::new();
    let mut found = 0;
    for (path, text) in code()?.into_iter().filter(|(path, _)| path.split('/').nth(2) == Some("src")) {
        for body in text.split("fn reason(&self)").skip(1) {
            let body = body.split("\n    }\n").next().unwrap_or(body);
            for word in reasons(body) {
                found += 1;
                if !troubleshooting.contains(&format!("`{word}`")) {
                    broken.push(format!(
                        "{path}: docs/troubleshooting.md does not explain `{word}`: add its line"
                    ));
                }
            }
        }
        for body in text.split("registry.register(\"").skip(1) {
            let name = body.split('"').next().unwrap_or_default();
            found += 1;
            if !metrics.contains(&format!("`sluice_{name}")) {
                broken.push(format!("{path}: docs/metrics.md does not list sluice_{name}: add its line"));
            }
        }
    }
    ensure!(
        found > 30,
        "only {found} reasons and metrics were found: adapt this test to how they are written now"
    );
    fail_if_any(&broken)
}

/// Returns the name of a test file as pages write it: the name of the file, or the name of its folder for `main.rs`
/// and `mod.rs`.
fn stem(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    match parts.next()?.strip_suffix(".rs")? {
        "main" | "mod" => parts.next(),
        stem => Some(stem),
    }
}

/// Returns the names of the tests in a file that run without `--ignored`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") {
            let is_test = line == "#[test]" || line.starts_with("#[tokio::test");
            marked = (marked || is_test) && !line.starts_with("#[ignore");
            return None;
        }
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        let name = name.filter(|_| marked).and_then(|rest| rest.split(['(', '<']).next());
        marked = false;
        name
    })
}

/// Returns the tests that run for every forge, and the names of the forges' fixtures.
fn contract(text: &str) -> Result<(BTreeSet<&str>, BTreeSet<&str>)> {
    let list = text.split("\nand_real_gitea! {").nth(1).and_then(|rest| rest.split_once('['));
    let (tests, fixtures) =
        list.and_then(|(_, rest)| rest.split_once(']')).context("and_real_gitea! lists nothing")?;
    let fixtures =
        fixtures.lines().filter_map(|line| line.split_once(':')).map(|(fixture, _)| fixture.trim());
    Ok((tests.split_whitespace().collect(), fixtures.chain(["gitea"]).collect()))
}

/// Returns the tests of the checkout, with the names of their files.
fn named_tests(code: &[(String, String)]) -> BTreeSet<(&str, &str)> {
    let files = code.iter().filter_map(|(path, text)| Some((stem(path)?, text)));
    files.flat_map(|(file, text)| tests(text).map(move |test| (file, test))).collect()
}

/// Returns the faults in the claims of a page, and the number of claims. A fault is a claim without a test, or with a
/// test that does not exist. A claim is a row of a table whose last column is `test`. Pages write a test as
/// `file::function`, or only as `function`. A row of a table whose first column is not `claim` may also say "not tested: "
/// and why.
fn unproven_claims(page: &str, existing: &BTreeSet<(&str, &str)>) -> (Vec<String>, usize) {
    let (mut broken, mut count, mut heading) = (Vec::new(), 0, None);
    for (number, line) in (1..).zip(page.lines()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, claim, .., proof, _] = cells.as_slice() else {
            heading = None;
            continue;
        };
        if *proof == "test" {
            heading = Some(*claim);
        }
        let Some(heading) = heading.filter(|_| *proof != "test" && !claim.starts_with("---")) else {
            continue;
        };
        count += 1;
        if heading != "claim" && proof.strip_prefix("not tested: ").is_some_and(|why| !why.is_empty()) {
            continue;
        }
        let mut names = proof.split('`').skip(1).step_by(2).peekable();
        if names.peek().is_none() {
            broken.push(format!("{number}: {claim}: name the test that proves the claim"));
        }
        for name in names {
            let exists = match name.rsplit_once("::") {
                Some(test) => existing.contains(&test),
                None => existing.iter().any(|(_, test)| *test == name),
            };
            if !exists {
                broken.push(format!(
                    "{number}: {claim}: the test {name} does not exist: name the test that proves the claim"
                ));
            }
        }
    }
    (broken, count)
}

#[test]
fn every_claim_of_a_page_names_tests_that_exist() -> Result<()> {
    let code = code()?;
    let existing = named_tests(&code);
    let mut all = Vec::new();
    for (page_path, least) in [("docs/tenants.md", 30), ("docs/tested-claims.md", 100)] {
        let page = std::fs::read_to_string(root().join(page_path))?;
        let (broken, count) = unproven_claims(&page, &existing);
        ensure!(
            count > least,
            "{page_path} has {count} claims: adapt this test to how the page writes claims"
        );
        all.extend(broken.iter().map(|line| format!("{page_path}:{line}")));
    }
    fail_if_any(&all)
}

#[test]
fn a_claim_without_an_existing_test_is_found() {
    let page = "| who | trusted |\n| --- | --- |\n| a | |\n\n| claim | test |\n| --- | --- |\n\
                | A holds | `file::existing` |\n| B holds | |\n| C holds | `gone`, `alone` |\n\
                | D holds | `other::existing` |\n\ntext | more\n\n\
                | do | why | test |\n| --- | --- | --- |\n| E | e | `file::existing` |\n| F | f | not tested: it is said |\n\
                | G | g | not tested |\n\n| claim | test |\n| --- | --- |\n| H holds | not tested: no |\n";
    let existing = BTreeSet::from([("file", "existing"), ("main", "alone")]);
    let (broken, count) = unproven_claims(page, &existing);
    assert_eq!(count, 8);
    assert_eq!(
        broken,
        [
            "8: B holds: name the test that proves the claim",
            "9: C holds: the test gone does not exist: name the test that proves the claim",
            "10: D holds: the test other::existing does not exist: name the test that proves the claim",
            "18: G: name the test that proves the claim",
            "22: H holds: name the test that proves the claim",
        ]
    );
}

#[test]
fn the_forges_page_names_existing_tests_and_the_whole_contract() -> Result<()> {
    let (page_path, contract_path) = ("docs/forges/README.md", "crates/delivery/tests/it/contract.rs");
    let page = std::fs::read_to_string(root().join(page_path))?;
    let code = code()?;
    let existing = named_tests(&code);
    let (_, text) = code
        .iter()
        .find(|(path, _)| path == contract_path)
        .context("correct the path of contract.rs in this test")?;
    let (contract_tests, fixtures) = contract(text)?;
    let (mut broken, mut named) = (Vec::new(), BTreeSet::new());
    let words = page.split('`').skip(1).step_by(2);
    for name in words.filter(|word| word.contains("::") && !word.contains(' ')) {
        let (place, test) = name.rsplit_once("::").unwrap_or_default();
        let runs = match place.strip_prefix("contract::") {
            Some(fixture) => contract_tests.contains(test) && (fixture == "*" || fixtures.contains(fixture)),
            None => existing.contains(&(place, test)),
        };
        if !runs {
            broken.push(format!(
                "{page_path}: the test {name} does not exist: name the test that proves the claim, or write \"not tested\""
            ));
        }
        named.insert(test);
    }
    for test in contract_tests.difference(&named) {
        broken.push(format!("{contract_path}: {page_path} does not name {test}: give it a row"));
    }
    for fixture in fixtures.iter().filter(|fixture| !page.contains(&format!("| `{fixture}` |"))) {
        broken.push(format!("{contract_path}: {page_path} has no column `{fixture}`: add it"));
    }
    fail_if_any(&broken)
}

/// ARCHITECTURE.md names the functions that a revision passes through, each with its file.
#[test]
fn the_path_of_a_revision_names_functions_that_exist() -> Result<()> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let (_, path) =
        page.split_once("### One revision").context("ARCHITECTURE.md has no path of a revision")?;
    let rows =
        path.lines().skip(1).take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with("| `"));
    let mut broken = Vec::new();
    let mut count = 0;
    for row in rows {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1);
        let (function, file) = cells.next().zip(cells.next()).with_context(|| row.to_owned())?;
        let name = function.rsplit("::").next().unwrap_or(function);
        let text = std::fs::read_to_string(root().join("crates").join(file)).unwrap_or_default();
        if !text.contains(&format!("fn {name}(")) && !text.contains(&format!("fn {name}<")) {
            broken.push(format!(
                "ARCHITECTURE.md: {file} has no function {name}: correct the path of a revision"
            ));
        }
        count += 1;
    }
    ensure!(
        count > 10,
        "the path of a revision has only {count} functions: adapt this test to how the page names them"
    );
    fail_if_any(&broken)
}

/// Returns the texts between backticks that have the form of a path in the checkout.
fn quoted_paths(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |word: &&str| {
        let is_plain =
            word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) && !word.contains("::");
        is_plain && !word.starts_with(['/', '-', '.']) && (word.contains('/') || word.ends_with(".rs"))
    };
    text.split('`').skip(1).step_by(2).filter(is_path)
}

/// Returns the path in the checkout that a word in a cell of a table means. The word is a whole path, a path below
/// `crates/`, or a path from the folder of the `earlier` path in the cell or from a folder above it in the same crate.
fn path_in_checkout(word: &str, earlier: Option<&str>, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let whole = [word.to_owned(), format!("crates/{word}")];
    if let Some(path) = whole.into_iter().find(|path| exists(path)) {
        return Some(path);
    }
    let mut folder = earlier?;
    while let Some((above, _)) = folder.rsplit_once('/').filter(|(above, _)| above.contains('/')) {
        folder = above;
        let path = format!("{folder}/{word}");
        if exists(&path) {
            return Some(path);
        }
    }
    None
}

/// Returns the paths in the tables of a page that do not exist, each with its line, and the number of all paths.
fn missing_paths(page: &str, exists: &dyn Fn(&str) -> bool) -> (Vec<String>, usize) {
    let (mut missing, mut count) = (Vec::new(), 0);
    for (number, line) in (1..).zip(page.lines()).filter(|(_, line)| line.starts_with('|')) {
        for cell in line.split('|') {
            let mut earlier: Option<String> = None;
            for word in quoted_paths(cell) {
                count += 1;
                match path_in_checkout(word, earlier.as_deref(), exists) {
                    Some(path) => earlier = Some(path),
                    None => {
                        missing.push(format!("{number}: {word} does not exist: write the path to the file"))
                    }
                }
            }
        }
    }
    (missing, count)
}

/// ARCHITECTURE.md says which file to change.
#[test]
fn the_architecture_page_names_paths_that_exist() -> Result<()> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let (missing, count) = missing_paths(&page, &|path| root().join(path).exists());
    ensure!(count > 150, "ARCHITECTURE.md names {count} paths: adapt this test to how the page names paths");
    fail_if_any(&missing.iter().map(|line| format!("ARCHITECTURE.md:{line}")).collect::<Vec<_>>())
}

#[test]
fn a_path_is_found_only_beside_or_above_the_path_before_it() {
    let files =
        ["crates/api/src/pipeline/mod.rs", "crates/api/src/promotion/mod.rs", "crates/web/src/page/a.rs"];
    let exists = |path: &str| files.iter().any(|file| *file == path || file.starts_with(&format!("{path}/")));
    let page = "| a | `crates/api/src/pipeline/mod.rs`, `promotion.rs` |\n| b | `api/src/pipeline`, `promotion/mod.rs` |\n\
                | c | `crates/api/src/pipeline/mod.rs`, `page/a.rs` |\n| d | `crates/web/src/page/a.rs` and `make crds` |\n";
    let (missing, count) = missing_paths(page, &exists);
    assert_eq!(count, 7);
    assert_eq!(
        missing,
        ["1: promotion.rs", "3: page/a.rs"]
            .map(|path| format!("{path} does not exist: write the path to the file"))
    );
}

/// A path in the text of a page that begins with the name of a folder of the checkout must exist.
#[test]
fn pages_name_paths_that_exist() -> Result<()> {
    let (mut broken, mut count) = (Vec::new(), 0);
    for page in files()?.iter().filter(|path| path.ends_with(".md") && *path != "CHANGELOG.md") {
        let text = std::fs::read_to_string(root().join(page))?;
        let is_ours =
            |path: &&str| ["crates/", "docs/", "hack/"].iter().any(|folder| path.starts_with(folder));
        for path in quoted_paths(&prose(&text)).filter(is_ours) {
            count += 1;
            if !root().join(path).exists() {
                broken.push(format!("{page}: {path} does not exist: correct the path"));
            }
        }
    }
    ensure!(count > 100, "pages name {count} paths: adapt this test to how they name paths");
    fail_if_any(&broken)
}
