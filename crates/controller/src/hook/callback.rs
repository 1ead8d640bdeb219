//! The endpoint `/callback`: the receiver of a webhook reports the result of a promotion. The receiver shows the
//! token that the webhook's message contained, which is valid for one try of one promotion. Tokens are made with the
//! `callback-key` of the promotion's environment.

use jiff::Timestamp;
use ring::hmac;
use serde::Deserialize;
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Callback, CallbackState, Phase, Promotion, PromotionStatus};
use sluice_core::Time;
use sluice_core::hex::hex;

use super::answer::{CallError, HookAnswer};
use super::call::HookCall;
use super::hmac_keys::Purpose;
use super::server::HookServer;
use super::status_change::{MAX_TEXT, StatusChange};
use super::store::ChangeOutcome;
use crate::act::strategy;
use crate::pipeline_key::PipelineKey;

/// The promotion that a token is for, as the path of a call names it.
#[derive(Clone, Copy, Debug)]
pub struct TokenSubject<'a> {
    /// The pipeline of the promotion.
    pub pipeline: &'a PipelineKey,
    /// The name of the promotion.
    pub promotion: &'a str,
}

/// What a token contains about its promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenClaim<'a> {
    /// The UID of the promotion.
    pub uid: &'a str,
    /// The round of the promotion.
    pub round: u32,
    /// The try of the promotion: `status.retries`. Tokens of earlier versions of Sluice have none.
    pub retries: Option<u32>,
    /// The environment of the promotion, whose key has made the token.
    pub environment: &'a str,
}

/// The body of a call: what the receiver reports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackReport {
    /// `accepted`, `done` or `failed`.
    pub state: CallbackState,
    /// The receiver's text for people.
    #[serde(default)]
    pub message: String,
}

/// The text from which [`token_key`] derives a key. No other signature is made for this text.
const TOKEN_CONTEXT: &[u8] = b"sluice call-back token";

/// Derives the key of tokens from a `callback-key`, so that no token is a signature made with the `callback-key`,
/// and the reverse. White space around the key is ignored.
fn token_key(key: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.trim_ascii()), TOKEN_CONTEXT)
}

/// Makes the token for a try of a promotion with the `callback-key` of its environment.
pub fn mint(key: &[u8], subject: TokenSubject<'_>, claim: TokenClaim<'_>) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token_key(key).as_ref());
    let tag = hmac::sign(&key, signed_text(subject, claim).as_bytes());
    let TokenClaim { uid, round, retries, environment } = claim;
    let retries = retries.map_or(String::new(), |retries| format!("{retries}."));
    format!("{uid}.{round}.{retries}{environment}.{}", hex(tag))
}

fn signed_text(TokenSubject { pipeline, promotion }: TokenSubject<'_>, claim: TokenClaim<'_>) -> String {
    let TokenClaim { uid, round, retries, environment } = claim;
    let retries = retries.map_or(String::new(), |retries| format!("\n{retries}"));
    format!("sluice callback\n{pipeline}\n{promotion}\n{environment}\n{uid}\n{round}{retries}")
}

/// Splits a token into its claim and its signature, which is not verified. The name of an environment has no dot.
pub fn parse_token(token: &str) -> Option<(TokenClaim<'_>, &str)> {
    let number = |text: &str| text.parse().ok().filter(|n: &u32| n.to_string() == text);
    let (uid, round, retries, environment, tag) = match *token.split('.').collect::<Vec<_>>() {
        [uid, round, environment, tag] => (uid, round, None, environment, tag),
        [uid, round, retries, environment, tag] => (uid, round, Some(number(retries)?), environment, tag),
        _ => return None,
    };
    (!uid.is_empty()).then_some((TokenClaim { uid, round: number(round)?, retries, environment }, tag))
}

/// Returns true if a token was made with one of these keys.
pub fn is_minted(subject: TokenSubject<'_>, claim: TokenClaim<'_>, tag: &str, keys: &[&[u8]]) -> bool {
    let header = format!("sha256={tag}");
    let body = signed_text(subject, claim);
    // Keys of white space are ignored.
    let keys: Vec<hmac::Tag> =
        keys.iter().filter(|key| !key.trim_ascii().is_empty()).map(|key| token_key(key)).collect();
    super::signature::is_signed(header.as_bytes(), body.as_bytes(), keys.iter().map(AsRef::as_ref))
}

/// Returns the Secret with the key that makes the tokens for promotions into an environment.
fn token_secret<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a str> {
    let into = pipeline.spec.environments.iter().find(|e| e.name == environment)?;
    pipeline.spec.policy(into)?.secret()
}

impl HookServer {
    /// Handles the report of a webhook's receiver.
    pub(super) async fn handle_callback(
        &self,
        call: HookCall<'_>,
        promotion: &str,
    ) -> Result<HookAnswer, HookAnswer> {
        let mut values = call.headers.get_all("authorization").iter().filter_map(|value| value.to_str().ok());
        let token = values.next().and_then(|value| value.strip_prefix("Bearer "));
        let Some((claim, tag)) = token.and_then(parse_token) else { return Ok(HookAnswer::Refused) };
        let subject = TokenSubject { pipeline: &call.route.pipeline, promotion };
        let secrets: Vec<&str> =
            call.pipeline.and_then(|p| token_secret(p, claim.environment)).into_iter().collect();
        let shows = |keys: &[&[u8]]| is_minted(subject, claim, tag, keys);
        let accepted = [Purpose::Callback];
        let shown = self.shown_key(&call, &secrets, &accepted, shows).await?;
        self.authorize(&call, shown, &accepted)?;
        let report: CallbackReport = call.parse_request(|error| {
            format!(
                "the body is not valid: {error}; write {{\"state\": \"done\"}} with one of accepted, done and failed, \
                 and optionally a \"message\""
            )
        })?;
        let namespace = &call.route.pipeline.namespace;
        let now = Timestamp::now();
        let calls = |object: &Promotion| call.pipeline.is_some_and(|p| strategy::calls_receiver(p, object));
        let change =
            |object: &Promotion| status_change(object, calls(object), (subject, claim), &report, now);
        let _permit = self.queue.acquire(&call.route.pipeline).await?;
        Ok(match self.store.record_callback(namespace, promotion, change).await? {
            ChangeOutcome::Written => HookAnswer::Stored,
            ChangeOutcome::Unchanged => HookAnswer::NothingToDo,
            ChangeOutcome::Gone => HookAnswer::Refused,
            ChangeOutcome::Rejected(why) => HookAnswer::Error(CallError::Conflict, why),
        })
    }
}

/// Returns why no receiver can have been called in the current try; `None` if one may have been. The record of a call
/// follows the call, so the report of a fast receiver may come before it. The report is stored, and counts after that
/// record.
fn not_called(status: &PromotionStatus, calls_receiver: bool) -> Option<String> {
    if !calls_receiver {
        return Some(
            "the strategy of this promotion calls no receiver, so there is nothing to report".into(),
        );
    }
    let waits = status.gates.iter().find(|gate| !gate.open);
    match (status.phase, waits) {
        (Phase::Pending | Phase::Promoting, Some(gate)) => Some(format!(
            "no receiver was called in this try: the promotion waits (gate {}); report after the next call",
            gate.name
        )),
        (Phase::Proposed, _) => {
            Some("no receiver was called in this try: the promotion is a change request".into())
        }
        _ => None,
    }
}

/// Returns the change that a report makes to the status of a promotion. A later state replaces an earlier one, and
/// `done` replaces `failed`, since the receiver may have fixed the cause and tried again. A promotion of another
/// pipeline or environment is foreign to the caller: the holder of a key could make a token that names any
/// promotion. `calls_receiver` says whether the promotion's strategy calls a receiver, which may report.
pub fn status_change(
    object: &Promotion,
    calls_receiver: bool,
    (subject, claim): (TokenSubject<'_>, TokenClaim<'_>),
    report: &CallbackReport,
    now: Timestamp,
) -> StatusChange {
    if object.spec.pipeline != subject.pipeline.name || object.spec.environment != claim.environment {
        return StatusChange::Foreign;
    }
    let status = object.status.clone().unwrap_or_default();
    let is_of_this_try = status.is_of_this_try(claim.round, claim.retries);
    if object.metadata.uid.as_deref() != Some(claim.uid) || !is_of_this_try {
        return StatusChange::Rejected(
            "this token is for an earlier try of the promotion: use the token of the newest message".into(),
        );
    }
    let is_current =
        |c: &Callback| c.round == status.round && c.retries.is_none_or(|retries| retries == status.retries);
    let before = status.callback.as_ref().filter(|callback| is_current(callback));
    let is_fixed =
        report.state == CallbackState::Done && before.is_some_and(|b| b.state == CallbackState::Failed);
    if !is_fixed && before.is_some_and(|callback| callback.state >= report.state) {
        return StatusChange::Unchanged;
    }
    let ended = [Phase::Succeeded, Phase::Failed, Phase::Rejected, Phase::Superseded, Phase::Cancelled];
    let is_resumed = is_fixed && status.phase == Phase::Failed;
    if ended.contains(&status.phase) && !is_resumed {
        return StatusChange::Rejected(format!("this promotion has ended: it is {}", status.phase));
    }
    if let Some(why) = not_called(&status, calls_receiver) {
        return StatusChange::Rejected(why);
    }
    let message = crate::record::safe_message(&report.message, MAX_TEXT);
    let (round, retries) = (status.round, Some(status.retries));
    let callback = Callback { round, retries, state: report.state, message, at: Time::to_second(now) };
    StatusChange::Write(serde_json::json!({ "callback": callback }))
}
