//! One fixture for all forges: the same steps run with a stand-in or with real Gitea.

use futures::future::join_all;
use sluice_delivery::{Credentials, DeliveryStrategy, ForgeKind, Order, Settings};
use sluice_testkit::fault_injection::{Fault, FaultPlan, FaultProxy};
use sluice_testkit::{ForgeRepo, Gitea, Repo, shared_gitea};

use crate::fixture::{self, FILE, git_user, yaml};
use crate::standin::{CheckOutcome, StandIn, Style};

/// Runs a test at all forges, side by side: the tests wait more than they compute.
pub async fn everywhere(test: impl AsyncFn(ForgeFixture)) {
    join_all(ForgeKind::ALL.map(async |forge| test(ForgeFixture::of(forge).await).await)).await;
}

pub enum ForgeFixture {
    StandIn(StandIn),
    Gitea(RealGitea),
}

/// A repository at real Gitea. If a test loses answers, there is a fault proxy in front of Gitea.
pub struct RealGitea {
    pub gitea: &'static Gitea,
    pub repo: ForgeRepo,
    fault_proxy: Option<FaultProxy>,
}

/// The parts of a change request that tests check.
#[derive(Clone, Debug)]
pub struct ShownChangeRequest {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub open: bool,
    pub merged: bool,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub assignees: Vec<String>,
    pub draft: bool,
}

/// Returns the name of a merge style at Gitea.
fn gitea_style(style: Style) -> &'static str {
    match style {
        Style::Merge => "merge",
        Style::Squash => "squash",
        Style::Rebase => "rebase",
    }
}

impl RealGitea {
    fn fault_proxy(&self) -> &FaultProxy {
        self.fault_proxy.as_ref().expect("a fault proxy")
    }
}

impl ForgeFixture {
    /// Returns a fixture with the stand-in for a forge.
    pub async fn of(forge: ForgeKind) -> ForgeFixture {
        ForgeFixture::StandIn(StandIn::start(forge, &[(FILE, &yaml("6.1.5"))]).await)
    }

    pub async fn github() -> ForgeFixture {
        ForgeFixture::of(ForgeKind::GitHub).await
    }

    pub async fn gitea(name: &str) -> ForgeFixture {
        let gitea = shared_gitea().await.unwrap();
        let repo = gitea.create_repo(name, &[(FILE, &yaml("6.1.5"))]).await.unwrap();
        // Gitea treats a new repository as empty until Gitea has processed the first push.
        while repo.pulls("all").await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        ForgeFixture::Gitea(RealGitea { gitea, repo, fault_proxy: None })
    }

    /// Returns a token of real Gitea that has only these scopes.
    pub async fn token_for(&self, name: &str, scopes: &[&str]) -> Credentials {
        let ForgeFixture::Gitea(RealGitea { gitea, .. }) = self else { panic!("only Gitea has scopes") };
        let token = gitea.token_for(name, scopes).await.unwrap();
        Credentials { token: Some(token), ..Credentials::default() }
    }

    /// Returns a fixture with real Gitea behind a fault proxy, which [`ForgeFixture::lose`] needs.
    pub async fn gitea_behind_a_fault_proxy(name: &str) -> ForgeFixture {
        let ForgeFixture::Gitea(real) = ForgeFixture::gitea(name).await else { unreachable!() };
        let fault_proxy = FaultProxy::in_front_of_url(real.gitea.url()).unwrap();
        ForgeFixture::Gitea(RealGitea { fault_proxy: Some(fault_proxy), ..real })
    }

    /// Loses the answer to one call. `call` is the number of the call, counted from the next call that changes
    /// something.
    pub fn lose(&self, call: usize) {
        match self {
            ForgeFixture::StandIn(s) => s.forge_state(|forge_state| forge_state.faults.lost_answer = call),
            ForgeFixture::Gitea(real) => {
                drop(real.fault_proxy().set_plan(FaultPlan::Change { call, fault: Fault::Lost }))
            }
        }
    }

    /// Whether an answer was lost.
    pub fn has_lost(&self) -> bool {
        match self {
            ForgeFixture::StandIn(s) => s.forge_state(|forge_state| forge_state.faults.lost_answer == 0),
            ForgeFixture::Gitea(real) => real.fault_proxy().faults() > 0,
        }
    }

    pub fn repo(&self) -> &Repo {
        match self {
            ForgeFixture::StandIn(standin) => &standin.repo,
            ForgeFixture::Gitea(RealGitea { repo, .. }) => repo,
        }
    }

    pub fn standin(&self) -> &StandIn {
        match self {
            ForgeFixture::StandIn(standin) => standin,
            ForgeFixture::Gitea(..) => panic!("this fixture has real Gitea"),
        }
    }

    /// Calls `act` if the fixture has a stand-in.
    pub fn standin_only(&self, act: impl FnOnce(&StandIn)) {
        if let ForgeFixture::StandIn(standin) = self {
            act(standin);
        }
    }

    /// The number of calls before and after an opening that check for other open change requests. Only some forges need
    /// such calls.
    pub fn reads_to_open(&self) -> u64 {
        if matches!(self, ForgeFixture::StandIn(s) if s.kind == ForgeKind::Bitbucket) { 1 } else { 0 }
    }

    pub fn order(&self, version: &str) -> Order {
        let (forge, url, credentials) = match self {
            ForgeFixture::StandIn(s) => (s.kind, s.url.clone(), git_user()),
            ForgeFixture::Gitea(RealGitea { gitea, repo, fault_proxy }) => {
                let token = Some(gitea.token().to_string());
                let url = match fault_proxy {
                    Some(fault_proxy) => repo.url().replace(gitea.url(), &fault_proxy.url()),
                    None => repo.url().to_string(),
                };
                (ForgeKind::Gitea, url, Credentials { token, ..Credentials::default() })
            }
        };
        let strategy =
            DeliveryStrategy::PullRequest { forge, url, base: "main".into(), settings: Box::default() };
        Order { credentials, ..fixture::order(strategy, version) }
    }

    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        match self {
            ForgeFixture::StandIn(s) => s.repo.commit("main", message, files).unwrap(),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => repo.commit("main", message, files).unwrap(),
        }
    }

    pub async fn pulls(&self) -> Vec<ShownChangeRequest> {
        match self {
            ForgeFixture::StandIn(s) => {
                let seen = |p: crate::standin::Pull| ShownChangeRequest {
                    number: p.number,
                    body: p.body,
                    open: p.open,
                    merged: p.merged.is_some(),
                    draft: p.draft || ["Draft: ", "WIP: "].iter().any(|d| p.title.starts_with(d)),
                    title: p.title,
                    labels: p.labels,
                    reviewers: p.reviewers,
                    assignees: p.assignees,
                };
                s.pulls().into_iter().map(seen).collect()
            }
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let seen = |p: sluice_testkit::GiteaPull| ShownChangeRequest {
                    number: p.number,
                    body: p.body,
                    open: p.state == "open",
                    merged: p.merged,
                    draft: p.title.starts_with("WIP: "),
                    title: p.title,
                    labels: p.labels.into_iter().map(|l| l.name).collect(),
                    reviewers: p.requested_reviewers.into_iter().flatten().map(|u| u.login).collect(),
                    assignees: p.assignees.into_iter().flatten().map(|u| u.login).collect(),
                };
                let mut all: Vec<ShownChangeRequest> =
                    repo.pulls("all").await.unwrap().into_iter().map(seen).collect();
                all.sort_by_key(|p| p.number);
                all
            }
        }
    }

    /// Deletes a branch of real Gitea as the user of the token.
    pub async fn delete_branch(&self, branch: &str) {
        let ForgeFixture::Gitea(RealGitea { repo, .. }) = self else { panic!("only Gitea is asked to") };
        repo.api("DELETE", &format!("branches/{branch}"), serde_json::json!({})).await.unwrap();
    }

    /// Deletes a branch of real Gitea as a person other than the user of the token.
    pub async fn delete_branch_as_other(&self, branch: &str) {
        let ForgeFixture::Gitea(RealGitea { repo, gitea, .. }) = self else {
            panic!("only Gitea is asked to")
        };
        gitea.create_user("ada").await.unwrap();
        repo.add_collaborator("ada").await.unwrap();
        repo.delete_branch_as("ada", branch).await.unwrap();
    }

    /// Creates a branch of real Gitea from a commit.
    pub async fn create_branch(&self, branch: &str, commit: &str) {
        let ForgeFixture::Gitea(RealGitea { repo, .. }) = self else { panic!("only Gitea is asked to") };
        let wanted = serde_json::json!({"new_branch_name": branch, "old_ref_name": commit});
        repo.api("POST", "branches", wanted).await.unwrap();
    }

    /// Waits until the forge has processed that a branch was deleted so many times.
    pub async fn until_deleted(&self, branch: &str, times: usize) {
        if let ForgeFixture::Gitea(RealGitea { repo, .. }) = self {
            repo.until_deleted(branch, times).await.unwrap();
        }
    }

    pub async fn merge(&self, number: u64) {
        self.merge_by(number, Style::Merge).await;
    }

    /// Merges a change request at its current head as a person, with the default message of the forge.
    pub async fn merge_by(&self, number: u64, style: Style) {
        match self {
            ForgeFixture::StandIn(s) => s.merge(number, style),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                repo.until_pushed(number).await.unwrap();
                repo.merge_by(number, gitea_style(style)).await.unwrap();
            }
        }
    }

    /// Allows only this merge style from now on.
    pub async fn allow_only(&self, number: u64, style: Style) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| pull.style = style),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let settings = serde_json::json!({
                    "has_pull_requests": true, "default_merge_style": gitea_style(style),
                    "allow_merge_commits": style == Style::Merge, "allow_squash_merge": style == Style::Squash,
                    "allow_rebase": style == Style::Rebase, "allow_rebase_explicit": false,
                    "allow_fast_forward_only_merge": false,
                });
                repo.api("PATCH", "", settings).await.unwrap();
            }
        }
    }

    pub async fn close(&self, number: u64) {
        match self {
            ForgeFixture::StandIn(s) => s.close(number),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => repo.close(number).await.unwrap(),
        }
    }

    pub async fn set_body(&self, number: u64, body: &str) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| pull.body = body.into()),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                repo.edit(number, serde_json::json!({"body": body})).await.unwrap()
            }
        }
    }

    /// Returns an order for a change request, after a change of its settings.
    pub fn order_with(&self, version: &str, change: impl FnOnce(&mut Settings)) -> Order {
        let mut order = self.order(version);
        let DeliveryStrategy::PullRequest { settings, .. } = &mut order.strategy else { unreachable!() };
        change(settings);
        order
    }

    pub fn kind(&self) -> ForgeKind {
        match self {
            ForgeFixture::StandIn(s) => s.kind,
            ForgeFixture::Gitea(..) => ForgeKind::Gitea,
        }
    }

    /// Returns the name of a person who may review and be assigned.
    pub async fn joe(&self) -> String {
        if let ForgeFixture::Gitea(RealGitea { gitea, repo, .. }) = self {
            gitea.create_user("joe").await.unwrap();
            repo.add_collaborator("joe").await.unwrap();
        }
        crate::standin::joe(self.kind()).into()
    }

    /// Returns the name of the owner of the token.
    pub fn author(&self) -> String {
        crate::standin::author(self.kind()).into()
    }

    /// Returns whether the forge lacks labels, and whether it lacks assignees.
    pub fn lacks(&self) -> (bool, bool) {
        let bitbucket = matches!(self.kind(), ForgeKind::Bitbucket | ForgeKind::BitbucketServer);
        (bitbucket, bitbucket || self.kind() == ForgeKind::AzureDevOps)
    }

    /// Adds a label as a person.
    pub async fn add_label(&self, number: u64, label: &str) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| pull.labels.push(label.into())),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let body = serde_json::json!({"name": label, "color": "#123456"});
                let id = repo.api("POST", "labels", body).await.unwrap()["id"].clone();
                let body = serde_json::json!({"labels": [id]});
                repo.api("POST", &format!("issues/{number}/labels"), body).await.unwrap();
            }
        }
    }

    /// Makes the base require these checks and this number of approvals.
    pub async fn protect(&self, number: u64, requires: &[&str], approvals: usize) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| {
                (pull.requires, pull.needs) = (requires.iter().map(|r| r.to_string()).collect(), approvals);
            }),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let rule = serde_json::json!({
                    "rule_name": "main", "enable_push": true, "required_approvals": approvals,
                    "enable_status_check": !requires.is_empty(), "status_check_contexts": requires,
                });
                repo.api("POST", "branch_protections", rule).await.unwrap();
            }
        }
    }

    /// Makes the forge merge only heads on top of the base, which has newer commits.
    pub async fn fall_behind(&self, number: u64) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| pull.behind = true),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let rule = serde_json::json!({"rule_name": "main", "enable_push": true, "block_on_outdated_branch": true});
                repo.api("POST", "branch_protections", rule).await.unwrap();
                repo.until_behind(number).await.unwrap();
            }
        }
    }

    /// Pushes a tag whose name is the id of one commit, and which points to another commit.
    pub fn name_like(&self, commit: &str, at: &str) {
        match self {
            ForgeFixture::StandIn(s) => s.forge_state(|b| b.names.push((commit.into(), at.into()))),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let target = format!("{at}:refs/tags/{commit}");
                fixture::git(repo.folder(), &["push", "--quiet", &repo.url_with_token(), &target], "");
            }
        }
    }

    /// Reports a check on a commit that is not the head.
    pub async fn check_on(&self, commit: &str, name: &str, is: CheckOutcome) {
        match self {
            ForgeFixture::StandIn(s) => s.forge_state(|b| {
                b.pulls.iter_mut().for_each(|pull| pull.checks.insert(0, (name.into(), is, commit.into())));
            }),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let state = if is == CheckOutcome::Green { "success" } else { "failure" };
                let status = serde_json::json!({"state": state, "context": name});
                repo.api("POST", &format!("statuses/{commit}"), status).await.unwrap();
            }
        }
    }

    /// Reports a check on the current head.
    pub async fn check(&self, number: u64, name: &str, is: CheckOutcome) {
        match self {
            ForgeFixture::StandIn(s) => {
                let head = s.repo.head(&s.pulls()[number as usize - 1].head).unwrap();
                s.change(number, |pull| pull.checks.push((name.into(), is, head)));
            }
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let state = match is {
                    CheckOutcome::Green => "success",
                    CheckOutcome::Pending => "pending",
                    CheckOutcome::Failed => "failure",
                };
                report_at_gitea(repo, number, name, state).await;
            }
        }
    }

    /// Reports a check with a `warning` on the current head, at real Gitea.
    pub async fn warn(&self, number: u64, name: &str) {
        let ForgeFixture::Gitea(RealGitea { repo, .. }) = self else { panic!("only Gitea is asked to") };
        report_at_gitea(repo, number, name, "warning").await;
    }

    /// Approves the current head as another person.
    pub async fn approve(&self, number: u64) {
        match self {
            ForgeFixture::StandIn(s) => {
                let head = s.repo.head(&s.pulls()[number as usize - 1].head).unwrap();
                s.change(number, |pull| pull.approvals.push(head));
            }
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                self.joe().await;
                repo.until_pushed(number).await.unwrap();
                repo.review(number, "joe", "APPROVED").await.unwrap();
            }
        }
    }

    /// Pushes a commit to a branch as another person, and returns its id.
    pub fn push(&self, branch: &str) -> String {
        self.push_files(branch, &[("unreviewed.yaml", "x: 1\n")])
    }

    pub fn push_files(&self, branch: &str, files: &[(&str, &str)]) -> String {
        match self {
            ForgeFixture::StandIn(s) => s.repo.commit(branch, "by hand", files).unwrap(),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => repo.commit(branch, "by hand", files).unwrap(),
        }
    }

    /// Moves a branch to a commit that is in the repository's folder.
    pub async fn set_branch(&self, branch: &str, commit: &str) {
        match self {
            ForgeFixture::StandIn(s) => {
                fixture::git(s.repo.folder(), &["update-ref", &format!("refs/heads/{branch}"), commit], "");
            }
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let target = format!("{commit}:refs/heads/{branch}");
                fixture::git(
                    repo.folder(),
                    &["push", "--quiet", "--force", &repo.url_with_token(), &target],
                    "",
                );
                repo.until_indexed(branch).await.unwrap();
            }
        }
    }

    /// Installs a hook that moves a branch to another commit, once, directly after the next push to the branch.
    pub fn move_after_push(&self, branch: &str, commit: &str) {
        let (file, act) = match self {
            ForgeFixture::StandIn(_) => {
                ("post-receive", format!("git update-ref refs/heads/{branch} {commit}"))
            }
            // This hook runs after Gitea's own hook, which reports the push to Gitea.
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let (url, target) = (repo.url_with_token(), format!("{commit}:refs/heads/{branch}"));
                let git = "env -i PATH=\"$PATH\" git push --quiet --force";
                ("post-receive.d/moves", format!("{git} {url} {target} >moved.log 2>&1"))
            }
        };
        let script = format!(
            "grep -q refs/heads/{branch} || exit 0\n[ -e moved-{commit} ] && exit 0\ntouch moved-{commit}\n{act}"
        );
        self.repo().hook(file, &script).unwrap();
    }

    /// Changes the base of a change request as a person.
    pub async fn retarget(&self, number: u64, base: &str) {
        match self {
            ForgeFixture::StandIn(s) => s.change(number, |pull| pull.base = base.into()),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                repo.until_indexed(base).await.unwrap();
                repo.edit(number, serde_json::json!({"base": base})).await.unwrap();
            }
        }
    }

    /// As a person, marks a draft as ready.
    pub async fn mark_ready(&self, number: u64) {
        let ready = |title: &str| title.replacen("Draft: ", "", 1).replacen("WIP: ", "", 1);
        match self {
            ForgeFixture::StandIn(s) => {
                s.change(number, |pull| (pull.title, pull.draft) = (ready(&pull.title), false));
            }
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let title = repo.pull(number).await.unwrap().title;
                repo.edit(number, serde_json::json!({"title": ready(&title)})).await.unwrap();
            }
        }
    }

    /// Returns the statuses of a commit in the order in which they were reported: name, state and description.
    pub async fn statuses(&self, commit: &str) -> Vec<(String, CheckOutcome, String)> {
        match self {
            ForgeFixture::StandIn(s) => s.forge_state(|forge_state| {
                let of_it = forge_state.statuses.iter().filter(|status| status.commit == commit);
                of_it.map(|s| (s.context.clone(), s.is, s.description.clone())).collect()
            }),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => {
                let path = format!("statuses/{commit}?sort=leastindex");
                let all = repo.api("GET", &path, serde_json::Value::Null).await.unwrap();
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
                let is = |word: &str| match word {
                    "success" => CheckOutcome::Green,
                    "pending" => CheckOutcome::Pending,
                    _ => CheckOutcome::Failed,
                };
                let one = |s: &serde_json::Value| {
                    (text(&s["context"]), is(&text(&s["status"])), text(&s["description"]))
                };
                // Gitea returns the newest status first.
                all.as_array().into_iter().flatten().rev().map(one).collect()
            }
        }
    }

    pub async fn comments(&self, number: u64) -> Vec<String> {
        match self {
            ForgeFixture::StandIn(s) => s.pulls()[number as usize - 1].comments.clone(),
            ForgeFixture::Gitea(RealGitea { repo, .. }) => repo.comments(number).await.unwrap(),
        }
    }
}

/// Reports a check on the current head of a pull request of real Gitea, in a state of Gitea.
async fn report_at_gitea(repo: &ForgeRepo, number: u64, name: &str, state: &str) {
    let head = repo.pull(number).await.unwrap().head.sha;
    let url = format!("https://ci.example.com/{name}");
    let status = serde_json::json!({"state": state, "context": name, "target_url": url});
    repo.api("POST", &format!("statuses/{head}"), status).await.unwrap();
}
