//! The other side of a webhook reports what became of a promotion. It shows the token that came with the
//! call, which is good for that promotion in that round, and for nothing else. It is made with `callback-key`
//! of the promotion's environment, and no other key of the pipeline makes it.

use jiff::Timestamp;
use ring::hmac;
use serde::Deserialize;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Callback, CallbackState, Phase, Promotion};

use super::answer::{Answer, Wrong};
use super::call::Call;
use super::hmac_keys::{Purpose, Unavailable};
use super::server::HookServer;
use super::status_change::{Change, MAX_TEXT};
use super::store::Stands;
use crate::key::PipelineKey;
use crate::translate;

/// What a token is for.
#[derive(Clone, Copy, Debug)]
pub struct TokenSubject<'a> {
    /// The pipeline.
    pub pipeline: &'a PipelineKey,
    /// The promotion's name.
    pub promotion: &'a str,
}

/// What a token says that it is for, beside its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenClaim<'a> {
    /// The promotion's own identity.
    pub uid: &'a str,
    /// Which round of it.
    pub round: u32,
    /// The environment that it goes into, whose key has made the token.
    pub environment: &'a str,
}

/// What the other side says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Word {
    /// `accepted`, `done` or `failed`.
    pub state: CallbackState,
    /// In its own words.
    #[serde(default)]
    pub message: String,
}

/// What tokens are made for, and nothing else is signed for.
const USE: &[u8] = b"sluice call-back token";

/// The key that makes tokens, from the key of an environment: what the one makes is never a signature by the
/// other, whatever is signed. White space around the key does not count.
fn derived(key: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.trim_ascii()), USE)
}

/// The token for a promotion in a round, made with the key of its environment.
pub fn mint(key: &[u8], subject: TokenSubject<'_>, claim: TokenClaim<'_>) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, derived(key).as_ref());
    let tag = hmac::sign(&key, text(subject, claim).as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let TokenClaim { uid, round, environment } = claim;
    format!("{uid}.{round}.{environment}.{hex}")
}

fn text(TokenSubject { pipeline, promotion }: TokenSubject<'_>, claim: TokenClaim<'_>) -> String {
    let TokenClaim { uid, round, environment } = claim;
    format!("sluice callback\n{pipeline}\n{promotion}\n{environment}\n{uid}\n{round}")
}

/// What a token claims, and the signature that is to prove it. The name of an environment has no dot.
pub fn read(token: &str) -> Option<(TokenClaim<'_>, &str)> {
    let [uid, round, environment, tag] = *token.split('.').collect::<Vec<_>>() else { return None };
    let round = round.parse().ok().filter(|n: &u32| n.to_string() == round)?;
    (!uid.is_empty()).then_some((TokenClaim { uid, round, environment }, tag))
}

/// Whether a claim was made with one of these keys.
pub fn is_minted(subject: TokenSubject<'_>, claim: TokenClaim<'_>, tag: &str, keys: &[&[u8]]) -> bool {
    let header = format!("sha256={tag}");
    let body = text(subject, claim);
    // A key of white space is none.
    let keys: Vec<hmac::Tag> =
        keys.iter().filter(|key| !key.trim_ascii().is_empty()).map(|key| derived(key)).collect();
    super::signature::verify(Some(header.as_bytes()), body.as_bytes(), keys.iter().map(AsRef::as_ref)).is_ok()
}

/// The Secret with whose key the tokens for promotions into an environment are made.
fn secret<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a str> {
    let into = pipeline.spec.environments.iter().find(|e| e.name == environment)?;
    pipeline.spec.policy(into)?.secret()
}

impl HookServer {
    /// A call that reports what became of a promotion.
    pub(super) async fn callback(&self, call: Call<'_>, promotion: &str) -> Result<Answer, Unavailable> {
        let mut given = call.headers.get_all("authorization").iter().filter_map(|value| value.to_str().ok());
        let token = given.next().and_then(|value| value.strip_prefix("Bearer "));
        let Some((claim, tag)) = token.and_then(read) else { return Ok(Answer::Refused) };
        let subject = TokenSubject { pipeline: &call.place.pipeline, promotion };
        let secrets: Vec<&str> =
            call.pipeline.and_then(|p| secret(p, claim.environment)).into_iter().collect();
        let shows = |keys: &[&[u8]]| is_minted(subject, claim, tag, keys);
        let wanted = [Purpose::Callback];
        let shown = self.shown(&call, &secrets, &wanted, shows).await?;
        if !shown.is_key() {
            return Ok(self.refuse(&call, &shown, &wanted));
        }
        if let Err(answer) = self.take(&call.place.pipeline, true) {
            return Ok(answer);
        }
        let word: Word = match call.read() {
            Ok(word) => word,
            Err(error) => {
                let wrong = if error.is_data() { Wrong::Unfit } else { Wrong::Malformed };
                let why = format!(
                    "the body is not as it should be: {error}: write {{\"state\": \"done\"}}, with one of accepted, \
                     done and failed, and a message if there is one"
                );
                return Ok(Answer::Wrong(wrong, why));
            }
        };
        let namespace = &call.place.pipeline.namespace;
        let now = Timestamp::now();
        let said = |object: &Promotion| after(object, subject, claim, &word, now);
        let _place = self.queue.enter(&call.place.pipeline).await?;
        Ok(match self.store.said(namespace, promotion, said).await? {
            Stands::Written => Answer::Heard,
            Stands::AsBefore => Answer::NothingToDo,
            Stands::Gone => Answer::Refused,
            Stands::Refused(why) => Answer::Wrong(Wrong::Conflict, why),
        })
    }
}

/// What a word changes in the record of a promotion: a later state takes the place of an earlier one, and `done` that of
/// `failed`, since the receiver may have fixed the cause and tried again. A
/// record of another pipeline or environment is none of this caller's: a key makes tokens for its own.
pub fn after(
    object: &Promotion,
    subject: TokenSubject<'_>,
    claim: TokenClaim<'_>,
    word: &Word,
    now: Timestamp,
) -> Change {
    if object.spec.pipeline != subject.pipeline.name || object.spec.environment != claim.environment {
        return Change::NotTheirs;
    }
    let status = object.status.clone().unwrap_or_default();
    if object.metadata.uid.as_deref() != Some(claim.uid) || status.round != claim.round {
        return Change::Refused(
            "this promotion was begun anew since that call: the call that was made then has a token of its own".into(),
        );
    }
    let before = status.callback.filter(|said| said.round == claim.round);
    let is_fixed = word.state == CallbackState::Done
        && before.as_ref().is_some_and(|b| b.state == CallbackState::Failed);
    if !is_fixed && before.as_ref().is_some_and(|said| said.state >= word.state) {
        return Change::Nothing;
    }
    let ended = [Phase::Succeeded, Phase::Failed, Phase::Rejected, Phase::Superseded, Phase::Cancelled];
    let is_resumed = is_fixed && status.phase == Phase::Failed;
    if ended.contains(&status.phase) && !is_resumed {
        return Change::Refused(format!("this promotion has ended: it is {:?}", status.phase));
    }
    let mut message = word.message.clone();
    crate::record::cut(&mut message, MAX_TEXT);
    let said = Callback { round: claim.round, state: word.state, message, at: translate::time(now) };
    Change::Write(serde_json::json!({ "callback": said }))
}
