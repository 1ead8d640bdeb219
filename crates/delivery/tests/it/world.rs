//! A forge with a repository, whichever: the same steps run over each.

use sluice_delivery::{Credentials, ForgeKind, Order, Strategy};
use sluice_testkit::{ForgeRepo, Gitea, Repo, shared_gitea};

use crate::fixture::{self, FILE, git_user, yaml};
use crate::standin::StandIn;

pub enum World {
    StandIn(StandIn),
    Gitea(&'static Gitea, ForgeRepo),
}

/// A change request as tests look at it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub open: bool,
    pub merged: bool,
}

impl World {
    /// The stand-in for a forge.
    pub async fn of(forge: ForgeKind) -> World {
        World::StandIn(StandIn::start(forge, &[(FILE, &yaml("6.1.5"))]).await)
    }

    pub async fn github() -> World {
        World::of(ForgeKind::GitHub).await
    }

    pub async fn gitea(name: &str) -> World {
        let gitea = shared_gitea().await.unwrap();
        let repo = gitea.create_repo(name, &[(FILE, &yaml("6.1.5"))]).await.unwrap();
        // Gitea takes a new repository for an empty one until it has seen its first push.
        while repo.pulls("all").await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        World::Gitea(gitea, repo)
    }

    pub fn repo(&self) -> &Repo {
        match self {
            World::StandIn(standin) => &standin.repo,
            World::Gitea(_, repo) => repo,
        }
    }

    pub fn standin(&self) -> &StandIn {
        match self {
            World::StandIn(standin) => standin,
            World::Gitea(..) => panic!("this is the real one"),
        }
    }

    /// So many calls look, before and after one is opened, whether it is the only one: where the forge
    /// does not promise it.
    pub fn reads_to_open(&self) -> u64 {
        if matches!(self, World::StandIn(s) if s.kind == ForgeKind::Bitbucket) { 2 } else { 0 }
    }

    pub fn order(&self, version: &str) -> Order {
        let (forge, url, credentials) = match self {
            World::StandIn(s) => (s.kind, s.url.clone(), git_user()),
            World::Gitea(gitea, repo) => {
                let token = Some(gitea.token().to_string());
                (ForgeKind::Gitea, repo.url().to_string(), Credentials { token, ..Credentials::default() })
            }
        };
        let strategy = Strategy::PullRequest { forge, url, base: "main".into() };
        Order { credentials, ..fixture::order(strategy, version) }
    }

    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        match self {
            World::StandIn(s) => s.repo.commit("main", message, files).unwrap(),
            World::Gitea(_, repo) => repo.commit("main", message, files).unwrap(),
        }
    }

    pub async fn pulls(&self) -> Vec<Seen> {
        match self {
            World::StandIn(s) => {
                let seen = |p: crate::standin::Pull| Seen {
                    number: p.number,
                    title: p.title,
                    body: p.body,
                    open: p.open,
                    merged: p.merged.is_some(),
                };
                s.pulls().into_iter().map(seen).collect()
            }
            World::Gitea(_, repo) => {
                let seen = |p: sluice_testkit::Pull| Seen {
                    number: p.number,
                    title: p.title,
                    body: p.body,
                    open: p.state == "open",
                    merged: p.merged,
                };
                let mut all: Vec<Seen> = repo.pulls("all").await.unwrap().into_iter().map(seen).collect();
                all.sort_by_key(|p| p.number);
                all
            }
        }
    }

    pub async fn merge(&self, number: u64) {
        match self {
            World::StandIn(s) => s.merge(number),
            World::Gitea(_, repo) => repo.merge(number).await.unwrap(),
        }
    }

    pub async fn close(&self, number: u64) {
        match self {
            World::StandIn(s) => s.close(number),
            World::Gitea(_, repo) => repo.close(number).await.unwrap(),
        }
    }

    pub async fn set_body(&self, number: u64, body: &str) {
        match self {
            World::StandIn(s) => s.change(number, |pull| pull.body = body.into()),
            World::Gitea(_, repo) => repo.edit(number, serde_json::json!({"body": body})).await.unwrap(),
        }
    }

    pub async fn comments(&self, number: u64) -> Vec<String> {
        match self {
            World::StandIn(s) => s.pulls()[number as usize - 1].comments.clone(),
            World::Gitea(_, repo) => repo.comments(number).await.unwrap(),
        }
    }
}
