//! The answers that are made and not sent yet. An answer stays in memory until its peer has read all of it, so a caller that
//! reads slowly gets no further answers. Streams of events are limited by their number, and do not count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sluice_core::access::Caller;
use sluice_core::lock::lock;
use sluice_core::slots::ByCallerKind;

use crate::problem::Problem;

/// The most bytes of the answers of all people, and the same of all service accounts.
const MAX_BYTES: usize = 32 << 20;
/// The most bytes of the answers of one person, or of all service accounts of a namespace.
const MAX_BYTES_OF_ONE: usize = 16 << 20;
/// The most bytes of the answer to an action that are sent in any case, because the action was carried out.
const MAX_ACTION_BYTES: usize = 64 << 10;

/// The answers of all callers. Copies share them.
#[derive(Clone)]
pub(crate) struct UnsentAnswers(ByCallerKind<Pool>);

impl Default for UnsentAnswers {
    fn default() -> Self {
        UnsentAnswers(ByCallerKind::new(Pool::default))
    }
}

/// The bytes of each limit group. Groups without answers are absent.
#[derive(Clone, Default)]
struct Pool(Arc<Mutex<HashMap<String, usize>>>);

impl Pool {
    /// Counts an answer. `None` if the group has its share: no group has more than it leaves to others, so that many groups
    /// together cannot take everything.
    fn take(&self, group: &str, bytes: usize, must: bool) -> Option<Taken> {
        let mut pool = lock(&self.0);
        let taken: usize = pool.values().sum();
        let own = pool.get(group).copied().unwrap_or_default() + bytes;
        let fits = own <= MAX_BYTES_OF_ONE && taken + bytes + own <= MAX_BYTES;
        // An answer that is larger than a share is sent if it is the only one.
        if !(fits || must || taken == 0) {
            return None;
        }
        pool.insert(group.into(), own);
        Some(Taken { pool: self.clone(), group: group.into(), bytes })
    }
}

/// The bytes of one answer. Dropping it releases them.
struct Taken {
    pool: Pool,
    group: String,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut pool = lock(&self.pool.0);
        if let Some(own) = pool.get_mut(&self.group) {
            *own -= self.bytes;
            if *own == 0 {
                pool.remove(&self.group);
            }
        }
    }
}

/// An answer and its bytes in the pool. The server drops it after the last byte was sent, and not when the body ends: the
/// server takes an answer from its body as a whole.
struct CountedAnswer {
    answer: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for CountedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// The caller of a request, as soon as it is known.
#[derive(Clone, Default)]
struct KnownCaller(Arc<OnceLock<Caller>>);

/// Notes who sent a request, so that its answer counts for this caller.
pub(crate) fn note_caller(request: &Extensions, caller: &Caller) {
    if let Some(KnownCaller(known)) = request.get() {
        let _ = known.set(caller.clone());
    }
}

/// Answers 429 if a caller has too many answers that it has not read. The answers to unknown callers are small.
pub(crate) async fn limit_unsent(
    State(unsent): State<UnsentAnswers>,
    mut request: Request,
    next: Next,
) -> Response {
    let known = KnownCaller::default();
    request.extensions_mut().insert(known.clone());
    let is_action = !request.method().is_safe();
    let response = next.run(request).await;
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let (Some(caller), Some(bytes @ 1..)) = (known.0.get(), bytes) else { return response };
    let must = is_action && bytes <= MAX_ACTION_BYTES;
    let Some(taken) = unsent.0.of(caller).take(caller.limit_group(), bytes, must) else {
        let detail = "too many bytes of answers wait to be read: read your other answers to their end, or ask for fewer rows";
        return Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).after(1).into_response();
    };
    let (parts, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(answer) => {
            let answer = CountedAnswer { answer, _taken: taken };
            Response::from_parts(parts, Body::from(Bytes::from_owner(answer)))
        }
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::serve_connection;

    const MIB: usize = 1 << 20;

    /// Opens a connection, and asks as this caller for 10 MiB.
    async fn ask(router: &Router, caller: &str) -> DuplexStream {
        let (mut peer, stream) = tokio::io::duplex(1 << 10);
        tokio::spawn(serve_connection(stream, router.clone()));
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-caller: {caller}\r\n\r\n");
        peer.write_all(request.as_bytes()).await.unwrap();
        peer
    }

    async fn status(peer: &mut DuplexStream) -> String {
        let mut line = [0; 12];
        peer.read_exact(&mut line).await.unwrap();
        String::from_utf8_lossy(&line[9..]).into()
    }

    #[tokio::test]
    async fn an_answer_counts_until_its_last_byte_is_sent() {
        let answer = async |request: Request| {
            let name = request.headers()["x-caller"].to_str().unwrap().to_string();
            note_caller(request.extensions(), &Caller { name, ..Caller::default() });
            vec![b'a'; 10 * MIB]
        };
        let limit = from_fn_with_state(UnsentAnswers::default(), limit_unsent);
        let router = Router::new().route("/", get(answer)).layer(limit);
        let mut unread = ask(&router, "eve").await;
        assert_eq!(status(&mut unread).await, "200");
        assert_eq!(status(&mut ask(&router, "eve").await).await, "429");
        assert_eq!(status(&mut ask(&router, "jane").await).await, "200");
        // All but the end.
        tokio::io::copy(&mut (&mut unread).take(10 * MIB as u64 - 4096), &mut tokio::io::sink())
            .await
            .unwrap();
        assert_eq!(status(&mut ask(&router, "eve").await).await, "429");
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await.unwrap();
        assert_eq!(status(&mut ask(&router, "eve").await).await, "200");
    }

    #[test]
    fn no_number_of_callers_takes_everything() {
        let pool = Pool::default();
        let take = |group: String| pool.take(&group, 2 * MIB, false);
        let taken: Vec<_> = (0..1000).filter_map(|number| take(format!("eve-{}", number % 20))).collect();
        assert!(taken.len() < 16, "{}", taken.len());
        assert!(pool.take("jane", MIB, false).is_some());
        assert!(pool.take("jane", 20 * MIB, false).is_none());
        assert!(pool.take("eve-0", 2 * MIB, true).is_some(), "an action is answered");
        drop(taken);
        assert!(pool.0.lock().unwrap().is_empty(), "callers without answers are forgotten");
        assert!(pool.take("jane", 40 * MIB, false).is_some(), "the only answer may be larger");
    }

    #[test]
    fn people_and_service_accounts_have_the_same_apart_from_each_other() {
        let unsent = UnsentAnswers::default();
        let caller = |name: &str| Caller { name: name.into(), ..Caller::default() };
        let take = |name: &str| {
            let caller = caller(name);
            unsent.0.of(&caller).take(caller.limit_group(), 9 * MIB, false)
        };
        let _robot = take("system:serviceaccount:team:robot-1").unwrap();
        assert!(take("system:serviceaccount:team:robot-2").is_none());
        assert!(take("jane").is_some());
    }
}
