//! The time that the body of a request may take. A connection whose body does not end would be held from others.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures::TryStreamExt;
use futures::stream::try_unfold;
use tokio::time::{Instant, timeout_at};

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the request with a body that fails if it takes too long.
pub(crate) async fn limit_time(request: Request) -> Request {
    let deadline = Instant::now() + BODY_TIMEOUT;
    request.map(|body| {
        let pieces = body.into_data_stream();
        Body::from_stream(try_unfold(pieces, move |mut pieces| async move {
            let next = timeout_at(deadline, pieces.try_next()).await;
            let piece: Option<Bytes> = next.map_err(|_| axum::Error::new(TooSlow))??;
            Ok::<_, axum::Error>(piece.map(|piece| (piece, pieces)))
        }))
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the body took longer than {} seconds", BODY_TIMEOUT.as_secs())]
struct TooSlow;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What a handler reads of a body with these pieces, each after a pause.
    async fn read(pause: Duration, pieces: usize) -> Result<Bytes, axum::Error> {
        let body = futures::stream::unfold(0, move |n| async move {
            tokio::time::sleep(pause).await;
            (n < pieces).then(|| (Ok::<_, Infallible>(Bytes::from("ab")), n + 1))
        });
        let request = limit_time(Request::new(Body::from_stream(body))).await;
        axum::body::to_bytes(request.into_body(), 1 << 10).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_takes_too_long_fails_and_is_not_cut() {
        assert_eq!(read(Duration::from_secs(1), 5).await.unwrap(), "ababababab");
        assert!(
            read(Duration::from_secs(1), 20)
                .await
                .unwrap_err()
                .to_string()
                .contains("longer than 10 seconds")
        );
        assert!(read(Duration::from_secs(1000), 1).await.is_err());
    }
}
