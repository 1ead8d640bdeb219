//! The other side of a webhook reports what became of a promotion. It shows the token that came with the
//! call, which is good for that promotion in that round, and for nothing else.

use http::StatusCode;
use jiff::Timestamp;
use ring::hmac;
use serde::Deserialize;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Callback, CallbackState, Phase, Promotion};

use super::answer::Answer;
use super::keys::{Purpose, Unavailable};
use super::server::{Call, Hook};
use super::store::{Change, Stands};
use crate::intake::PipelineKey;
use crate::translate;

/// The longest message that is kept, in bytes.
const LONGEST: usize = 1000;

/// What a token is for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The pipeline.
    pub pipeline: &'a PipelineKey,
    /// The promotion's name.
    pub promotion: &'a str,
}

/// What a token says that it is for, beside its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The promotion's own identity.
    pub uid: &'a str,
    /// Which round of it.
    pub round: u32,
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

/// The token for a promotion in a round, made with the pipeline's key.
pub fn mint(key: &[u8], subject: Subject<'_>, uid: &str, round: u32) -> String {
    let tag =
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text(subject, Claim { uid, round }).as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{uid}.{round}.{hex}")
}

fn text(Subject { pipeline, promotion }: Subject<'_>, Claim { uid, round }: Claim<'_>) -> String {
    format!("sluice callback\n{pipeline}\n{promotion}\n{uid}\n{round}")
}

/// What a token claims, and the signature that is to prove it.
pub fn read(token: &str) -> Option<(Claim<'_>, &str)> {
    let mut parts = token.split('.');
    let (uid, round, tag) = (parts.next()?, parts.next()?, parts.next()?);
    let claim = Claim { uid, round: round.parse().ok().filter(|n: &u32| n.to_string() == round)? };
    (parts.next().is_none() && !uid.is_empty()).then_some((claim, tag))
}

/// Whether a claim was made with one of these keys.
pub fn is_minted(subject: Subject<'_>, claim: Claim<'_>, tag: &str, keys: &[&[u8]]) -> bool {
    let header = format!("sha256={tag}");
    let body = text(subject, claim);
    super::signature::verify(Some(header.as_bytes()), body.as_bytes(), keys.iter().copied()).is_ok()
}

/// The Secrets with whose keys tokens of a pipeline may have been made. Each once.
fn secrets(pipeline: &Pipeline) -> Vec<&str> {
    let spec = &pipeline.spec;
    let policies = spec.environments.iter().filter_map(|e| spec.policy(e));
    let mut names: Vec<&str> = policies
        .filter_map(|p| p.strategy.as_ref()?.secret_ref.as_ref())
        .map(|secret| secret.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Hook {
    /// A call that reports what became of a promotion.
    pub(super) async fn callback(&self, call: Call<'_>, promotion: &str) -> Result<Answer, Unavailable> {
        let mut given = call.headers.get_all("authorization").iter().filter_map(|value| value.to_str().ok());
        let token = given.next().and_then(|value| value.strip_prefix("Bearer "));
        let Some((claim, tag)) = token.and_then(read) else { return Ok(Answer::BadToken) };
        let subject = Subject { pipeline: &call.place.pipeline, promotion };
        let secrets = call.pipeline.map(secrets).unwrap_or_default();
        let shows = |keys: &[&[u8]]| is_minted(subject, claim, tag, keys);
        if !self.knows(&call, &secrets, Purpose::Hook, shows).await? {
            return Ok(Answer::BadToken);
        }
        if let Err(answer) = self.take(&call.place.pipeline) {
            return Ok(answer);
        }
        let word: Word = match serde_json::from_slice(call.body) {
            Ok(word) => word,
            Err(error) => {
                let status =
                    if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
                let why = format!(
                    "the body is not as it should be: {error}: write {{\"state\": \"done\"}}, with one of accepted, \
                     done and failed, and a message if there is one"
                );
                return Ok(Answer::Wrong(status, why));
            }
        };
        let namespace = &call.place.pipeline.namespace;
        let now = Timestamp::now();
        let said = |object: &Promotion| after(object, claim, &word, now);
        Ok(match self.store.said(namespace, promotion, said).await? {
            Stands::Written => Answer::Heard,
            Stands::AsBefore => Answer::NothingToDo,
            Stands::Gone => Answer::BadToken,
            Stands::Refused(why) => Answer::Wrong(StatusCode::CONFLICT, why),
        })
    }
}

/// What a word changes in the record of a promotion: a later state takes the place of an earlier one.
pub fn after(object: &Promotion, claim: Claim<'_>, word: &Word, now: Timestamp) -> Change {
    let status = object.status.clone().unwrap_or_default();
    if object.metadata.uid.as_deref() != Some(claim.uid) || status.round != claim.round {
        return Change::Refused(
            "this promotion was begun anew since that call: the call that was made then has a token of its own".into(),
        );
    }
    let before = status.callback.filter(|said| said.round == claim.round);
    if before.as_ref().is_some_and(|said| said.state >= word.state) {
        return Change::Nothing;
    }
    let ended = [Phase::Succeeded, Phase::Failed, Phase::Rejected, Phase::Superseded, Phase::Cancelled];
    if ended.contains(&status.phase) {
        return Change::Refused(format!("this promotion has ended: it is {:?}", status.phase));
    }
    let mut message = word.message.clone();
    crate::record::cut(&mut message, LONGEST);
    let said = Callback { round: claim.round, state: word.state, message, at: translate::time(now) };
    Change::Write(serde_json::json!({ "callback": said }))
}
