//! The git server: passwords, partial fetches, pushes, and the faults of tests.

use anyhow::{Context, Result, ensure};
use sluice_testkit::{FileChange, GitServer, Repo, Requests, Scratch};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

fn git(folder: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "t").env(format!("GIT_{role}_EMAIL"), "t@example.com");
    }
    Ok(command.output()?)
}

fn succeeds(folder: &Path, args: &[&str]) -> Result<String> {
    let output = git(folder, args)?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn fails(folder: &Path, args: &[&str]) -> Result<String> {
    let output = git(folder, args)?;
    ensure!(!output.status.success(), "git {args:?} must fail");
    Ok(String::from_utf8(output.stderr)?)
}

struct Fixture {
    server: GitServer,
    repo: Repo,
    scratch: Scratch,
}

fn fixture(files: &[(&str, &str)]) -> Result<Fixture> {
    let server = GitServer::start()?;
    let repo = server.create_repo("fleet", files)?;
    Ok(Fixture { server, repo, scratch: Scratch::new("client")? })
}

#[test]
fn a_wrong_password_is_refused_and_a_reader_cannot_push() -> Result<()> {
    let Fixture { server, repo, scratch } = fixture(&[("a", "1")])?;
    let here = scratch.path();
    let wrong = repo.url().replacen("http://", "http://sluice:wrong@", 1);
    ensure!(fails(here, &["ls-remote", &wrong])?.contains("Authentication failed"));
    fails(here, &["ls-remote", repo.url()])?;
    ensure!(fails(here, &["ls-remote", &format!("{}/none.git", server.url())])?.contains("not found"));
    let reader = repo.url().replacen("http://", "http://reader:read%20only@", 1);
    succeeds(here, &["clone", "--quiet", &reader, "clone"])?;
    ensure!(fails(&here.join("clone"), &["push", "origin", "main:other"])?.contains("403"));
    ensure!(repo.requests().refused >= 3, "{:?}", repo.requests());
    ensure!(repo.requests().push == 0);
    Ok(())
}

#[test]
fn a_partial_fetch_leaves_large_files_out_and_a_push_arrives() -> Result<()> {
    let large = "x".repeat(100_000);
    let Fixture { server: _server, repo, scratch } = fixture(&[("small", "1"), ("large", &large)])?;
    repo.commit("main", "second", &[("small", "2")])?;
    let cache = scratch.folder("cache")?;
    succeeds(&cache, &["init", "--quiet", "--bare", "."])?;
    succeeds(&cache, &["remote", "add", "origin", &repo.url_with_password()])?;
    succeeds(
        &cache,
        &["fetch", "--quiet", "--depth=1", "--filter=blob:limit=64k", "origin", "+main:refs/heads/main"],
    )?;
    assert_eq!(succeeds(&cache, &["rev-list", "--count", "main"])?.trim(), "1");
    let missing = succeeds(&cache, &["rev-list", "--objects", "--missing=print", "main"])?;
    assert_eq!(missing.lines().filter(|l| l.starts_with('?')).count(), 1);
    assert_eq!(succeeds(&cache, &["cat-file", "blob", "main:small"])?, "2");
    let expected =
        Requests { ls: 1, fetch: repo.requests().fetch, push: 0, refused: repo.requests().refused };
    assert_eq!(repo.requests(), expected);

    succeeds(&cache, &["push", "--quiet", "origin", "main:refs/heads/proposal"])?;
    assert_eq!(repo.head("proposal")?, repo.head("main")?);
    assert_eq!(repo.requests().push, 1);
    Ok(())
}

#[test]
fn a_large_push_is_streamed_whole() -> Result<()> {
    let Fixture { server: _server, repo, scratch } = fixture(&[("a", "1")])?;
    let here = scratch.path();
    succeeds(here, &["clone", "--quiet", &repo.url_with_password(), "clone"])?;
    let clone = here.join("clone");
    // Not compressible and larger than git's http.postBuffer of 1 MiB, so that git sends it in chunks.
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(3_000_000)
    .collect();
    std::fs::write(clone.join("noise"), &noise)?;
    succeeds(&clone, &["add", "."])?;
    succeeds(&clone, &["commit", "--quiet", "-m", "noise"])?;
    succeeds(&clone, &["push", "--quiet", "origin", "HEAD:main"])?;
    ensure!(repo.files("main")? == ["a", "noise"]);
    succeeds(here, &["clone", "--quiet", &repo.url_with_password(), "again"])?;
    ensure!(std::fs::read(here.join("again/noise"))? == noise);
    Ok(())
}

#[test]
fn requests_fail_hang_and_lose_their_answer_on_demand() -> Result<()> {
    let Fixture { server, repo, scratch } = fixture(&[("a", "1")])?;
    let here = scratch.path();
    let url = repo.url_with_password();
    server.fail_next(1);
    ensure!(fails(here, &["ls-remote", &url])?.contains("503"));
    succeeds(here, &["clone", "--quiet", &url, "clone"])?;

    let clone = here.join("clone");
    repo.tap().lose_next_pushes(1);
    ensure!(fails(&clone, &["push", "origin", "HEAD:refs/heads/lost"])?.contains("502"));
    assert_eq!(repo.head("lost")?, repo.head("main")?, "the push had its effect");

    repo.tap().hang(true);
    let mut waiting = Command::new("git").args(["ls-remote", "--quiet", &url, "none"]).spawn()?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(waiting.try_wait()?.is_none(), "it hangs");
    repo.tap().hang(false);
    ensure!(waiting.wait()?.success());
    Ok(())
}

#[test]
fn the_owner_reads_and_changes_the_repository_without_http() -> Result<()> {
    let Fixture { server: _server, repo, scratch: _scratch } =
        fixture(&[("a.yaml", "tag: 1 # mark\nother: x\n"), ("b", "b")])?;
    let first = repo.head("main")?;
    let message = "raise a\n\nBecause.\n\nSluice-Promotion: p\n";
    let second = repo.commit("work", message, &[("a.yaml", "tag: 2 # mark\nother: x\n")])?;
    let log = repo.log("work")?;
    assert_eq!(log.len(), 2);
    assert_eq!((log[0].sha.as_str(), log[0].subject.as_str()), (second.as_str(), "raise a"));
    assert_eq!(log[0].body, "Because.\n\nSluice-Promotion: p");
    assert_eq!(log[0].parents, [first.as_str()]);
    assert_eq!(log[0].author, "testkit <testkit@example.com>");
    let diff = repo.diff(&second)?;
    ensure!(diff.contains("-tag: 1 # mark\n+tag: 2 # mark") && !diff.contains("other"), "{diff}");
    assert_eq!(repo.read("main", "a.yaml")?, "tag: 1 # mark\nother: x\n");

    let merged = repo.merge("work", "main")?;
    assert_eq!(repo.log("main")?[0].parents, [first, second]);
    assert_eq!(repo.head("main")?, merged);
    repo.commit_changes("main", "drop b", &[FileChange::Remove("b")])?;
    assert_eq!(repo.files("main")?, ["a.yaml"]);
    repo.remove_branch("work")?;
    assert_eq!(repo.branches()?, ["main"]);
    repo.read("work", "a.yaml").err().context("gone")?;
    Ok(())
}
