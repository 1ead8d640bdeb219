//! Delivery by commit: straight on top of a branch, never by force. Found again by its trailer.

use std::time::Instant;

use crate::body;
use crate::deliver::Inner;
use crate::edit::{edit, is_set};
use crate::error::DeliveryError;
use crate::fault;
use crate::git::{Access, Cache, Commit, GitError, Lease, Pushed};
use crate::order::{Delivered, Order};

/// How often it starts over because others were faster.
const TRIES: u32 = 8;

pub(crate) async fn deliver(
    inner: &Inner,
    order: &Order,
    url: &str,
    branch: &str,
    came: Instant,
) -> Result<Delivered, DeliveryError> {
    let (access, repository) = inner.repository(order, url)?;
    let mut cache = repository.lock(&access).await;
    let mut result = commit(inner, order, &access, &mut cache, branch, came).await;
    if inner.heals(order, &mut cache, &result) {
        result = commit(inner, order, &access, &mut cache, branch, came).await;
    }
    if result.is_ok() {
        cache.trust();
    }
    result
}

async fn commit(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    branch: &str,
    came: Instant,
) -> Result<Delivered, DeliveryError> {
    let (repository, known_by) = (access.address.text.clone(), order.known_by());
    let mut search = order.retried;
    let mut since = if order.retried { came } else { cache.recent(came) };
    for _ in 0..TRIES {
        let fetched = cache.tips(&inner.git, access, &inner.counters, (branch, None), since).await?;
        let base = fetched.base;
        if search {
            if let Some(commit) = find_earlier(inner, order, access, cache, (branch, &base)).await? {
                return Ok(Delivered::Committed { commit });
            }
            search = false;
        }
        let edit = edit(inner, order, access, cache, (branch, &base.id)).await;
        if fetched.asked < came && !edit.as_ref().is_ok_and(|edit| !edit.files.is_empty()) {
            // That there is nothing to do is said of the branch as it is now only.
            since = came;
            continue;
        }
        let edit = edit?;
        if edit.files.is_empty() && base.carries(&known_by) {
            // A push of ours got there after all, while we were at it.
            return Ok(Delivered::Committed { commit: base.id });
        }
        if edit.files.is_empty() {
            return Ok(Delivered::AlreadySet { commit: base.id });
        }
        let text = inner.text(order, body::message(order, &edit.values, &edit.onto));
        let commit = cache.commit(&inner.git, access, &base.id, &edit.files, &text).await?;
        cache.remember_own(access, branch, &known_by, &commit);
        let made = Commit::made(commit.clone(), base.id, text.message);
        order.permit.check()?;
        fault::point("before-push");
        let before = cache.begin_push(branch);
        let pushed = cache.push(&inner.git, access, &inner.counters, &commit, branch, Lease::Nothing).await?;
        fault::point("after-push");
        if pushed != Pushed::Moved {
            before.into_iter().for_each(|before| cache.pushed(before, made.clone()));
            return Ok(Delivered::Committed { commit });
        }
        // Whoever was faster may have brought this very promotion, and something newer after it.
        cache.lost_race();
        (since, search) = (Instant::now(), true);
    }
    Err(GitError::Contended { repository, branch: branch.into(), tries: TRIES }.into())
}

/// The commit by which an earlier try has delivered the order. A message that names the promotion is not enough:
/// others write messages, too, so the commit must also hold the values.
async fn find_earlier(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (branch, base): (&str, &Commit),
) -> Result<Option<String>, DeliveryError> {
    let (git, counters, known_by) = (&inner.git, &*inner.counters, order.known_by());
    let is_newest = base.carries(&known_by);
    if is_newest && holds(inner, order, access, cache, (branch, base), &base.id).await? {
        return Ok(Some(base.id.clone()));
    }
    let named = cache.find_promotion(git, access, counters, (branch, base), &known_by).await?;
    // The newest commit of the branch is here already; each other one costs a fetch.
    if !is_newest
        && let Some(newest) = named.first()
        && holds(inner, order, access, cache, (branch, base), &base.id).await?
    {
        return Ok(Some(newest.clone()));
    }
    for commit in named.into_iter().filter(|commit| *commit != base.id) {
        if holds(inner, order, access, cache, (branch, base), &commit).await? {
            return Ok(Some(commit));
        }
    }
    Ok(None)
}

/// Whether a commit of a branch has every value of an order. `base` is the newest commit of the branch.
async fn holds(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (branch, base): (&str, &Commit),
    commit: &str,
) -> Result<bool, DeliveryError> {
    if cache.remembers_own(access, branch, &order.known_by(), commit) {
        return Ok(true);
    }
    if commit != base.id {
        cache.bring(&inner.git, access, &inner.counters, commit).await?;
    }
    is_set(inner, order, access, cache, (branch, commit)).await
}
