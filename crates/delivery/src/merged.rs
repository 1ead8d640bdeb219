//! What a merge has brought: whether a change request that was merged has delivered this very promotion. Only
//! facts count: commits and their parents, the forge's record of what it merged, and at last the files.

use crate::body;
use crate::deliver::{Boxed, Inner};
use crate::edit::is_set;
use crate::error::DeliveryError;
use crate::forge::{AnyForge, Forge, ForgeError, Found, MergedHead, State};
use crate::git::{self, Access, Cache, GitError};
use crate::order::{Order, Strategy};

/// So many commits of others are looked below for the one that was pushed.
const BELOW: usize = 30;

/// That a merge has brought a promotion.
pub(crate) struct Brought {
    /// The end of the branch that was merged, where that is certain.
    pub(crate) head: Option<String>,
}

/// Whether the merge of a change request has brought this very promotion, in this round. `own` is the commit that
/// Sluice is known to have pushed, where it is known.
///
/// Where the forge keeps the head that it merged, that head tells, however it was merged. Gitea and Forgejo do
/// not. There the parents of the merge tell, then the head that was noted if it has commits of people on top of
/// the promotion's, for nobody makes those in the moment of a merge, and else the files of the merge.
///
/// A message tells nothing by itself: a commit that names the promotion must be `own`, or hold its values.
///
/// In a box from the start: it is seldom needed, and large beside what every delivery keeps on its stack.
pub(crate) fn brought<'a>(
    inner: &'a Inner,
    forge: &'a AnyForge,
    order: &'a Order,
    found: &'a Found,
    own: Option<&'a str>,
) -> Boxed<'a, Option<Brought>> {
    Box::pin(judge(inner, forge, order, found, own))
}

async fn judge(
    inner: &Inner,
    forge: &AnyForge,
    order: &Order,
    found: &Found,
    own: Option<&str>,
) -> Result<Option<Brought>, DeliveryError> {
    let State::Merged { commit: id } = &found.state else { return Ok(None) };
    let known_by = order.known_by();
    let head = forge.merged_head(found).await?;
    let noted = match &head {
        Some(head) => newest(forge, &head.id, None, git::is_ours).await?,
        None => None,
    };
    // The commit of another promotion is a plain no; one that only claims to be of this promotion is none.
    let tells = async |(below, message): &(String, String)| match git::carries(message, &known_by) {
        true => has_values(inner, order, below, own).await.map(|has| has.then_some(true)),
        false => Ok::<_, DeliveryError>(Some(false)),
    };
    if let (Some(MergedHead { id, is_certain: true }), Some(noted)) = (&head, &noted)
        && let Some(is_of_it) = tells(noted).await?
    {
        return Ok(is_of_it.then(|| Brought { head: Some(id.clone()) }));
    }
    let merge = forge.commit(id).await?;
    for parent in merge.iter().flat_map(|merge| merge.parents.iter().skip(1)) {
        if let Some(below) = newest(forge, parent, None, git::is_ours).await?
            && let Some(is_of_it) = tells(&below).await?
        {
            return Ok(is_of_it.then(|| Brought { head: Some(parent.clone()) }));
        }
    }
    if let (Some(head), Some(noted)) = (head, noted)
        && noted.0 != head.id
        && tells(&noted).await? == Some(true)
    {
        return Ok(Some(Brought { head: Some(head.id) }));
    }
    let brought = merge.is_some() && holds(inner, order, id).await?;
    Ok(brought.then_some(Brought { head: None }))
}

/// Whether a commit that names the promotion has its values: Sluice has made it, or its files say so. A commit
/// that the server does not give out any more, as after a squash, counts as one without them.
async fn has_values(
    inner: &Inner,
    order: &Order,
    commit: &str,
    own: Option<&str>,
) -> Result<bool, DeliveryError> {
    if own == Some(commit) {
        return Ok(true);
    }
    match holds(inner, order, commit).await {
        Err(DeliveryError::Git(GitError::Failed { .. })) => Ok(false),
        holds => holds,
    }
}

/// The commit at the end of a branch that is known by this. Others may have pushed onto it: what they did is
/// not taken for what was pushed, and so never merged. Where another promotion's is on top, there is none.
pub(crate) async fn pushed(
    forge: &AnyForge,
    known_by: &str,
    head: &str,
) -> Result<Option<String>, ForgeError> {
    let newest = newest(forge, head, None, git::is_ours).await?;
    Ok(newest.filter(|(_, message)| git::carries(message, known_by)).map(|(id, _)| id))
}

/// Whether the commit of another promotion into the same place is at the end of a branch, above what this
/// one's was made on top of. Where people have rewritten this one's so that nothing names it any more, it is
/// still nobody else's; and what they have put it on top of may have those of other places.
pub(crate) async fn is_anothers(
    forge: &AnyForge,
    order: &Order,
    (head, pushed): (&str, &str),
) -> Result<bool, ForgeError> {
    let base = forge.commit(pushed).await?.and_then(|commit| commit.parents.into_iter().next());
    let is_of_place = |message: &str| git::is_ours(message) && body::is_for(message, order);
    let newest = newest(forge, head, base.as_deref(), is_of_place).await?;
    // Of whichever round.
    Ok(newest.is_some_and(|(_, message)| !git::names(&message, &order.promotion)))
}

/// The newest commit at the end of a branch whose message is of interest, down to a commit of its base where
/// that is known; and that message.
async fn newest(
    forge: &AnyForge,
    head: &str,
    base: Option<&str>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<(String, String)>, ForgeError> {
    let mut id = head.to_string();
    for _ in 0..=BELOW {
        if base == Some(&id) {
            return Ok(None);
        }
        let Some(commit) = forge.commit(&id).await? else { return Ok(None) };
        if is_wanted(&commit.message) {
            return Ok(Some((id, commit.message)));
        }
        let Some(below) = commit.parents.into_iter().next() else { return Ok(None) };
        id = below;
    }
    Ok(None)
}

/// Whether the files of a commit have every value of the promotion.
async fn holds(inner: &Inner, order: &Order, commit: &str) -> Result<bool, DeliveryError> {
    let Strategy::PullRequest { url, base, .. } = &order.strategy else { return Ok(false) };
    let (access, repository) = inner.repository(order, url)?;
    let mut cache = repository.lock(&access).await;
    if cache.remembers_own(&access, base, &order.known_by(), commit) {
        return Ok(true);
    }
    let mut held = fetched_and_set(inner, order, &access, &mut cache, (base, commit)).await;
    if inner.heals(order, &mut cache, &held) {
        held = fetched_and_set(inner, order, &access, &mut cache, (base, commit)).await;
    }
    if held.is_ok() {
        cache.trust();
    }
    held
}

/// Fetches a commit and looks whether its files have every value.
async fn fetched_and_set(
    inner: &Inner,
    order: &Order,
    access: &Access,
    cache: &mut Cache,
    (base, commit): (&str, &str),
) -> Result<bool, DeliveryError> {
    cache.bring(&inner.git, access, &inner.counters, commit).await?;
    is_set(inner, order, access, cache, (base, commit)).await
}
