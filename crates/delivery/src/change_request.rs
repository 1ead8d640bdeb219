//! Delivery by change request: one head branch an environment, made anew on top of the base each
//! time, and one change request from it, which is updated in place and never joined by a second.

use std::time::{Duration, Instant};

use crate::body;
use crate::deliver::{Boxed, Inner};
use crate::edit::edit;
use crate::error::DeliveryError;
use crate::extras;
use crate::fault;
use crate::forge::{AnyForge, Draft, Forge, ForgeError, Found, State};
use crate::git::{Access, Cache, GitError, Lease, Pushed, Want};
use crate::mark;
use crate::merged;
use crate::order::{ChangeRequest, Delivered, ForgeKind, Order, Settings, Stale};
use crate::own;
use crate::template::TemplateError;

/// How often it starts over because others changed the branch.
const TRIES: u32 = 5;
/// How often it looks for the change request of a branch that somebody else may have pushed just now.
const LOOKS: u32 = 4;
/// The pause between two of these looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(700);

/// What the head branch holds now.
enum Head {
    /// The promotion's commit. Where it was there before this try pushed it, its change request may be
    /// about to be opened by whoever did.
    Ready { commit: String, existed: bool, found: bool, draft: Draft },
    /// The base has every value already.
    Needless { base: String, existed: bool },
}

/// Where a change request is to be, and what it is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: ForgeKind,
    pub(crate) url: &'a str,
    pub(crate) base: &'a str,
    pub(crate) settings: &'a Settings,
}

/// Brings the order's change request to where it should be. In a box from the start: three of them side by side
/// would not have room on the stack of a thread.
pub(crate) fn deliver<'a>(
    inner: &'a Inner,
    order: &'a Order,
    wanted: Wanted<'a>,
    came: Instant,
) -> Boxed<'a, Delivered> {
    Box::pin(carry_out(inner, order, wanted, came))
}

async fn carry_out(
    inner: &Inner,
    order: &Order,
    wanted: Wanted<'_>,
    came: Instant,
) -> Result<Delivered, DeliveryError> {
    let Wanted { kind, url, base, settings } = wanted;
    settings.check()?;
    let forge = inner.forge(order, kind, url)?;
    let branch = order.branch();
    if branch == base {
        let what = format!("it comes to {branch}, which change requests go to: let it begin otherwise");
        return Err(TemplateError::new("branch", what).into());
    }
    if order.retried
        && let Some(done) = find_earlier(inner, &forge, order, wanted, &branch).await?
    {
        return Ok(done);
    }
    match bring(inner, order, wanted, &branch, came).await? {
        Head::Ready { commit, existed, found, draft } => {
            let looks = match (found, existed || order.retried) {
                (true, _) => LOOKS,
                // No open change request comes from a branch that was not there.
                (false, existed) => u32::from(existed),
            };
            let found = match open_one(&forge, &draft, looks).await? {
                Some(open) => adopt(&forge, order, open, &draft).await?,
                // It was open when its commit was found not to do: who has ended it since is heard.
                None if order.anew.is_some()
                    && let Some(done) = find_earlier(inner, &forge, order, wanted, &branch).await? =>
                {
                    return Ok(done);
                }
                None => open(&forge, order, &draft).await?,
            };
            // Merged while it was written to, it may have brought what the branch held before.
            let merged = matches!(found.state, State::Merged { .. })
                && merged::brought(inner, &forge, order, &found, Some(&commit)).await?.is_some();
            let request = equipped(&forge, order, settings, found).await?;
            Ok(Delivered::Proposed { request: ChangeRequest { head_commit: commit, ..request }, merged })
        }
        Head::Needless { base: commit, existed } => {
            if existed && let Some(open) = forge.find_open(&branch, base).await? {
                let why = "The branch that this goes to has these values already.";
                order.permit.check()?;
                close(&forge, order, open.request.number, why).await?;
            }
            Ok(Delivered::AlreadySet { commit })
        }
    }
}

/// What an earlier try of this very promotion has led to, in this round.
async fn find_earlier(
    inner: &Inner,
    forge: &AnyForge,
    order: &Order,
    wanted: Wanted<'_>,
    branch: &str,
) -> Result<Option<Delivered>, DeliveryError> {
    // A person's no counts until another one was opened and merged: they come newest first.
    let mut reopen = order.reopen;
    for found in forge.find(branch, wanted.base, order.created).await? {
        if order.anew.is_some() && found.state == State::Open {
            return Ok(None);
        }
        if !is_of(forge, order, &found).await? {
            continue;
        }
        let found = forge.confirmed(found).await?;
        match found.state {
            State::Open => {
                // Where it is not there, or its forge does not show it yet, the branch itself tells.
                let head = &found.request.head_commit;
                let Some(head_commit) = merged::pushed(forge, &order.known_by(), head).await? else {
                    continue;
                };
                // A commit that only has its message is replaced.
                if !own::is_own_head(inner, order, &head_commit).await? {
                    continue;
                }
                let request = equipped(forge, order, wanted.settings, found).await?;
                let request = ChangeRequest { head_commit, ..request };
                return Ok(Some(Delivered::Proposed { request, merged: false }));
            }
            // One that brought something else is no end: the base tells whether this is still to do.
            State::Merged { .. } => {
                if merged::brought(inner, forge, order, &found, None).await?.is_some() {
                    return Ok(Some(Delivered::Proposed { request: found.request, merged: true }));
                }
                reopen = true;
            }
            State::Closed if reopen => {}
            State::Closed => return Ok(Some(Delivered::Rejected { request: found.request })),
        }
    }
    Ok(None)
}

/// Whether a change request is of this promotion and round: by its mark or, where people have rewritten the
/// body, by the commit that it carries. A merged one also is by its commit where the mark is another
/// promotion's: its text is written after its branch, and somebody may have merged in between. Not where it
/// is an earlier round's, which has ended before this one began: Gitea moves the head that it shows on with
/// the branch, and the files would be the same.
async fn is_of(forge: &AnyForge, order: &Order, found: &Found) -> Result<bool, ForgeError> {
    if let Some(round) = mark::round_marked(&found.body, &order.promotion) {
        return Ok(round == order.round);
    }
    match found.state {
        State::Open | State::Closed if mark::is_marked(&found.body) => Ok(false),
        _ => Ok(merged::pushed(forge, &order.known_by(), &found.request.head_commit).await?.is_some()),
    }
}

/// Brings the head branch to where it should be. The cache of its repository is built anew if that is at fault.
async fn bring(
    inner: &Inner,
    order: &Order,
    wanted: Wanted<'_>,
    branch: &str,
    came: Instant,
) -> Result<Head, DeliveryError> {
    let (access, repository) = inner.repository(order, wanted.url)?;
    let want = repository.want(&access, wanted.base, branch);
    let mut cache = repository.lock(&access).await;
    let mut result = prepare(inner, order, wanted, &access, &mut cache, (branch, &want), came).await;
    if inner.heals(order, &mut cache, &result) {
        result = prepare(inner, order, wanted, &access, &mut cache, (branch, &want), came).await;
    }
    if result.is_ok() {
        cache.trust();
    }
    result
}

/// Has it hold a commit that sets the values, on top of the base as it is now.
async fn prepare(
    inner: &Inner,
    order: &Order,
    wanted: Wanted<'_>,
    access: &Access,
    cache: &mut Cache,
    (branch, want): (&str, &Want<'_>),
    came: Instant,
) -> Result<Head, DeliveryError> {
    let Wanted { kind, base, settings, .. } = wanted;
    let repository = access.address.text.clone();
    let mut since = came;
    for _ in 0..TRIES {
        let both = (base, Some(want));
        let fetched = cache.tips(&inner.git, access, &inner.counters, both, since).await?;
        let existed = fetched.head.is_some();
        let on = &fetched.base.id;
        let edit = edit(inner, order, access, cache, (base, on)).await?;
        if edit.files.is_empty() {
            return Ok(Head::Needless { base: fetched.base.id, existed });
        }
        let text = inner.text(order, body::message(order, &edit.values, &edit.onto));
        let draft = Draft {
            head: branch.into(),
            base: base.into(),
            title: body::title(order, settings)?,
            body: body::body(order, settings, &edit.values, kind)?,
            is_draft: settings.draft,
        };
        if let Some(head) = &fetched.head {
            // The message says what the files held before. A base that has moved elsewhere is no reason to push
            // again, and to have it reviewed again, unless the forge wants the commit on top of the base. A
            // commit that Sluice would not make, although it has the message, is replaced.
            let is_there = order.anew != Some(Stale::Behind) || head.parents == [on.as_str()];
            if is_there
                && head.message.trim() == text.message.trim()
                && own::is_own(inner, order, access, cache, (base, on), head).await?
            {
                return Ok(Head::Ready { commit: head.id.clone(), existed, found: true, draft });
            }
        }
        let commit = cache.commit(&inner.git, access, on, &edit.files, &text).await?;
        cache.remember_own(access, base, &order.known_by(), &commit);
        order.permit.check()?;
        fault::point("before-push");
        let lease = Lease::Seen(fetched.head.as_ref().map(|h| h.id.as_str()));
        let pushed = cache.push(&inner.git, access, &inner.counters, &commit, branch, lease).await?;
        fault::point("after-push");
        if pushed != Pushed::Moved {
            let found = pushed == Pushed::There;
            return Ok(Head::Ready { commit, existed, found, draft });
        }
        since = Instant::now();
    }
    Err(GitError::Contended { repository, branch: branch.into(), tries: TRIES }.into())
}

/// The one open change request from the branch, after so many looks at most. Not every forge refuses a second
/// one that is opened in the same moment (Gitea and Forgejo look first and insert then), but of two who push
/// the same branch one is told that it was not the first.
async fn open_one(forge: &AnyForge, draft: &Draft, looks: u32) -> Result<Option<Found>, ForgeError> {
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let open = forge.find_open(&draft.head, &draft.base).await?;
        if open.is_some() {
            return Ok(open);
        }
    }
    Ok(None)
}

/// Opens one, or has the one say it that turns out to be there.
async fn open(forge: &AnyForge, order: &Order, draft: &Draft) -> Result<Found, DeliveryError> {
    order.permit.check()?;
    fault::point("before-open");
    let mut opened = match forge.open(draft).await {
        Err(error) if error.is_conflict() || error.may_have_happened() => {
            match forge.find_open(&draft.head, &draft.base).await {
                Ok(Some(open)) => adopt(forge, order, open, draft).await,
                _ => Err(error.into()),
            }
        }
        other => other.map_err(DeliveryError::from),
    };
    fault::point("after-open");
    if let Ok(found) = &mut opened
        && draft.is_draft
        && !found.is_draft
    {
        found.request.notes.push("its forge has no drafts here: it is open for review at once".into());
    }
    opened
}

/// A change request with all that it is to have beside its text. What its forge does not take is noted,
/// and is no failure: the request stands.
async fn equipped(
    forge: &AnyForge,
    order: &Order,
    settings: &Settings,
    found: Found,
) -> Result<ChangeRequest, DeliveryError> {
    if found.state != State::Open {
        return Ok(found.request);
    }
    let notes = extras::add(forge, &order.permit, settings, &found).await?;
    let mut request = found.request;
    request.notes.extend(notes);
    Ok(request)
}

/// Closes a change request and says why below it. Closed first: whoever comes after a death in
/// between finds it closed and says nothing twice. The Promotion tells why in any case, so that a
/// forge that takes no comment is no failure.
pub(crate) async fn close(forge: &AnyForge, order: &Order, number: u64, why: &str) -> Result<(), ForgeError> {
    forge.close(number).await?;
    fault::point("after-close");
    if let Err(error) = forge.comment(number, why).await {
        let (promotion, repository) = (&order.promotion, order.repository());
        tracing::warn!(
            promotion,
            repository,
            number,
            %error,
            "a change request was closed, and its forge does not take why"
        );
    }
    Ok(())
}

async fn adopt(forge: &AnyForge, order: &Order, open: Found, draft: &Draft) -> Result<Found, DeliveryError> {
    if draft.is_said_by(&open) {
        return Ok(open);
    }
    order.permit.check()?;
    // Whether it is one still is for people to say, once it is open.
    let draft = Draft { is_draft: open.is_draft, ..draft.clone() };
    Ok(forge.update(open.request.number, &draft).await?)
}
