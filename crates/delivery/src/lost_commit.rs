//! Whether a delivered commit is gone from its branch: a forced push has removed it, and the files do not have the
//! revision any more. Only reads.

use std::time::Instant;

use crate::edit::edit;
use crate::error::{DeliveryError, DeliveryResult};
use crate::git::LockedRepository;
use crate::order::Order;
use crate::resources::{Resources, is_final};

/// Whether the branch of an order has lost `commit`, by which the order was delivered.
///
/// The commit counts as lost only if that is certain: the values in the files are not those of the order, and the
/// history of the branch, back to before the promotion was made, has neither the commit nor another one that carries
/// the promotion. A commit that another one reverts stays in the history.
pub(crate) async fn is_lost(resources: &Resources, order: &Order, commit: &str) -> DeliveryResult<bool> {
    let Some((url, branch)) = order.strategy.written_branch() else { return Ok(false) };
    let mut repository = resources.lock(order, url, None).await?;
    loop {
        let lost = has_lost(order, &mut repository, (branch, commit)).await;
        if is_final(order, &mut repository, &lost) {
            return lost;
        }
    }
}

async fn has_lost(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, commit): (&str, &str),
) -> DeliveryResult<bool> {
    let known_by = order.known_by();
    let base = repository.tips(branch, Instant::now()).await?.base;
    if base.id == commit || base.carries(&known_by) {
        return Ok(false);
    }
    match edit(order, repository, (branch, &base.id)).await {
        Ok(edit) if edit.files.is_empty() => return Ok(false),
        Ok(_) => {}
        // There is nothing to set any more. The next promotion reports that.
        Err(DeliveryError::Edit(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(repository.has_lost(branch, (commit, known_by.as_str()), order.created).await?)
}
