//! Delivery by commit: straight on top of a branch, never by force. Found again by its trailer.

use crate::body;
use crate::deliver::Inner;
use crate::edit::edit;
use crate::error::DeliveryError;
use crate::fault;
use crate::git::{Access, Cache, GitError, Lease, Pushed};
use crate::order::{Delivered, Order};

/// How often it starts over because others were faster.
const TRIES: u32 = 8;

pub(crate) async fn deliver(
    inner: &Inner,
    order: &Order,
    url: &str,
    branch: &str,
) -> Result<Delivered, DeliveryError> {
    let (access, repository) = inner.repository(order, url)?;
    let mut cache = repository.lock().await;
    let mut result = commit(inner, order, &access, &mut cache, branch).await;
    if inner.heals(&mut cache, &result) {
        result = commit(inner, order, &access, &mut cache, branch).await;
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
) -> Result<Delivered, DeliveryError> {
    let repository = access.address.text.clone();
    let mut search = order.retried && !order.reopen;
    for _ in 0..TRIES {
        let base = cache.fetch(&inner.git, access, &inner.counters, branch, None).await?.base;
        if search {
            let earlier = if base.carries(&order.promotion) {
                Some(base.id.clone())
            } else {
                let at = (branch, &base);
                cache.find_promotion(&inner.git, access, &inner.counters, at, &order.promotion).await?
            };
            if let Some(commit) = earlier {
                return Ok(Delivered::Committed { commit });
            }
            search = false;
        }
        let marked = cache.scan(&inner.git, access, &inner.counters, &base.id, &order.key()).await?;
        let edit = edit(order, &repository, branch, marked)?;
        if edit.files.is_empty() && base.carries(&order.promotion) {
            // A push of ours got there after all, while we were at it.
            return Ok(Delivered::Committed { commit: base.id });
        }
        if edit.files.is_empty() {
            return Ok(Delivered::AlreadySet { commit: base.id });
        }
        let text = inner.text(order, body::message(order, &edit.values, &edit.onto));
        let commit = cache.commit(&inner.git, access, &base.id, &edit.files, &text).await?;
        order.permit.check()?;
        fault::point("before-push");
        let pushed = cache.push(&inner.git, access, &inner.counters, &commit, branch, Lease::Nothing).await?;
        fault::point("after-push");
        if pushed != Pushed::Moved {
            return Ok(Delivered::Committed { commit });
        }
    }
    Err(GitError::Contended { repository, branch: branch.into(), tries: TRIES }.into())
}
