//! Following a change request to its end, and merging it where that is Sluice's to do: only the commit
//! that Sluice pushed, and only when its forge says that nothing stands in the way of exactly that one.

use crate::body;
use crate::change_request;
use crate::deliver::Inner;
use crate::error::DeliveryError;
use crate::fault;
use crate::forge::{AnyForge, Forge, ForgeError, Found, State};
use crate::merged;
use crate::order::{ChangeRequest, Followed, Merge, Order, Settings, Stale, Strategy};
use crate::own;

/// What has become of a change request.
pub(crate) async fn follow(
    inner: &Inner,
    order: &Order,
    request: &ChangeRequest,
) -> Result<Followed, DeliveryError> {
    let Some((forge, base)) = inner.forge_of(order)? else { return Ok(Followed::Elsewhere) };
    Ok(left_to_people(look(inner, &forge, order, base, request).await?.0, request))
}

/// What others have pushed to its branch is not overwritten because it cannot be merged.
fn left_to_people(followed: Followed, request: &ChangeRequest) -> Followed {
    match followed {
        Followed::Open { head, stale: Some(_) } if head != request.head_commit => {
            let why = "it cannot be merged as it is, and others have pushed to its branch: resolve that there, \
                       or close it";
            Followed::Waits { why: why.into(), failed: false, queued: request.queued }
        }
        other => other,
    }
}

/// The same, and what is to be done about it: it is merged once it may be, and then its branch goes.
pub(crate) async fn tend(
    inner: &Inner,
    order: &Order,
    request: &ChangeRequest,
) -> Result<Followed, DeliveryError> {
    let Strategy::PullRequest { settings, url, .. } = &order.strategy else { return Ok(Followed::Elsewhere) };
    let Some((forge, base)) = inner.forge_of(order)? else { return Ok(Followed::Elsewhere) };
    let (mut followed, found) = look(inner, &forge, order, base, request).await?;
    if let (Followed::Open { stale: None, .. }, Some(found)) = (&followed, found)
        && settings.merge != Merge::Never
    {
        followed = merge(inner, &forge, order, (settings, base), request, &found).await?;
    }
    if let Followed::Merged { ours: true, head, .. } = &followed
        && settings.delete_branch
    {
        delete_branch(inner, order, url, head).await;
    }
    Ok(left_to_people(followed, request))
}

async fn look(
    inner: &Inner,
    forge: &AnyForge,
    order: &Order,
    base: &str,
    request: &ChangeRequest,
) -> Result<(Followed, Option<Found>), DeliveryError> {
    let found = match forge.get(request.number).await? {
        Some(found) => Some(found),
        // That it is gone ends a promotion: a forge that is not of one mind is not believed.
        None => {
            let all = forge.find(&order.branch(), base, order.created).await?;
            all.into_iter().find(|f| f.request.number == request.number)
        }
    };
    let Some(found) = found else { return Ok((Followed::Gone, None)) };
    // The pipeline may name another repository by now, where the number is somebody else's.
    if found.request.url != request.url || found.request.branch != order.branch() {
        return Ok((Followed::Elsewhere, None));
    }
    let found = forge.confirmed(found).await?;
    let head = found.request.head_commit.clone();
    let followed = match &found.state {
        State::Open => Followed::Open { head, stale: found.conflicts.then_some(Stale::Conflicts) },
        State::Merged { commit } => {
            let (head, ours) =
                match merged::brought(inner, forge, order, &found, Some(&request.head_commit)).await? {
                    // Gitea moves the head that it shows on with the branch.
                    Some(brought) => (brought.head.unwrap_or_else(|| request.head_commit.clone()), true),
                    None => (head, false),
                };
            Followed::Merged { commit: commit.clone(), head, ours }
        }
        State::Closed => Followed::Closed,
    };
    Ok((followed, Some(found)))
}

/// Closes an open one and says why below it, unless it is another promotion's by now: then nothing is done.
///
/// Between the look and the close another controller may push its promotion to the branch, and has its
/// change request closed then: a second's chance that no forge lets one rule out, since none closes at a head.
pub(crate) async fn withdraw(
    inner: &Inner,
    order: &Order,
    request: &ChangeRequest,
    comment: &str,
) -> Result<Followed, DeliveryError> {
    let Some((forge, base)) = inner.forge_of(order)? else { return Ok(Followed::Elsewhere) };
    let (followed, found) = look(inner, &forge, order, base, request).await?;
    let (Followed::Open { head, .. }, Some(_)) = (&followed, &found) else { return Ok(followed) };
    let pushed = &request.head_commit;
    if head != pushed && merged::is_anothers(&forge, order, (head, pushed)).await? {
        return Ok(Followed::HandedOver);
    }
    order.permit.check()?;
    change_request::close(&forge, order, request.number, &body::comment(comment)).await?;
    Ok(Followed::Closed)
}

/// Merges an open one, if it may be.
async fn merge(
    inner: &Inner,
    forge: &AnyForge,
    order: &Order,
    (settings, base): (&Settings, &str),
    request: &ChangeRequest,
    found: &Found,
) -> Result<Followed, DeliveryError> {
    let waits = |why: &str, queued| Ok(Followed::Waits { why: why.into(), failed: false, queued });
    if found.base != base {
        let why = format!("it goes to {} now, and not to {base}: change that back, or close it", found.base);
        return waits(&why, request.queued);
    }
    if found.is_draft {
        return waits("it is a draft until a person says that it is ready", false);
    }
    let readiness = forge.readiness(found, settings.merge).await?;
    if readiness.queued {
        return waits("it is in the merge queue", true);
    }
    if let Some(why) = readiness.obstacle(&request.head_commit) {
        return Ok(Followed::Waits { why, failed: readiness.has_failed(), queued: request.queued });
    }
    let behind = || Ok(Followed::Open { head: readiness.head.clone(), stale: Some(Stale::Behind) });
    if readiness.behind {
        return behind();
    }
    if readiness.checks.is_empty() && !order.settled {
        return waits("waits for checks: none has reported yet", false);
    }
    if request.queued {
        return waits("the merge queue has put it out: look there why, and put it in again by hand", true);
    }
    if !own::is_own_and_on_base(inner, order, &request.head_commit).await? {
        // Made again, it is the commit of Sluice alone.
        let (promotion, repository) = (&order.promotion, order.repository());
        tracing::warn!(
            promotion,
            repository,
            number = request.number,
            "the head is not the commit that Sluice makes on top of the base: it is not merged"
        );
        return behind();
    }
    order.permit.check()?;
    fault::point("before-merge");
    let message = body::merge_message(order);
    let done = forge.merge(found, &readiness, settings.merge, &message).await;
    fault::point("after-merge");
    let refused = match done {
        Ok(()) => None,
        Err(error) if error.may_have_happened() => Some(Err(error)),
        Err(ForgeError::Behind { .. }) => return behind(),
        Err(ForgeError::Refused { says, .. }) => Some(Ok(says)),
        Err(error) => return Err(error.into()),
    };
    // Whatever it said: what counts is what it shows.
    match (look(inner, forge, order, base, request).await?.0, refused) {
        (Followed::Open { .. }, None) if settings.merge == Merge::Queue => {
            waits("it is in the merge queue", true)
        }
        (Followed::Open { .. }, None) => waits("its forge merges it", false),
        (Followed::Open { .. }, Some(Ok(says))) => {
            waits(&format!("its forge does not merge it: {says}"), false)
        }
        (Followed::Open { .. }, Some(Err(error))) => Err(error.into()),
        (other, _) => Ok(other),
    }
}

/// Deletes the branch of a change request that was merged, if it still is where it was merged. That it
/// stays is no failure: the forge may have deleted it, and the next revision uses it again.
async fn delete_branch(inner: &Inner, order: &Order, url: &str, head: &str) {
    let branch = order.branch();
    let deleted = async {
        order.permit.check()?;
        let (access, repository) = inner.repository(order, url)?;
        let mut cache = repository.lock(&access).await;
        cache.delete(&inner.git, &access, &inner.counters, &branch, head).await?;
        Ok::<_, DeliveryError>(())
    };
    if let Err(error) = deleted.await {
        let promotion = &order.promotion;
        tracing::warn!(promotion, repository = url, branch, %error, "the branch of a merged change request stays");
    }
}
