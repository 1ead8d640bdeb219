//! Opens the change request of an environment or target, or updates the open one: one head branch with one commit on
//! top of the base branch, and never a second change request from it.

use std::time::{Duration, Instant};

use super::body;
use super::body_mark;
use super::job::{ChangeRequestJob, ChangeRequestTarget};
use super::labels_and_reviewers;
use crate::edit::edit;
use crate::error::{DeliveryError, DeliveryResult};
use crate::fault;
use crate::forge::{ChangeRequestState, ForgeChangeRequest, ForgeError, ForgeResult, ListFilter, Proposal};
use crate::git::{GitError, LockedRepository, PushMode, Pushed};
use crate::order::Order;
use crate::outcome::{ChangeRequest, Delivered, OutdatedReason};
use crate::resources::{BoxedDelivery, Resources, is_final};
use crate::template::TemplateError;

/// How often a commit to a head branch is made again because others changed it. The branch is Sluice's own, so others are
/// replicas of it that end soon.
const MAX_PUSHES: u32 = 5;
/// How often a change request is looked for, whose branch another process may have pushed just now.
const MAX_SEARCHES: u32 = 4;
/// The pause between two of these searches.
const SEARCH_PAUSE: Duration = Duration::from_millis(700);

/// How many change requests of a promotion its forge may close with an earlier branch. Each further one counts as rejected, so
/// that users who delete branches do not have Sluice open one after another.
const MAX_CLOSED_BY_FORGE: u32 = 2;

/// How often Sluice tries to open a change request, while another user opens one from the same branch.
const MAX_OPENINGS: u32 = 3;
/// How often adding labels, reviewers and assignees is tried.
const MAX_LABELLINGS: u32 = 3;
/// How often a change request is searched whose opening was not answered.
const UNANSWERED_SEARCHES: u32 = 3;

/// What people read in a change request that another user opened.
const OPENED_BY_ANOTHER: &str = "Sluice closes this change request, because another user than Sluice's opened it, and could reject the \
                                 promotion by closing it. Sluice opens its own from the same branch.";

/// The note about a change request whose promotion was stopped while Sluice added its labels.
const NOT_COMPLETED: &str = "its labels, reviewers and assignees were not added, because the promotion was stopped or its pipeline was edited";

/// What the head branch holds.
enum HeadState {
    /// The promotion's commit. If the branch existed before this push, another process may be about to open the
    /// change request.
    Ready { commit: String, existed: bool, found: bool, proposal: Proposal },
    /// Nothing: the base branch has every value already.
    NotNeeded { base: String, existed: bool },
}

/// Opens or updates the change request of an order. The state of this work is on the heap: three deliveries at the same
/// time would not fit on the stack of a thread.
pub(crate) fn deliver<'a>(
    resources: &'a Resources,
    order: &'a Order,
    target: ChangeRequestTarget<'a>,
    began: Instant,
) -> BoxedDelivery<'a, Delivered> {
    Box::pin(async move {
        target.settings.check()?;
        ChangeRequestJob::new(resources, order, target)?.propose(began).await
    })
}

impl ChangeRequestJob<'_> {
    async fn propose(&self, began: Instant) -> DeliveryResult<Delivered> {
        if self.branch == self.target.base {
            let what =
                format!("it gives {}, which is the base branch; begin it with another word", self.branch);
            return Err(TemplateError::new("branch", what).into());
        }
        if self.order.retried
            && let Some(done) = self.find_earlier().await?
        {
            let is_rejected = matches!(done, Delivered::Rejected { .. });
            return match is_rejected {
                // This process may have closed it below, and have ended then.
                true => Ok(self.already_set(began).await?.unwrap_or(done)),
                false => Ok(done),
            };
        }
        let marked = self.find_marked_by_another().await?;
        match self.push_head(began, marked.as_deref()).await? {
            HeadState::Ready { commit, existed, found, proposal } => {
                let searches = match (found, existed || self.order.retried) {
                    (true, _) => MAX_SEARCHES,
                    // No open change request comes from a branch that did not exist.
                    (false, existed) => u32::from(existed),
                };
                self.open_or_update(commit, &proposal, (found, searches)).await
            }
            HeadState::NotNeeded { base: commit, existed } => {
                // The controller closes those that it has recorded as open, and notes that they are not rejected.
                if existed
                    && let Some(open) = self.forge.find_open(&self.branch, self.target.base).await?
                    && !self.order.recorded_open.contains(&open.request.url)
                    && !self.is_marked_by_another(&open)
                {
                    self.order.fencing_token.check()?;
                    let reason = "The base branch has these values already.";
                    self.close(open.request.number, reason).await?;
                }
                Ok(Delivered::AlreadySet { commit })
            }
        }
    }

    /// The result if the base branch has every value already. On the heap, like the whole delivery.
    fn already_set(&self, began: Instant) -> BoxedDelivery<'_, Option<Delivered>> {
        Box::pin(async move {
            let (order, base) = (self.order, self.target.base);
            let mut repository = self.lock_with_head().await?;
            let commit = repository.tips(base, began).await?.base.id;
            let edit = edit(order, &mut repository, (base, &commit)).await?;
            Ok(edit.files.is_empty().then_some(Delivered::AlreadySet { commit }))
        })
    }

    async fn open_or_update(
        &self,
        commit: String,
        proposal: &Proposal,
        (is_found, searches): (bool, u32),
    ) -> DeliveryResult<Delivered> {
        let found = match self.search_open(proposal, searches).await? {
            Some(open) if self.is_by_another_user(&open).await? => {
                self.close_of_another(&open).await?;
                self.open(proposal).await?
            }
            Some(open) => self.update(open, proposal).await?,
            // There was a change request if its commit was found outdated, or another process has pushed the commit: if
            // the change request has ended since, that counts.
            None if (self.order.rebuild.is_some() || is_found)
                && self.order.requested().is_none()
                && let Some(done) = self.find_earlier().await? =>
            {
                return Ok(done);
            }
            None => self.open(proposal).await?,
        };
        // Merged during the update, it may have brought what the branch held before.
        let merged = matches!(found.state, ChangeRequestState::Merged { .. })
            && self.delivered_by(&found, Some(&commit)).await?.is_some();
        let request = self.with_labels_and_reviewers(found).await?;
        Ok(Delivered::Proposed { request: ChangeRequest { head_commit: commit, ..request }, merged })
    }

    /// The result of an earlier try of this promotion, in this round.
    async fn find_earlier(&self) -> DeliveryResult<Option<Delivered>> {
        let order = self.order;
        // A closed change request counts as rejected until a newer one is merged, or is closed by its forge: Sluice has
        // opened that one although the earlier one was closed. The same is true of one whose close counts for nothing. The
        // newest come first.
        let (mut reopen, mut closed_by_forge) = (false, 0);
        let list = self.forge.list(&self.branch, self.target.base, ListFilter::Since(order.created)).await?;
        for found in list.found {
            if order.rebuild.is_some() && found.state == ChangeRequestState::Open {
                return Ok(None);
            }
            if !self.is_of_promotion(&found).await? || self.is_by_another_user(&found).await? {
                continue;
            }
            if found.state == ChangeRequestState::Closed && order.withdrawn.contains(&found.request.url) {
                reopen = true;
                continue;
            }
            let found = self.forge.confirmed(found).await?;
            match found.state {
                ChangeRequestState::Open => {
                    if let Some(proposed) = self.proposed_earlier(found).await? {
                        return Ok(Some(proposed));
                    }
                }
                // If it brought another commit, the base branch shows what is still to do.
                ChangeRequestState::Merged { .. } => {
                    if self.delivered_by(&found, None).await?.is_some() {
                        return Ok(Some(Delivered::Proposed { request: found.request, merged: true }));
                    }
                    reopen = true;
                }
                ChangeRequestState::ClosedByForge if closed_by_forge < MAX_CLOSED_BY_FORGE => {
                    closed_by_forge += 1;
                    reopen = true;
                }
                ChangeRequestState::Closed if reopen => {}
                ChangeRequestState::Closed | ChangeRequestState::ClosedByForge => {
                    return Ok(Some(Delivered::Rejected { request: found.request }));
                }
            }
        }
        list.unread.map_or(Ok(None), |error| Err(error.into()))
    }

    /// The result if an open change request carries the commit that Sluice makes.
    async fn proposed_earlier(&self, found: ForgeChangeRequest) -> DeliveryResult<Option<Delivered>> {
        let pushed = self.pushed_commit(&found.request.head_commit).await?;
        let Some(head_commit) = pushed else { return Ok(None) };
        // A commit that only has the message is replaced.
        if !self.is_own_head(&head_commit).await? {
            return Ok(None);
        }
        let request = self.with_labels_and_reviewers(found).await?;
        Ok(Some(Delivered::Proposed { request: ChangeRequest { head_commit, ..request }, merged: false }))
    }

    /// Whether a change request is of this promotion and round: by the marker in its body or, if people have rewritten
    /// the body, by the commit that it carries. A merged change request counts by its commit even if the marker is that
    /// of another promotion: the body is written after the branch, and it may have been merged in between. A marker of
    /// an earlier round does not count, because that round ended before this one began: Gitea changes the head that it
    /// shows together with the branch, and the files would be the same.
    async fn is_of_promotion(&self, found: &ForgeChangeRequest) -> ForgeResult<bool> {
        if let Some(round) = body_mark::round_marked(&found.body, &self.order.promotion) {
            return Ok(round == self.order.round);
        }
        match found.state {
            ChangeRequestState::Open | ChangeRequestState::Closed if body_mark::is_marked(&found.body) => {
                Ok(false)
            }
            _ => Ok(self.pushed_commit(&found.request.head_commit).await?.is_some()),
        }
    }

    /// Returns true if a change request is not recorded, and another user than Sluice's opened it. That user may have only the
    /// permission to read. So Sluice does not adopt the change request, and its close does not count as a rejection:
    /// otherwise such a user could reject the promotion.
    async fn is_by_another_user(&self, found: &ForgeChangeRequest) -> ForgeResult<bool> {
        let may_end = matches!(found.state, ChangeRequestState::Open | ChangeRequestState::Closed);
        let is_recorded = self.order.recorded.contains(&found.request.url);
        let Some(author) = found.author.as_ref().filter(|_| may_end && !is_recorded) else {
            return Ok(false);
        };
        // A person's change of files is rejected by nobody.
        if self.order.requested().is_some() {
            return Ok(false);
        }
        let own = self.own_user.get_or_try_init(|| self.forge.own_user()).await?;
        Ok(own.as_ref().is_some_and(|own| own != author))
    }

    async fn close_of_another(&self, open: &ForgeChangeRequest) -> DeliveryResult<()> {
        self.order.fencing_token.check()?;
        Ok(self.close(open.request.number, OPENED_BY_ANOTHER).await?)
    }

    /// Pushes the promotion's commit to the head branch, if it is not there.
    /// `marked` is the address of an open change request from that branch with the marker of another environment.
    async fn push_head(&self, began: Instant, marked: Option<&str>) -> DeliveryResult<HeadState> {
        let mut repository = self.lock_with_head().await?;
        loop {
            let head = self.push_head_once(&mut repository, began, marked).await;
            if is_final(self.order, &mut repository, &head) {
                return head;
            }
        }
    }

    async fn push_head_once(
        &self,
        repository: &mut LockedRepository<'_>,
        began: Instant,
        marked: Option<&str>,
    ) -> DeliveryResult<HeadState> {
        let (order, base) = (self.order, self.target.base);
        let mut since = began;
        for _ in 0..MAX_PUSHES {
            let tips = repository.tips(base, since).await?;
            let (tip, existed) = (&tips.base.id, tips.head.is_some());
            // A head that the base has brings nothing of another environment.
            let head = tips.head.as_ref().filter(|head| head.id != *tip);
            let conflict = head.and_then(|head| self.branch_conflict(head, marked));
            let edit = edit(order, repository, (base, tip)).await?;
            if edit.files.is_empty() {
                let is_own = existed && conflict.is_none();
                return Ok(HeadState::NotNeeded { base: tips.base.id, existed: is_own });
            }
            if let Some(conflict) = conflict {
                return Err(conflict.into());
            }
            let proposal = self.proposal(&edit.values)?;
            let new = self.resources.new_commit(order, edit);
            if let Some(head) = &tips.head {
                // The message says what the files held before. If the base has changed in other files, another push
                // would only cause another review, unless the forge wants the commit on top of the base.
                let in_place =
                    order.rebuild != Some(OutdatedReason::Behind) || head.parents == [tip.as_str()];
                if in_place
                    && head.message.trim() == new.message.trim()
                    && self.is_own(repository, tip, head).await?
                {
                    return Ok(HeadState::Ready { commit: head.id.clone(), existed, found: true, proposal });
                }
            }
            let commit = repository.commit(tip, &new).await?;
            repository.remember_own(base, &order.content_key(), &commit);
            fault::point("before-push");
            let mode = PushMode::Replace(tips.head.as_ref().map(|head| head.id.as_str()));
            let pushed = repository.push(&commit, &self.branch, mode, &order.fencing_token).await?;
            fault::point("after-push");
            if pushed != Pushed::Moved {
                let found = pushed == Pushed::AlreadyThere;
                return Ok(HeadState::Ready { commit, existed, found, proposal });
            }
            since = Instant::now();
        }
        let repository = repository.access.address.text.clone();
        Err(GitError::Contended { repository, branch: self.branch.clone(), tries: MAX_PUSHES }.into())
    }

    fn proposal(
        &self,
        values: &[(String, sluice_core::setters::SetValue)],
    ) -> Result<Proposal, TemplateError> {
        let ChangeRequestTarget { kind, base, settings, .. } = self.target;
        Ok(Proposal {
            head: self.branch.clone(),
            base: base.into(),
            title: body::title(self.order, settings)?,
            body: body::body(self.order, settings, values, kind)?,
            is_draft: settings.draft,
        })
    }

    /// The open change request from the branch, after at most this many searches. Not every forge rejects a second one
    /// that is opened at the same time (Gitea and Forgejo search first and insert then). But if two processes push the
    /// same branch, one of them learns that it was not the first.
    async fn search_open(
        &self,
        proposal: &Proposal,
        searches: u32,
    ) -> DeliveryResult<Option<ForgeChangeRequest>> {
        for search in 0..searches {
            if search > 0 {
                tokio::time::sleep(SEARCH_PAUSE).await;
            }
            if let Some(open) = self.forge.find_open(&proposal.head, &proposal.base).await? {
                return Ok(Some(open));
            }
        }
        Ok(None)
    }

    /// Opens a change request, or updates the open one that the forge reports.
    async fn open(&self, proposal: &Proposal) -> DeliveryResult<ForgeChangeRequest> {
        let mut openings = 0;
        let mut opened = loop {
            self.order.fencing_token.check()?;
            fault::point("before-open");
            openings += 1;
            let error = match self.forge.open(proposal).await {
                Ok(opened) => break opened,
                Err(error) if error.is_conflict() || error.may_have_happened() => error,
                Err(error) => return Err(error.into()),
            };
            let found = self.find_unanswered(proposal, &error).await;
            match found {
                Some(open) if self.is_by_another_user(&open).await? => {
                    self.close_of_another(&open).await?;
                    if openings == MAX_OPENINGS {
                        return Err(error.into());
                    }
                }
                Some(open) => break self.update(open, proposal).await?,
                None => return Err(error.into()),
            }
        };
        fault::point("after-open");
        if proposal.is_draft && !opened.is_draft {
            let note = "the forge has no drafts for this repository: the change request is open for review";
            opened.request.notes.push(note.into());
        }
        Ok(opened)
    }

    /// The change request whose opening was answered by an error. If the forge may have opened it nevertheless, it is searched
    /// more than once: the next try may be into another repository.
    async fn find_unanswered(&self, proposal: &Proposal, error: &ForgeError) -> Option<ForgeChangeRequest> {
        let searches = if error.may_have_happened() { UNANSWERED_SEARCHES } else { 1 };
        for search in 0..searches {
            if search > 0 {
                tokio::time::sleep(SEARCH_PAUSE).await;
            }
            if let Ok(Some(open)) = self.forge.find_open(&proposal.head, &proposal.base).await {
                return Some(open);
            }
        }
        None
    }

    async fn update(
        &self,
        open: ForgeChangeRequest,
        proposal: &Proposal,
    ) -> DeliveryResult<ForgeChangeRequest> {
        self.check_mark(&open)?;
        if proposal.is_same_text(&open) {
            return Ok(open);
        }
        self.order.fencing_token.check()?;
        // Once it is open, people decide whether it stays a draft.
        let proposal = Proposal { is_draft: open.is_draft, ..proposal.clone() };
        Ok(self.forge.update(open.request.number, &proposal).await?)
    }

    /// Adds labels, reviewers and assignees to an open change request. What cannot be added is a note, and not a failure: the
    /// change request is open, and the controller must learn of it, so that it can close it.
    async fn with_labels_and_reviewers(
        &self,
        mut found: ForgeChangeRequest,
    ) -> DeliveryResult<ChangeRequest> {
        if found.state != ChangeRequestState::Open {
            return Ok(found.request);
        }
        let (forge, settings) = (&*self.forge, self.target.settings);
        let mut notes = Vec::new();
        for tried in 0..MAX_LABELLINGS {
            if tried > 0 {
                tokio::time::sleep(SEARCH_PAUSE).await;
                // A call whose answer got lost may have added some.
                match forge.find_open(&found.request.branch, self.target.base).await {
                    Ok(Some(now)) if now.request.number == found.request.number => found = now,
                    _ => continue,
                }
            }
            notes = match labels_and_reviewers::add(forge, &self.order.fencing_token, settings, &found).await
            {
                Ok(notes) => notes,
                Err(DeliveryError::Revoked) => vec![NOT_COMPLETED.into()],
                Err(error) => {
                    let says = "its labels, reviewers and assignees were not all added";
                    notes = vec![format!("{says}: {error}; add them by hand")];
                    continue;
                }
            };
            break;
        }
        let mut request = found.request;
        request.notes.extend(notes);
        Ok(request)
    }
}
