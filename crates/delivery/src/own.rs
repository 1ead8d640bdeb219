//! Whether a commit is the one that Sluice itself would make for a promotion. Its message alone says nothing:
//! whoever may push branches can write it.

use std::time::Instant;

use crate::body;
use crate::deliver::Inner;
use crate::edit::edit;
use crate::error::DeliveryError;
use crate::git::{self, Access, Cache, ChangedFile, Commit, CommitText};
use crate::order::{Order, Strategy};

/// Whether a commit is the one that Sluice makes for an order on top of the commit's own parent, that parent is part
/// of the base branch, and a merge of the commit gives the files that Sluice would commit to the base branch now.
/// `tip` is the newest commit of the base branch, as it was fetched.
///
/// A parent from elsewhere would bring files of its own along with the promotion. One from long ago may have the
/// promoted values in other files, or may have another application in this one.
pub(crate) async fn is_own(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (base, tip): (&str, &str),
    commit: &Commit,
) -> Result<bool, DeliveryError> {
    let (git, counters) = (&inner.git, &*inner.counters);
    let [parent] = &commit.parents[..] else { return Ok(false) };
    if !commit.carries(&order.known_by()) {
        return Ok(false);
    }
    if parent != tip && !cache.is_in_branch(git, access, counters, (base, parent)).await? {
        return Ok(false);
    }
    // What the commit was made of does not change. What the base branch has does.
    if parent != tip {
        cache.bring(git, access, counters, parent).await?;
    }
    if !cache.remembers_own(access, base, &order.known_by(), &commit.id) {
        let Some((files, text)) = made(inner, order, access, cache, (base, parent)).await? else {
            return Ok(false);
        };
        if !cache.is_made_of(git, access, commit, (parent, &files, &text)).await? {
            return Ok(false);
        }
        cache.remember_own(access, base, &order.known_by(), &commit.id);
    }
    if parent == tip {
        return Ok(true);
    }
    let Some((files, text)) = made(inner, order, access, cache, (base, tip)).await? else { return Ok(false) };
    Ok(cache.merges_to(git, access, (tip, commit), (&files, &text)).await?)
}

/// The files and the text of the commit that Sluice makes for an order on top of another one; `None` if there is nothing
/// to set.
async fn made(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (base, onto): (&str, &str),
) -> Result<Option<(Vec<ChangedFile>, CommitText)>, DeliveryError> {
    let edit = match edit(inner, order, access, cache, (base, onto)).await {
        Err(DeliveryError::Edit(_)) => return Ok(None),
        edit => edit?,
    };
    let text = inner.text(order, body::message(order, &edit.values, &edit.onto));
    Ok((!edit.files.is_empty()).then_some((edit.files, text)))
}

/// The same for a commit of the head branch of an order's change request. A commit that this process knows is not
/// looked at again, wherever the base branch is by now.
pub(crate) async fn is_own_head(inner: &Inner, order: &Order, id: &str) -> Result<bool, DeliveryError> {
    is_own_commit(inner, order, id, true).await
}

/// The same before a merge: the base branch is fetched, also if this process knows the commit. A merge would bring
/// commits back that were removed from the base branch, or would set values in files that have another meaning now.
pub(crate) async fn is_own_and_on_base(
    inner: &Inner,
    order: &Order,
    id: &str,
) -> Result<bool, DeliveryError> {
    is_own_commit(inner, order, id, false).await
}

async fn is_own_commit(
    inner: &Inner,
    order: &Order,
    id: &str,
    wherever: bool,
) -> Result<bool, DeliveryError> {
    let Strategy::PullRequest { url, base, .. } = &order.strategy else { return Ok(false) };
    let (access, repository) = inner.repository(order, url)?;
    let branch = order.branch();
    let want = repository.want(&access, base, &branch);
    let mut cache = repository.lock(&access).await;
    if wherever && cache.remembers_own(&access, base, &order.known_by(), id) {
        return Ok(true);
    }
    let mut result = look(inner, order, &access, &mut cache, (base, &want), id).await;
    if inner.heals(order, &mut cache, &result) {
        result = look(inner, order, &access, &mut cache, (base, &want), id).await;
    }
    if result.is_ok() {
        cache.trust();
    }
    result
}

async fn look(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (base, want): (&str, &git::Want<'_>),
    id: &str,
) -> Result<bool, DeliveryError> {
    let (git, counters) = (&inner.git, &*inner.counters);
    let fetched = cache.tips(git, access, counters, (base, Some(want)), Instant::now()).await?;
    let commit = match fetched.head {
        Some(head) if head.id == id => head,
        // People have pushed commits on top of it.
        _ => {
            cache.bring(git, access, counters, id).await?;
            cache.read_commit(git, access, id).await?
        }
    };
    is_own(inner, order, access, cache, (base, &fetched.base.id), &commit).await
}
