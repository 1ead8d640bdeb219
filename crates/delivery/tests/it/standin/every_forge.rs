//! What calls do at every stand-in, whichever forge it stands for: the rules that all forges share.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_delivery::ForgeKind;

use super::accounts::{PEOPLE, author, joe, number_of};
use super::check_outcome::CheckOutcome;
use super::checks::Obstacle;
use super::fault::CallKind;
use super::forge_api::ForgeAnswer;
use super::forge_state::ForgeState;
use super::merge_style::Style;
use super::parsed_call::{ListQuery, ParsedCall};
use super::pull::{MetadataKind, Pull, PullChange};
use super::rejection::CallRejection;
use super::reported_status::ReportedStatus;
use super::request::PullSelector;
use super::server::StandInServer;

impl Pull {
    fn add(&mut self, what: MetadataKind, names: &[String], replaces: bool) {
        let list = match what {
            MetadataKind::Label => &mut self.labels,
            MetadataKind::Reviewer => &mut self.reviewers,
            MetadataKind::Assignee => &mut self.assignees,
        };
        if replaces {
            list.clear();
        }
        for name in names {
            if !list.contains(name) {
                list.push(name.clone());
            }
        }
    }
}

impl ForgeState {
    /// Returns the commit of a branch or tag; other names unchanged.
    fn resolve(&self, name: &str) -> String {
        let known = self.names.iter().find(|(known, _)| known == name);
        known.map_or(name, |(_, commit)| commit).to_string()
    }
}

impl StandInServer {
    pub(super) fn act(&self, ask: ParsedCall) -> Result<ForgeAnswer, CallRejection<'static>> {
        let shows_merged_as_closed = matches!(ask, ParsedCall::List(_) | ParsedCall::Read(_))
            && std::mem::take(&mut self.forge_state.lock().unwrap().shows_merged_as_closed);
        if !shows_merged_as_closed {
            return self.carry_out(ask);
        }
        let pulls = self.forge_state.lock().unwrap().pulls.clone();
        self.forge_state.lock().unwrap().pulls.iter_mut().for_each(|pull| pull.merged = None);
        let done = self.carry_out(ask);
        self.forge_state.lock().unwrap().pulls = pulls;
        done
    }

    fn carry_out(&self, ask: ParsedCall) -> Result<ForgeAnswer, CallRejection<'static>> {
        let (api, status) = (&self.api, self.api.status(ask.kind()));
        let forge_state = &mut *self.forge_state.lock().unwrap();
        self.time_passes(forge_state);
        self.follow_branches(forge_state);
        let value = match ask {
            ParsedCall::Repository => self.repository(forge_state),
            ParsedCall::Facts { what, from, of } => self.facts(forge_state, what, from, of)?,
            ParsedCall::Merge { number, head, version, style, message, queue } => {
                self.before_merge(forge_state, number, head, version)?;
                return match queue {
                    true => self.queue(forge_state, number),
                    false => self.merge(forge_state, number, style, message),
                };
            }
            ParsedCall::Task(number) => self.merge_task(forge_state, number)?,
            ParsedCall::List(wanted) => self.list(forge_state, &wanted),
            ParsedCall::Between { base, head } => {
                let found = forge_state.pulls.iter().find(|p| !p.fork && p.head == head && p.base == base);
                api.pull(found.ok_or(CallRejection::NoPull)?, false)
            }
            ParsedCall::Read(number) => self.read(forge_state, number)?,
            ParsedCall::Open { title, body, head, base, draft } => {
                return self.open(forge_state, title, body, head, base, draft);
            }
            ParsedCall::Add { number, what, names, replaces } => {
                return self.add(forge_state, number, what, names, replaces);
            }
            ParsedCall::User(name) => match number_of(&name) {
                Some(id) => json!([{"id": id, "username": name}]),
                None => json!([]),
            },
            ParsedCall::Assignable => PEOPLE.iter().map(|name| json!({"login": name})).collect(),
            ParsedCall::Labels { from, size } => {
                let labels = forge_state.labels.iter().zip(1..).skip(from).take(size);
                labels.map(|(name, id)| json!({"id": id, "name": name})).collect()
            }
            ParsedCall::NewLabel(name) => {
                forge_state.labels.push(name.clone());
                return Ok((201, json!({"id": forge_state.labels.len(), "name": name})));
            }
            ParsedCall::Update { number, change } => self.update(pull(forge_state, number)?, change)?,
            ParsedCall::Close { number, version } => self.close(pull(forge_state, number)?, version)?,
            ParsedCall::Comment { number, text } => {
                pull(forge_state, number)?.comments.push(text);
                json!({"id": 1})
            }
            ParsedCall::Statuses(commit, context) => self.statuses(forge_state, &commit, &context)?,
            ParsedCall::Report(reported) => {
                let answer = self.report(forge_state, reported)?;
                if status == 204 { Value::Null } else { answer }
            }
            ParsedCall::Commit(id) => {
                let id = if api.reads_commits_by_name() { forge_state.resolve(&id) } else { id };
                // Also commits of deleted branches: forges keep the commits of change requests.
                api.commit(&self.repo.commit_of(&id).map_err(|_| CallRejection::NoCommit)?)
            }
        };
        Ok((status, value))
    }

    /// Gives the open change requests the commits that were pushed to their branches.
    fn follow_branches(&self, forge_state: &mut ForgeState) {
        for pull in forge_state.pulls.iter_mut().filter(|p| !p.fork) {
            let sha = self.repo.head(&pull.head).unwrap_or_else(|_| pull.sha.clone());
            pull.tip.clone_from(&sha);
            if !pull.open {
                continue;
            }
            pull.version += u64::from(sha != pull.sha);
            pull.behind &= sha == pull.sha;
            if sha != pull.sha {
                pull.unknown_for = pull.unknown_for.max(1);
                pull.before = std::mem::replace(&mut pull.sha, sha);
            }
        }
    }

    fn repository(&self, forge_state: &mut ForgeState) -> Value {
        if let Some(base) = forge_state.retargets_late.take() {
            forge_state.pulls.iter_mut().for_each(|pull| pull.base.clone_from(&base));
        }
        let style = forge_state.pulls.last().map_or(Style::Merge, |pull| pull.style);
        self.api.repository(style)
    }

    fn facts(
        &self,
        forge_state: &mut ForgeState,
        what: &'static str,
        from: usize,
        of: PullSelector,
    ) -> Result<Value, CallRejection<'static>> {
        if std::mem::take(&mut forge_state.pushes_after_checks) {
            let head = forge_state.pulls.last().ok_or(CallRejection::NoPull)?.head.clone();
            self.push_unreviewed(&head);
        }
        let with_head = |forge_state: &ForgeState, sha: &str| {
            let pull = forge_state.pulls.iter().find(|p| p.sha == sha).cloned();
            pull.ok_or(CallRejection::NoCommit)
        };
        let pull = match of {
            PullSelector::Number(number) => pull(forge_state, number)?.clone(),
            PullSelector::Id(sha) => with_head(forge_state, &sha)?,
            PullSelector::Head(name) => {
                Pull { sha: forge_state.resolve(&name), ..with_head(forge_state, &name)? }
            }
            PullSelector::Base => forge_state.pulls.last().ok_or(CallRejection::NoPull)?.clone(),
        };
        self.api.facts(what, &pull, from).ok_or(CallRejection::NoPull)
    }

    /// Pushes a commit that nobody reviewed to a branch, and returns the commit.
    fn push_unreviewed(&self, branch: &str) -> String {
        self.repo.commit(branch, "unreviewed", &[("other.yaml", "x: 1\n")]).unwrap()
    }

    /// Checks whether a change request may be merged, after the push that a test asked for.
    fn before_merge(
        &self,
        forge_state: &mut ForgeState,
        number: u64,
        head: Option<String>,
        version: Option<u64>,
    ) -> Result<(), CallRejection<'static>> {
        let pushes_before_merge = std::mem::take(&mut forge_state.pushes_before_merge);
        let pull = pull(forge_state, number)?;
        if pushes_before_merge {
            pull.sha = self.push_unreviewed(&pull.head);
            pull.version += 1;
        }
        self.may_merge(pull, head, version)
    }

    /// Adds a change request to the merge queue.
    fn queue(
        &self,
        forge_state: &mut ForgeState,
        number: u64,
    ) -> Result<ForgeAnswer, CallRejection<'static>> {
        let pull = pull(forge_state, number)?;
        pull.queued = true;
        let status = if self.kind == ForgeKind::GitLab { 201 } else { 200 };
        Ok((status, self.api.facts("queued", pull, 0).unwrap()))
    }

    /// Merges a change request, or starts a merge that takes a while.
    fn merge(
        &self,
        forge_state: &mut ForgeState,
        number: u64,
        style: Option<Style>,
        message: Option<String>,
    ) -> Result<ForgeAnswer, CallRejection<'static>> {
        let api = &self.api;
        let (takes, has_queue) = (forge_state.merge_takes, forge_state.has_queue);
        let pull = pull(forge_state, number)?;
        if let Some(other) = style.filter(|style| *style != pull.style) {
            return Err(CallRejection::NotMergeable(Obstacle::Style(other)));
        }
        if takes > 0 {
            pull.merging = Some((pull.style, message));
            let slow = self.kind == ForgeKind::Bitbucket;
            return Ok(match slow {
                true => (202, api.facts("slow merge", pull, 0).unwrap()),
                false => (200, api.pull(pull, false)),
            });
        }
        if has_queue {
            pull.queued = true;
            return Ok((200, api.facts("queued", pull, 0).unwrap()));
        }
        pull.land(self.kind, &self.repo, pull.style, message);
        pull.version += 1;
        Ok((api.status(CallKind::Merge), api.merged(pull)))
    }

    /// Returns the progress of a merge that takes a while; each call advances it.
    fn merge_task(&self, forge_state: &mut ForgeState, number: u64) -> Result<Value, CallRejection<'static>> {
        forge_state.merge_takes = forge_state.merge_takes.saturating_sub(1);
        let done = forge_state.merge_takes == 0;
        let pull = pull(forge_state, number)?;
        if done && let Some((style, message)) = pull.merging.take() {
            pull.land(self.kind, &self.repo, style, message);
        }
        Ok(self.api.facts("task", pull, 0).unwrap())
    }

    fn read(&self, forge_state: &mut ForgeState, number: u64) -> Result<Value, CallRejection<'static>> {
        let shown = self.api.pull(pull(forge_state, number)?, false);
        // Somebody is faster than the next call.
        if let Some(base) = forge_state.retargets.take() {
            let pull = pull(forge_state, number)?;
            (pull.base, pull.version) = (base, pull.version + 1);
        }
        Ok(shown)
    }

    fn add(
        &self,
        forge_state: &mut ForgeState,
        number: u64,
        what: MetadataKind,
        names: Vec<String>,
        replaces: bool,
    ) -> Result<ForgeAnswer, CallRejection<'static>> {
        let mut names = self.known(what, names)?;
        if what == MetadataKind::Label && matches!(self.kind, ForgeKind::Gitea | ForgeKind::Forgejo) {
            let label = |id: &String| forge_state.labels.get(id.parse::<usize>().unwrap() - 1).cloned();
            names = names.iter().map(|id| label(id).unwrap()).collect();
        }
        let pull = pull(forge_state, number)?;
        pull.add(what, &names, replaces);
        Ok((self.api.added_status(what), self.api.added(pull, what, &names)))
    }

    fn update(&self, pull: &mut Pull, change: PullChange) -> Result<Value, CallRejection<'static>> {
        self.may_change(pull, change.version)?;
        if change.body.as_ref().is_some_and(|body| body.chars().count() > self.api.longest_body()) {
            return Err(CallRejection::Bad("the description is too long"));
        }
        if change.title.as_ref().is_some_and(|title| title.chars().count() > self.api.longest_title()) {
            return Err(CallRejection::Bad("the title is too long"));
        }
        if let Some(reviewers) = &change.reviewers {
            self.known(MetadataKind::Reviewer, reviewers.clone())?;
        }
        pull.title = change.title.unwrap_or(pull.title.clone());
        pull.body = change.body.unwrap_or(pull.body.clone());
        pull.base = change.base.unwrap_or(pull.base.clone());
        pull.reviewers = change.reviewers.unwrap_or(pull.reviewers.clone());
        pull.version += 1;
        Ok(self.api.pull(pull, false))
    }

    fn close(&self, pull: &mut Pull, version: Option<u64>) -> Result<Value, CallRejection<'static>> {
        self.may_change(pull, version)?;
        (pull.open, pull.version) = (false, pull.version + 1);
        Ok(self.api.pull(pull, false))
    }

    /// Checks whether a change request may be updated or closed, by a caller who has seen this version.
    fn may_change(&self, pull: &Pull, version: Option<u64>) -> Result<(), CallRejection<'static>> {
        if version.is_some_and(|version| version != pull.version) {
            return Err(CallRejection::OutOfDate);
        }
        match pull.open || self.api.can_update_closed() {
            true => Ok(()),
            false => Err(CallRejection::NotOpen),
        }
    }

    /// Returns the newest status of each pipeline that has this name.
    fn statuses(
        &self,
        forge_state: &ForgeState,
        commit: &str,
        context: &str,
    ) -> Result<Value, CallRejection<'static>> {
        let of_it = forge_state.statuses.iter().filter(|s| s.commit == commit && s.context == context);
        let newest: BTreeMap<_, _> = of_it.map(|status| (status.pipeline, status)).collect();
        self.api.statuses(&newest.into_values().collect::<Vec<_>>()).ok_or(CallRejection::NoPath)
    }

    fn report(
        &self,
        forge_state: &mut ForgeState,
        mut status: ReportedStatus,
    ) -> Result<Value, CallRejection<'static>> {
        self.repo.commit_of(&status.commit).map_err(|_| CallRejection::NoCommit)?;
        let pipeline = status.pipeline.unwrap_or(forge_state.pipeline);
        let has_pipelines = self.api.statuses(&[]).is_some();
        status.pipeline = has_pipelines.then_some(pipeline);
        let before = forge_state.status(&status).map(|before| before.is);
        if has_pipelines && (before, status.is) == (Some(CheckOutcome::Pending), CheckOutcome::Pending) {
            return Err(CallRejection::NoTransition);
        }
        let answer = self.api.reported(&status, forge_state.statuses.len() + 1);
        forge_state.statuses.push(status);
        Ok(answer)
    }

    /// Applies what the forge does between two calls.
    fn time_passes(&self, forge_state: &mut ForgeState) {
        for pull in &mut forge_state.pulls {
            pull.unknown_for = pull.unknown_for.saturating_sub(1);
        }
        // For Bitbucket Cloud, the calls for the merge task do this.
        if self.kind == ForgeKind::Bitbucket || forge_state.merge_takes == 0 {
            return;
        }
        let Some(pull) = forge_state.pulls.iter_mut().find(|pull| pull.merging.is_some()) else { return };
        forge_state.merge_takes -= 1;
        if forge_state.merge_takes == 0
            && let Some((style, message)) = pull.merging.take()
        {
            pull.land(self.kind, &self.repo, style, message);
        }
    }

    /// Checks whether a change request may be merged.
    fn may_merge(
        &self,
        pull: &Pull,
        head: Option<String>,
        version: Option<u64>,
    ) -> Result<(), CallRejection<'static>> {
        if !pull.open {
            return Err(self.api.ended(pull));
        }
        // Other forges compute the mergeability at the call.
        let later = matches!(
            self.kind,
            ForgeKind::GitHub | ForgeKind::GitLab | ForgeKind::Gitea | ForgeKind::Forgejo
        );
        let unknown = (later && !pull.is_known()).then_some(Obstacle::Unknown);
        let obstacle = unknown.or_else(|| pull.obstacle()).map(CallRejection::NotMergeable);
        let moved = head.is_some_and(|head| head != pull.sha).then_some(CallRejection::HeadMoved);
        let outdated =
            version.is_some_and(|version| version != pull.version).then_some(CallRejection::OutOfDate);
        let first = match self.api.looks_at_the_head_first() {
            true => moved.or(outdated).or(obstacle),
            false => obstacle.or(moved).or(outdated),
        };
        first.map_or(Ok(()), Err)
    }

    /// Returns the names of users who may be added.
    fn known(&self, what: MetadataKind, names: Vec<String>) -> Result<Vec<String>, CallRejection<'static>> {
        let mut known = Vec::new();
        for name in names {
            let author = name == author(self.kind);
            // GitLab accepts the author as a reviewer, and Gitea as an assignee.
            let is_gitea = matches!(self.kind, ForgeKind::Gitea | ForgeKind::Forgejo);
            let author_may = self.kind == ForgeKind::GitLab || (is_gitea && what == MetadataKind::Assignee);
            let may = name == "jane" || name == joe(self.kind) || (author && author_may);
            if what == MetadataKind::Label || may {
                known.push(name);
            } else if let Some(why) = self.api.user_rejection(what, author) {
                return Err(why);
            }
        }
        Ok(known)
    }

    fn list(&self, forge_state: &ForgeState, wanted: &ListQuery) -> Value {
        // GitHub's filter is the owner of the branch, which can also own forks (github.com/cli/cli/issues/14512).
        let is_own = |p: &Pull| !p.fork || (self.kind == ForgeKind::GitHub && p.same_owner);
        let fits = |p: &&Pull| {
            wanted.head.as_ref().is_none_or(|head| *head == p.head)
                && (p.open || !wanted.open)
                && (is_own(p) || !wanted.own)
        };
        let all: Vec<&Pull> = forge_state.pulls.iter().rev().filter(fits).collect();
        let page = all.iter().skip(wanted.from).take(wanted.size);
        let next = Some(wanted.from + wanted.size).filter(|next| *next < all.len());
        self.api.list(page.map(|p| self.api.pull(p, true)).collect(), wanted.from, next)
    }

    fn open(
        &self,
        forge_state: &mut ForgeState,
        title: String,
        body: String,
        head: String,
        base: String,
        draft: bool,
    ) -> Result<ForgeAnswer, CallRejection<'static>> {
        let api = &self.api;
        let same = |p: &&Pull| p.open && !p.fork && p.head == head && p.base == base;
        if let Some(there) = forge_state.pulls.iter().find(same) {
            return Ok(match api.returns_the_first() {
                true => (api.status(CallKind::Open), api.pull(there, false)),
                false => api.error_answer(CallRejection::Exists(there)),
            });
        }
        if body.chars().count() > api.longest_body() || title.chars().count() > api.longest_title() {
            return Err(CallRejection::Bad("the title or the description is too long"));
        }
        let sha = self.repo.head(&head).map_err(|_| CallRejection::NoBranch)?;
        let number = forge_state.pulls.len() as u64 + 1;
        let pull = Pull { draft, ..Pull::new(number, title, body, head, base, sha) };
        forge_state.pulls.push(pull.clone());
        Ok((api.status(CallKind::Open), api.pull(&pull, false)))
    }
}

fn pull(forge_state: &mut ForgeState, number: u64) -> Result<&mut Pull, CallRejection<'static>> {
    let index = usize::try_from(number).unwrap().checked_sub(1).ok_or(CallRejection::NoPull)?;
    forge_state.pulls.get_mut(index).ok_or(CallRejection::NoPull)
}
