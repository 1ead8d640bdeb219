//! Checks rules of the architecture that the compiler does not check: dependencies between crates, circular imports
//! between files, code that must not wait, the length of files and functions, texts that no file may contain, and what pages of the
//! documentation name. Each failure names the file and says what to do.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

mod architecture {
    pub mod debug_output;
    pub mod functions;
    pub mod imports;
    pub mod language;
    pub mod log_lines;
    pub mod pages;
    pub mod programs;
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
    ("sluice-bench", &["sluice-testkit", "sluice-core"]),
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

/// Returns the folder of the crate or test binary that a file belongs to, and the file's path below the folder. The root of the
/// test binary `tests/a.rs` is the `main.rs` of the folder `tests`: its modules are in `tests/a/`.
fn folder_and_file(path: &str, single_files: &BTreeSet<&str>) -> Option<(String, String)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once('/')?;
    if let Some(file) = file.strip_prefix("src/") {
        return Some((format!("crates/{name}/src"), file.to_owned()));
    }
    let (binary, below) = match file.strip_prefix("tests/")?.split_once('/') {
        Some((binary, below)) => (binary, Some(below)),
        None => (file.strip_prefix("tests/")?.strip_suffix(".rs")?, None),
    };
    let is_single = single_files.contains(format!("crates/{name}/tests/{binary}.rs").as_str());
    let folder = format!("crates/{name}/tests/{binary}");
    match below {
        None => Some((folder, "main.rs".to_owned())),
        Some(below) if is_single => Some((folder, format!("{binary}/{below}"))),
        Some(below) => Some((folder, below.to_owned())),
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() -> Result<()> {
    let code = code()?;
    let single_files: BTreeSet<&str> = code
        .iter()
        .map(|(path, _)| path.as_str())
        .filter(|path| path.split('/').nth(2) == Some("tests"))
        .collect();
    let mut folders: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in &code {
        if let Some((folder, file)) = folder_and_file(path, &single_files) {
            folders.entry(folder).or_default().push((file, text.clone()));
        }
    }
    let expected = ["crates/core/src", "crates/delivery/tests/it", "crates/sluice/tests/architecture"];
    ensure!(expected.iter().all(|folder| folders.contains_key(*folder)), "not ours: {:?}", folders.keys());
    let mut broken = Vec::new();
    for (folder, files) in &folders {
        for circle in imports::circles(files) {
            broken.push(format!(
                "{folder}: {} import each other: move what all of them need to a file that imports none of them\n  {}",
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
