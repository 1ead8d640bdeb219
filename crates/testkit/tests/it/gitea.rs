//! Gitea as a forge: pull requests, merges, partial fetches, webhooks.

use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluice_testkit::{Scratch, WAIT_TIMEOUT, eventually, shared_gitea};
use std::process::Command;

#[test]
fn a_pull_request_is_opened_and_merged() -> Result<()> {
    run(async {
        let repo = shared_gitea().await?.create_repo("merged", &[("a.yaml", "tag: 1\n")]).await?;
        let first = repo.head("main")?;
        let change = repo.commit("proposal", "raise a", &[("a.yaml", "tag: 2\n")])?;
        let pull = repo.open_pull("proposal", "main", "raise a to 2").await?;
        assert_eq!((pull.head.branch.as_str(), pull.base.branch.as_str()), ("proposal", "main"));
        assert_eq!(pull.head.sha, change);
        assert_eq!(repo.pulls("open").await?.len(), 1);
        repo.merge(pull.number).await?;
        let pull = repo.pull(pull.number).await?;
        assert_eq!((pull.state.as_str(), pull.merged), ("closed", true));
        assert_eq!(repo.read("main", "a.yaml")?, "tag: 2\n");
        assert_eq!(repo.log("main")?[0].parents, [first, change]);
        Ok(())
    })
}

#[test]
fn a_pull_request_is_closed_unmerged_and_opened_again() -> Result<()> {
    run(async {
        let repo = shared_gitea().await?.create_repo("closed", &[("a", "1")]).await?;
        repo.commit("proposal", "change", &[("a", "2")])?;
        let pull = repo.open_pull("proposal", "main", "change").await?;
        repo.close(pull.number).await?;
        let closed = repo.pulls("closed").await?;
        ensure!(closed.len() == 1 && !closed[0].merged);
        repo.reopen(pull.number).await?;
        repo.edit(pull.number, json!({"title": "other", "body": "text"})).await?;
        let pull = repo.pull(pull.number).await?;
        assert_eq!((pull.title.as_str(), pull.body.as_str(), pull.state.as_str()), ("other", "text", "open"));
        Ok(())
    })
}

#[test]
fn a_partial_fetch_works_and_a_read_only_token_cannot_push() -> Result<()> {
    run(async {
        let gitea = shared_gitea().await?;
        let large = "x".repeat(100_000);
        let repo = gitea.create_repo("partial", &[("small", "1"), ("large", &large)]).await?;
        let scratch = Scratch::new("client")?;
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(scratch.path()).env("GIT_TERMINAL_PROMPT", "0").args(args).output()
        };
        git(&["init", "--quiet", "--bare", "."])?;
        git(&["remote", "add", "origin", &repo.url_with_token()])?;
        let filter = "--filter=blob:limit=64k";
        let output = git(&["fetch", "--quiet", "--depth=1", filter, "origin", "+main:refs/heads/main"])?;
        ensure!(output.status.success(), "{output:?}");
        let listed = git(&["rev-list", "--objects", "--missing=print", "main"])?;
        assert_eq!(listed.stdout.split(|b| *b == b'\n').filter(|l| l.starts_with(b"?")).count(), 1);

        let reader = gitea.token_for("reader", &["read:repository"]).await?;
        let url = repo.url_with_token().replace(gitea.token(), &reader);
        ensure!(git(&["ls-remote", &url])?.status.success());
        ensure!(!git(&["push", &url, "main:refs/heads/other"])?.status.success());
        Ok(())
    })
}

#[test]
fn requests_are_counted_and_webhooks_are_sent() -> Result<()> {
    run(async {
        let gitea = shared_gitea().await?;
        let repo = gitea.create_repo("hooked", &[("a", "1")]).await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        repo.add_webhook(&format!("http://{}/hook", listener.local_addr()?), "secret").await?;
        repo.commit("main", "second", &[("a", "2")])?;
        let (stream, _) =
            tokio::time::timeout(WAIT_TIMEOUT, listener.accept()).await.context("no webhook")??;
        drop(stream);
        eventually(WAIT_TIMEOUT, || async {
            let requests = gitea.requests()?;
            ensure!(
                requests.iter().any(|r| r == "POST /api/v1/repos/sluice/hooked/hooks 201"),
                "{requests:?}"
            );
            Ok(())
        })
        .await
    })
}
