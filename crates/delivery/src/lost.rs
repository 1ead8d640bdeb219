//! Whether what was delivered to a branch is gone from it: a forced push has removed the commit, and nothing in
//! the branch says the revision any more. Only reads.

use std::time::Instant;

use crate::deliver::Inner;
use crate::edit::edit;
use crate::error::DeliveryError;
use crate::git::{Access, Cache};
use crate::order::{Order, Strategy};

/// Whether the branch that an order goes to has lost `commit`, by which the order was delivered.
///
/// The commit counts as lost only if it is certain: the values in the files are not those of the order, and the
/// history of the branch, read back to before the promotion was made, has neither the commit nor another one
/// that carries the promotion. Somebody who reverts the commit by another one leaves it in the history.
pub(crate) async fn is_lost(inner: &Inner, order: &Order, commit: &str) -> Result<bool, DeliveryError> {
    let (url, branch) = match &order.strategy {
        Strategy::Commit { url, branch } => (url, branch),
        Strategy::PullRequest { url, base, .. } => (url, base),
        Strategy::Notification(_) | Strategy::Webhook { .. } => return Ok(false),
    };
    let (access, repository) = inner.repository(order, url)?;
    let mut cache = repository.lock(&access).await;
    let mut lost = look(inner, order, &access, &mut cache, (branch, commit)).await;
    if inner.heals(order, &mut cache, &lost) {
        lost = look(inner, order, &access, &mut cache, (branch, commit)).await;
    }
    if lost.is_ok() {
        cache.trust();
    }
    lost
}

async fn look(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (branch, commit): (&str, &str),
) -> Result<bool, DeliveryError> {
    let known_by = order.known_by();
    let base = cache.tips(&inner.git, access, &inner.counters, (branch, None), Instant::now()).await?.base;
    if base.id == commit || base.carries(&known_by) {
        return Ok(false);
    }
    match edit(inner, order, access, cache, (branch, &base.id)).await {
        Ok(edit) if edit.files.is_empty() => return Ok(false),
        Ok(_) => {}
        // There is nothing to set any more: the next promotion says so.
        Err(DeliveryError::Edit(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    let of = (commit, known_by.as_str());
    Ok(cache.has_lost(&inner.git, access, &inner.counters, branch, of, order.created).await?)
}
