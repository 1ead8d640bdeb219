//! Delivery by a commit straight on top of a branch, never by force. A later try finds the commit by its trailer.

use std::time::{Duration, Instant};

use crate::edit::{edit, is_set};
use crate::error::DeliveryResult;
use crate::fault;
use crate::git::{Commit, GitError, LockedRepository, PushMode, Pushed};
use crate::order::Order;
use crate::outcome::Delivered;
use crate::resources::{BoxedDelivery, Resources, is_final};

/// How often a commit to the base branch is made again because others pushed first. Everybody pushes there.
const MAX_PUSHES: u32 = 8;

/// When the branch is looked at for a push that was ended before the answer of its server. A server ends the hooks of a client that
/// is gone, but not at once.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)];
/// How many of these looks follow a push that was answered by an error.
const LOOKS_AFTER_ERROR: usize = 2;
/// How long each of these looks may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// How many commits that name a promotion are compared. Anybody who may push can write such messages.
const MAX_COMPARED: usize = 20;

/// Commits the values of an order to a branch, or finds the commit of an earlier try. The state of this work is on the heap, as
/// that of a change request.
pub(crate) fn deliver<'a>(
    resources: &'a Resources,
    order: &'a Order,
    url: &'a str,
    branch: &'a str,
    began: Instant,
) -> BoxedDelivery<'a, Delivered> {
    Box::pin(async move {
        let mut repository = resources.lock(order, url, None).await?;
        loop {
            let delivered = commit(resources, order, &mut repository, branch, began).await;
            if is_final(order, &mut repository, &delivered) {
                return delivered;
            }
        }
    })
}

/// Finds the commit of an earlier try.
pub(crate) async fn find_delivery(
    resources: &Resources,
    order: &Order,
    url: &str,
    branch: &str,
) -> DeliveryResult<Option<Delivered>> {
    let mut repository = resources.lock(order, url, None).await?;
    loop {
        let found = find_in_branch(order, &mut repository, branch).await;
        if is_final(order, &mut repository, &found) {
            return found;
        }
    }
}

async fn commit(
    resources: &Resources,
    order: &Order,
    repository: &mut LockedRepository<'_>,
    branch: &str,
    began: Instant,
) -> DeliveryResult<Delivered> {
    let (mut search, mut tried_on) = (order.retried, None);
    let mut since = if order.retried { began } else { repository.recent(began) };
    for _ in 0..MAX_PUSHES {
        let tips = repository.tips(branch, since).await?;
        let base = tips.base;
        if std::mem::take(&mut search)
            && let Some(commit) = find_earlier(order, repository, (branch, &base), tried_on.take()).await?
        {
            return Ok(Delivered::Committed { commit });
        }
        let edit = edit(order, repository, (branch, &base.id)).await;
        if tips.asked < began && !edit.as_ref().is_ok_and(|edit| !edit.files.is_empty()) {
            // Only the current tip of the branch proves that there is nothing to do.
            since = began;
            continue;
        }
        let edit = edit?;
        if edit.files.is_empty() {
            return Ok(match base.carries(&order.known_by()) {
                // A push of this promotion arrived in the meantime.
                true => Delivered::Committed { commit: base.id },
                false => Delivered::AlreadySet { commit: base.id },
            });
        }
        let new = resources.new_commit(order, edit);
        let commit = repository.commit(&base.id, &new).await?;
        repository.remember_own(branch, &order.content_key(), &commit);
        let made = Commit::made(commit.clone(), base.id.clone(), new.message);
        fault::point("before-push");
        let before = repository.begin_push(branch);
        let was_valid = order.fencing_token.check().is_ok();
        let pushed = repository.push(&commit, branch, PushMode::FastForward, &order.fencing_token).await;
        let looks = looks_after(&pushed, was_valid && order.fencing_token.term().runs());
        if let Some(commit) = find_arrived(order, repository, (branch, &base.id), looks).await {
            return Ok(Delivered::Committed { commit });
        }
        let pushed = pushed?;
        fault::point("after-push");
        if pushed != Pushed::Moved {
            before.into_iter().for_each(|before| repository.record_push(before, made.clone()));
            return Ok(Delivered::Committed { commit });
        }
        // The other push may have brought this very promotion, and a newer one after it.
        repository.record_foreign_push();
        (since, search, tried_on) = (Instant::now(), true, Some(base.id));
    }
    let repository = repository.access.address.text.clone();
    Err(GitError::Contended { repository, branch: branch.into(), tries: MAX_PUSHES }.into())
}

/// The pauses before the looks for a push without an answer. After a lease term, another process looks.
fn looks_after(pushed: &Result<Pushed, GitError>, was_begun: bool) -> &'static [Duration] {
    match pushed {
        Err(GitError::Revoked) if was_begun => &LOOKS,
        Err(error) if error.may_have_happened() => &LOOKS[..LOOKS_AFTER_ERROR],
        _ => &[],
    }
}

/// The commit of a push that was ended while it waited for the answer of the server, or was answered by an error, if it
/// has arrived. Otherwise the controller would take it for a push that never happened, and deliver the promotion to the
/// place that the pipeline names now. `pushed_on` is the commit that the branch was at.
async fn find_arrived(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, pushed_on): (&str, &str),
    looks: &[Duration],
) -> Option<String> {
    for pause in looks {
        tokio::time::sleep(*pause).await;
        let look = async {
            let tip = repository.tips(branch, Instant::now()).await?.base;
            match tip.id == pushed_on {
                true => Ok(None),
                false => find_earlier(order, repository, (branch, &tip), Some(pushed_on.into())).await,
            }
        };
        // Otherwise it is not there yet, or the server does not answer.
        if let Ok(Ok(Some(found))) = tokio::time::timeout(LOOK_TIMEOUT, look).await {
            return Some(found);
        }
    }
    None
}

/// The commit by which an earlier try has delivered the order. A message that names the promotion is not enough:
/// others write messages, too. If the branch has the values and one commit names the promotion, it is that commit. If several
/// do, it is the newest one that sets the values, or if none sets them, the newest one of a branch that has the values.
/// `tried_on` is a commit of the branch that does not have the values, and up to which no commit names the promotion.
async fn find_earlier(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, base): (&str, &Commit),
    tried_on: Option<String>,
) -> DeliveryResult<Option<String>> {
    let known_by = order.known_by();
    // The newest commit of the branch is in the cache already; each other one, and the history, costs a fetch.
    if tried_on.is_some_and(|tried_on| base.parents == [tried_on]) {
        let is_set =
            base.carries(&known_by) && holds_values(order, repository, (branch, base), &base.id).await?;
        return Ok(is_set.then(|| base.id.clone()));
    }
    let named = repository.find_promotion((branch, base), &known_by).await?;
    let Some(newest) = named.first() else { return Ok(None) };
    let has_values = holds_values(order, repository, (branch, base), &base.id).await?;
    if has_values && named.len() == 1 {
        return Ok(Some(newest.clone()));
    }
    let sets = newest_that_sets(order, repository, (branch, base), &named).await?;
    Ok(sets.or_else(|| has_values.then(|| newest.clone())))
}

/// The newest of these commits that sets the values. Two fetches for each are the cost.
async fn newest_that_sets(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, base): (&str, &Commit),
    named: &[String],
) -> DeliveryResult<Option<String>> {
    for commit in named.iter().take(MAX_COMPARED) {
        if sets_values(order, repository, (branch, base), commit).await? {
            return Ok(Some(commit.clone()));
        }
    }
    Ok(None)
}

/// Whether a commit of a branch has every value of an order. `base` is the newest commit of the branch.
async fn holds_values(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, base): (&str, &Commit),
    commit: &str,
) -> DeliveryResult<bool> {
    if repository.remembers_own(branch, &order.content_key(), commit) {
        return Ok(true);
    }
    if commit != base.id {
        repository.fetch_commit(commit).await?;
    }
    is_set(order, repository, (branch, commit)).await
}

/// The commit by which an earlier try has delivered the order, for its record: the commit itself sets the values.
async fn find_in_branch(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    branch: &str,
) -> DeliveryResult<Option<Delivered>> {
    let base = repository.tips(branch, Instant::now()).await?.base;
    let named = repository.find_promotion((branch, &base), &order.known_by()).await?;
    let commit = newest_that_sets(order, repository, (branch, &base), &named).await?;
    Ok(commit.map(|commit| Delivered::Committed { commit }))
}

/// Whether a commit of a branch sets the values of an order: it has all of them, and the commit before it has not. `base` is the
/// newest commit of the branch.
async fn sets_values(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, base): (&str, &Commit),
    id: &str,
) -> DeliveryResult<bool> {
    if repository.remembers_own(branch, &order.content_key(), id) {
        return Ok(true);
    }
    if !holds_values(order, repository, (branch, base), id).await? {
        return Ok(false);
    }
    let commit = repository.read_commit(id).await?;
    match commit.parents.first() {
        Some(parent) => Ok(!holds_values(order, repository, (branch, base), parent).await?),
        None => Ok(true),
    }
}
