//! Checks rules of the architecture that the compiler does not check: dependencies between crates, circular imports
//! between files, code that must not wait, the length of files, texts that no file may contain, and pages that name
//! tests, functions and paths. Each failure names the file and says what to do.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

mod architecture {
    pub mod debug_output;
    pub mod imports;
    pub mod language;
}

use architecture::imports;

/// The crates of the workspace that each crate may depend on. A crate that is not listed may depend on none.
const DEPENDENCIES: [(&str, &[&str]); 10] = [
    ("sluice", &["sluice-controller", "sluice-web", "sluice-cli", "sluice-core", "sluice-api"]),
    ("sluice-controller", &["sluice-delivery", "sluice-core", "sluice-api"]),
    ("sluice-delivery", &["sluice-core"]),
    ("sluice-web", &["sluice-view", "sluice-core", "sluice-api"]),
    ("sluice-cli", &["sluice-view", "sluice-core", "sluice-api"]),
    ("sluice-view", &["sluice-core", "sluice-api"]),
    ("sluice-api", &["sluice-core"]),
    ("sluice-testkit", &["sluice-api"]),
    ("sluice-demo", &["sluice-testkit", "sluice-api"]),
    ("sluice-bench", &["sluice-testkit"]),
];

/// The most lines of a source file.
const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Fails with the list of broken rules, unless the list is empty.
fn fail_if_any(broken: &[String]) -> Result<()> {
    // This is an assertion and not an error, because the backtrace of an error would hide the list.
    assert!(broken.is_empty(), "the rules of the architecture are broken:\n\n{}\n", broken.join("\n"));
    Ok(())
}

/// Runs a program in the checkout and returns what it printed.
fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Returns the files of the checkout, also those that are not committed yet.
fn files() -> Result<Vec<String>> {
    // Another user may own the checkout, as in a container.
    let listed = output(
        "git",
        &["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    )?;
    let listed = String::from_utf8(listed)?;
    Ok(listed.split('\0').filter(|path| root().join(path).is_file()).map(str::to_owned).collect())
}

/// Returns the Rust files of all crates, with their texts.
fn code() -> Result<Vec<(String, String)>> {
    let ours = files()?.into_iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs"));
    ours.map(|path| {
        let text = std::fs::read_to_string(root().join(&path)).with_context(|| path.clone())?;
        Ok((path, text))
    })
    .collect()
}

#[test]
fn crates_depend_only_on_allowed_crates() -> Result<()> {
    let metadata = output(env!("CARGO"), &["metadata", "--no-deps", "--offline", "--format-version=1"])?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    ensure!(ours.contains("sluice") && ours.contains("sluice-core"), "not our workspace: {ours:?}");
    let mut broken = Vec::new();
    for package in packages {
        let from = name(package);
        let allowed =
            DEPENDENCIES.iter().find(|(name, _)| *name == from).map_or(&[][..], |(_, allowed)| allowed);
        let edges = package["dependencies"].as_array().context("no dependencies")?;
        for edge in edges.iter().filter(|e| ours.contains(&name(e)) && e["kind"] != "dev") {
            let to = name(edge);
            if allowed.contains(&to.as_str()) {
                continue;
            }
            let manifest = package["manifest_path"].as_str().unwrap_or(&from);
            let manifest = manifest.rsplit("crates/").next().unwrap_or(manifest);
            broken.push(match to.as_str() {
                "sluice-testkit" => format!(
                    "crates/{manifest}: sluice-testkit is for tests only: move it to [dev-dependencies]"
                ),
                _ if allowed.is_empty() => format!(
                    "crates/{manifest}: {from} depends on {to}, and may depend on no crate of the workspace: \
                     move the code into it, or pass it as a value"
                ),
                _ => format!(
                    "crates/{manifest}: {from} depends on {to}, and may only depend on {}: move the code along the \
                     arrows of ARCHITECTURE.md",
                    allowed.join(", ")
                ),
            });
        }
    }
    fail_if_any(&broken)
}

/// Returns a line of code without its comment.
fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Returns true if a text contains a word as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let after = text[at + word.len()..].chars().next();
        !text[..at].chars().next_back().is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn no_files_import_each_other_in_a_circle() -> Result<()> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in code()? {
        if let Some((name, file)) = path.trim_start_matches("crates/").split_once("/src/") {
            crates.entry(name.to_owned()).or_default().push((file.to_owned(), text));
        }
    }
    ensure!(crates.contains_key("core") && crates.contains_key("cli"), "not our crates: {:?}", crates.keys());
    let mut broken = Vec::new();
    for (name, files) in &crates {
        for circle in imports::circles(files) {
            broken.push(format!(
                "crates/{name}/src: {} import each other: move what all of them need to a file that imports none of \
                 them\n  {}",
                circle.files.join(", "),
                circle.edges.join("\n  ")
            ));
        }
    }
    fail_if_any(&broken)
}

#[test]
fn deciding_and_observing_code_does_not_wait() -> Result<()> {
    let core = ("crates/core/src/", &["async", "await", "kube", "k8s_openapi", "tokio", "Client"][..]);
    let observe = ("crates/controller/src/observe/", &["async", "await", "Client"][..]);
    let code = code()?;
    let mut broken = Vec::new();
    for (folder, forbidden) in [core, observe] {
        let inside: Vec<_> = code.iter().filter(|(path, _)| path.starts_with(folder)).collect();
        ensure!(!inside.is_empty(), "{folder} is empty: correct its path in this test");
        for (path, text) in inside {
            for (number, line) in text.lines().enumerate() {
                for word in forbidden.iter().filter(|word| has_word(without_comment(line), word)) {
                    broken.push(format!(
                        "{path}:{}: {word}: the code in {folder} must be pure functions. Wait and send requests \
                         in crates/controller/src/watch or act, and pass the result as a value",
                        number + 1
                    ));
                }
            }
        }
    }
    fail_if_any(&broken)
}

#[test]
fn no_file_is_too_long() -> Result<()> {
    let mut broken = Vec::new();
    for (path, text) in code()? {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            broken.push(format!(
                "{path}: {lines} lines, but at most {MAX_LINES} are allowed: move a part of the file to another file"
            ));
        }
    }
    fail_if_any(&broken)
}

#[test]
fn every_file_begins_with_its_purpose() -> Result<()> {
    let mut broken = Vec::new();
    for (path, text) in code()? {
        if path.split('/').nth(2) == Some("src") && !text.starts_with("//!") {
            broken.push(format!(
                "{path}:1: begins without //!: write in at most five lines why the file exists"
            ));
        }
    }
    fail_if_any(&broken)
}

/// Returns the texts that no file may contain, each with the reason. The texts are written in two halves, so that
/// this file does not contain them.
fn forbidden() -> [(String, &'static str); 9] {
    let machine = "a path of one machine: write it relative to the checkout, or read it from the environment";
    let registry = "the host of a registry: users reach registries in different ways; leave it to the settings of the tool";
    [
        (format!("/{}/", "work"), machine),
        (format!("/{}/", "root"), machine),
        (format!("/{}/", "home"), machine),
        (format!("proxy.{}", "golang.org"), registry),
        (format!("sum.{}", "golang.org"), registry),
        (format!("index.{}", "crates.io"), registry),
        (format!("static.{}", "crates.io"), registry),
        (format!("registry.{}", "npmjs.org"), registry),
        (format!("artifac{}", "tory"), registry),
    ]
}

#[test]
fn no_file_names_one_machine_or_a_registry() -> Result<()> {
    let forbidden = forbidden();
    let mut broken = Vec::new();
    for path in files()? {
        let bytes = std::fs::read(root().join(&path)).with_context(|| path.clone())?;
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            for (forbidden_text, why) in &forbidden {
                // Only absolute paths are forbidden: a folder with the same name inside another folder is allowed.
                let is_absolute = |at: usize| {
                    let before = line[..at].chars().next_back();
                    !forbidden_text.starts_with('/')
                        || !before.is_some_and(|c| c.is_alphanumeric() || "._-}".contains(c))
                };
                if line.match_indices(forbidden_text).any(|(at, _)| is_absolute(at)) {
                    broken.push(format!("{path}:{}: {forbidden_text} is {why}", number + 1));
                }
            }
        }
    }
    fail_if_any(&broken)
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
/// test that does not exist. A claim is a row of a table whose columns are `claim` and `test`. Pages write a test as
/// `file::function`, or only as `function`.
fn unproven_claims(page: &str, existing: &BTreeSet<(&str, &str)>) -> (Vec<String>, usize) {
    let (mut broken, mut count, mut is_claims) = (Vec::new(), 0, false);
    for (number, line) in (1..).zip(page.lines()) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(claim), Some(proof)) = (cells.next(), cells.next()) else {
            is_claims = false;
            continue;
        };
        if claim == "claim" {
            is_claims = true;
        }
        if !is_claims || claim == "claim" || claim.starts_with("---") {
            continue;
        }
        count += 1;
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
fn every_claim_of_the_tenants_page_names_tests_that_exist() -> Result<()> {
    let page_path = "docs/tenants.md";
    let page = std::fs::read_to_string(root().join(page_path))?;
    let code = code()?;
    let (broken, count) = unproven_claims(&page, &named_tests(&code));
    ensure!(count > 30, "{page_path} has {count} claims: adapt this test to how the page writes claims");
    fail_if_any(&broken.iter().map(|line| format!("{page_path}:{line}")).collect::<Vec<_>>())
}

#[test]
fn a_claim_without_an_existing_test_is_found() {
    let page = "| who | trusted |\n| --- | --- |\n| a | |\n\n| claim | test |\n| --- | --- |\n\
                | A holds | `file::existing` |\n| B holds | |\n| C holds | `gone`, `alone` |\n\
                | D holds | `other::existing` |\n\ntext | more\n";
    let existing = BTreeSet::from([("file", "existing"), ("main", "alone")]);
    let (broken, count) = unproven_claims(page, &existing);
    assert_eq!(count, 4);
    assert_eq!(
        broken,
        [
            "8: B holds: name the test that proves the claim",
            "9: C holds: the test gone does not exist: name the test that proves the claim",
            "10: D holds: the test other::existing does not exist: name the test that proves the claim",
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

/// ARCHITECTURE.md says which file to change. A path that is written in full must exist.
#[test]
fn the_architecture_page_names_paths_that_exist() -> Result<()> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let words = page.split('`').skip(1).step_by(2);
    let paths: Vec<&str> =
        words.filter(|word| word.starts_with("crates/") || word.starts_with("docs/")).collect();
    ensure!(
        paths.len() > 30,
        "ARCHITECTURE.md names {} paths: adapt this test to how the page names paths",
        paths.len()
    );
    let missing = paths.iter().filter(|path| !root().join(path).exists());
    let broken: Vec<String> =
        missing.map(|path| format!("ARCHITECTURE.md: {path} does not exist: correct the path")).collect();
    fail_if_any(&broken)
}
