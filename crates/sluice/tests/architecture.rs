//! The rules of the house that no compiler checks: who may depend on whom, where nothing waits, how
//! long a file may be, and what no file may name. Each failure says where, and what to do.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom. What is not here may depend on nobody of ours.
const EDGES: [(&str, &[&str]); 6] = [
    ("sluice", &["sluice-controller", "sluice-web", "sluice-cli"]),
    ("sluice-controller", &["sluice-delivery", "sluice-core", "sluice-api"]),
    ("sluice-delivery", &["sluice-core"]),
    ("sluice-web", &["sluice-core"]),
    ("sluice-cli", &["sluice-core", "sluice-api"]),
    ("sluice-testkit", &["sluice-api"]),
];

/// The most lines that a file of code may have.
const LONGEST: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fails(broken: &[String]) -> Result<()> {
    // Not as an error: its backtrace would bury what is to be read.
    assert!(broken.is_empty(), "the house has rules:\n\n{}\n", broken.join("\n"));
    Ok(())
}

/// Runs a program in the checkout and returns what it printed.
fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The files of the checkout, those that are not committed yet included.
fn files() -> Result<Vec<String>> {
    // A checkout that somebody else owns, as in a container, is a checkout all the same.
    let listed = output(
        "git",
        &["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    )?;
    let listed = String::from_utf8(listed)?;
    Ok(listed.split('\0').filter(|path| root().join(path).is_file()).map(str::to_owned).collect())
}

fn code() -> Result<Vec<(String, String)>> {
    let ours = files()?.into_iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs"));
    ours.map(|path| {
        let text = std::fs::read_to_string(root().join(&path)).with_context(|| path.clone())?;
        Ok((path, text))
    })
    .collect()
}

#[test]
fn dependencies_point_one_way() -> Result<()> {
    let told = output(env!("CARGO"), &["metadata", "--no-deps", "--offline", "--format-version=1"])?;
    let told: Value = serde_json::from_slice(&told)?;
    let packages = told["packages"].as_array().context("cargo metadata names no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    ensure!(ours.contains("sluice") && ours.contains("sluice-core"), "not our workspace: {ours:?}");
    let mut broken = Vec::new();
    for package in packages {
        let from = name(package);
        let allowed = EDGES.iter().find(|(who, _)| *who == from).map_or(&[][..], |(_, whom)| whom);
        let edges = package["dependencies"].as_array().context("no dependencies")?;
        for edge in edges.iter().filter(|e| ours.contains(&name(e)) && e["kind"] != "dev") {
            let to = name(edge);
            if allowed.contains(&to.as_str()) {
                continue;
            }
            let place = package["manifest_path"].as_str().unwrap_or(&from);
            let place = place.rsplit("crates/").next().unwrap_or(place);
            broken.push(match to.as_str() {
                "sluice-testkit" => format!(
                    "crates/{place}: sluice-testkit is for tests only: move it to [dev-dependencies]"
                ),
                _ if allowed.is_empty() => format!(
                    "crates/{place}: {from} depends on {to}, and may know nobody of ours: move what it needs \
                     into it, or hand it over as a value"
                ),
                _ => format!(
                    "crates/{place}: {from} depends on {to}, and may only know {}: move the code to where the \
                     arrow of ARCHITECTURE.md allows it",
                    allowed.join(", ")
                ),
            });
        }
    }
    fails(&broken)
}

/// A line of code without its comment.
fn bare(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Whether a text has this word, not as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let after = text[at + word.len()..].chars().next();
        !text[..at].chars().next_back().is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn what_decides_and_what_observes_neither_waits_nor_asks() -> Result<()> {
    let core = ("crates/core/src/", &["async", "await", "kube", "k8s_openapi", "tokio", "Client"][..]);
    let observe = ("crates/controller/src/observe/", &["async", "await", "Client"][..]);
    let code = code()?;
    let mut broken = Vec::new();
    for (folder, forbidden) in [core, observe] {
        let inside: Vec<_> = code.iter().filter(|(path, _)| path.starts_with(folder)).collect();
        ensure!(!inside.is_empty(), "{folder} is empty: tell this test where it went");
        for (path, text) in inside {
            for (number, line) in text.lines().enumerate() {
                for word in forbidden.iter().filter(|word| has_word(bare(line), word)) {
                    broken.push(format!(
                        "{path}:{}: {word}: {folder} is a pure function of what it is given. Do the waiting and \
                         asking in crates/controller/src/watch or act, and hand the outcome over as a value",
                        number + 1
                    ));
                }
            }
        }
    }
    fails(&broken)
}

#[test]
fn no_file_is_too_long_to_read() -> Result<()> {
    let mut broken = Vec::new();
    for (path, text) in code()? {
        let lines = text.lines().count();
        if lines > LONGEST {
            broken.push(format!(
                "{path}: {lines} lines, and {LONGEST} are the most: it does more than one thing; give the second \
                 a file of its own"
            ));
        }
    }
    fails(&broken)
}

#[test]
fn every_file_says_first_why_it_exists() -> Result<()> {
    let mut broken = Vec::new();
    for (path, text) in code()? {
        if path.split('/').nth(2) == Some("src") && !text.starts_with("//!") {
            broken.push(format!(
                "{path}:1: begins without //!: say in at most five lines why this file exists"
            ));
        }
    }
    fails(&broken)
}

/// What must not be in a file: in halves, so that this one does not name it.
fn forbidden() -> [(String, &'static str); 9] {
    let machine = "a path of one machine: name it relative to the checkout, or take it from the environment";
    let registry =
        "a registry's host: everybody reaches registries by another way; leave it to the tool's settings";
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
            for (words, why) in &forbidden {
                // A folder of that name deeper down is nobody's home.
                let whole = |at: usize| {
                    let before = line[..at].chars().next_back();
                    !words.starts_with('/')
                        || !before.is_some_and(|c| c.is_alphanumeric() || "._-}".contains(c))
                };
                if line.match_indices(words).any(|(at, _)| whole(at)) {
                    broken.push(format!("{path}:{}: {words} is {why}", number + 1));
                }
            }
        }
    }
    fails(&broken)
}

/// The words in quotes that are written as reasons are: `NoMarker`.
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
        "only {found} reasons and metrics were found: tell this test how they are written now"
    );
    fails(&broken)
}

/// What a page calls the file of a test: its name, or that of its folder for what stands in its root.
fn stem(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    match parts.next()?.strip_suffix(".rs")? {
        "main" | "mod" => parts.next(),
        stem => Some(stem),
    }
}

/// The names of the tests in a file that run by themselves.
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

/// The tests that hold at every forge, and what stands for each forge in their names.
fn contract(text: &str) -> Result<(BTreeSet<&str>, BTreeSet<&str>)> {
    let list = text.split("\nand_real_gitea! {").nth(1).and_then(|rest| rest.split_once('['));
    let (tests, worlds) =
        list.and_then(|(_, rest)| rest.split_once(']')).context("and_real_gitea! lists nothing")?;
    let worlds = worlds.lines().filter_map(|line| line.split_once(':')).map(|(world, _)| world.trim());
    Ok((tests.split_whitespace().collect(), worlds.chain(["gitea"]).collect()))
}

/// The tests of the checkout, by the names of their files.
fn named_tests(code: &[(String, String)]) -> BTreeSet<(&str, &str)> {
    let files = code.iter().filter_map(|(path, text)| Some((stem(path)?, text)));
    files.flat_map(|(file, text)| tests(text).map(move |test| (file, test))).collect()
}

#[test]
fn every_test_that_the_page_of_tenants_names_is_there() -> Result<()> {
    let shown = "docs/tenants.md";
    let page = std::fs::read_to_string(root().join(shown))?;
    let code = code()?;
    let there = named_tests(&code);
    let words = page.split('`').skip(1).step_by(2).filter_map(|word| word.rsplit_once("::"));
    let named: Vec<(&str, &str)> = words.filter(|(_, test)| !test.contains(' ')).collect();
    ensure!(named.len() > 20, "{shown} names {} tests: tell this test how it does", named.len());
    let missing = named.iter().filter(|name| !there.contains(*name));
    let broken: Vec<String> = missing
        .map(|(file, test)| format!("{shown}: there is no test {file}::{test}: name the one that shows it"))
        .collect();
    fails(&broken)
}

#[test]
fn every_test_that_the_page_of_forges_names_is_there_and_the_contract_is_named() -> Result<()> {
    let (shown, contract_at) = ("docs/forges/README.md", "crates/delivery/tests/it/contract.rs");
    let page = std::fs::read_to_string(root().join(shown))?;
    let code = code()?;
    let there = named_tests(&code);
    let (_, text) =
        code.iter().find(|(path, _)| path == contract_at).context("tell this test where contract.rs went")?;
    let (kept, worlds) = contract(text)?;
    let (mut broken, mut named) = (Vec::new(), BTreeSet::new());
    let words = page.split('`').skip(1).step_by(2);
    for name in words.filter(|word| word.contains("::") && !word.contains(' ')) {
        let (place, test) = name.rsplit_once("::").unwrap_or_default();
        let runs = match place.strip_prefix("contract::") {
            Some(world) => kept.contains(test) && (world == "*" || worlds.contains(world)),
            None => there.contains(&(place, test)),
        };
        if !runs {
            broken.push(format!(
                "{shown}: there is no test {name}: name the one that shows it, or write \"not tested\""
            ));
        }
        named.insert(test);
    }
    for test in kept.difference(&named) {
        broken.push(format!("{contract_at}: {shown} does not name {test}: give it a row"));
    }
    for world in worlds.iter().filter(|world| !page.contains(&format!("| `{world}` |"))) {
        broken.push(format!("{contract_at}: {shown} has no column `{world}`: add it"));
    }
    fails(&broken)
}

/// Fields of a log line that are written as Rust's `Debug` are for the authors of the code, not for who reads the log.
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
                broken.push(format!(
                    "{path}:{n}: write %field, and give its type a Display that says it in words"
                ));
            }
        }
    }
    fails(&broken)
}
