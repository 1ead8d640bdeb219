//! A receiver that records every call byte by byte, and answers as the test sets it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};

/// A call as it came.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl RecordedCall {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// How a call is answered.
#[derive(Clone)]
pub enum Reply {
    With(u16, Vec<(&'static str, String)>, String),
    /// A body without end, as fast as it is read.
    Endless(u16),
    /// A head, and then a byte now and then.
    Slow(u16),
    /// No answer, for ever.
    Hang,
    /// A head that is none, and the end.
    Broken,
}

#[derive(Default)]
struct ReceiverState {
    calls: Vec<RecordedCall>,
    replies: VecDeque<Reply>,
}

#[derive(Clone)]
pub struct Receiver {
    /// Host and port.
    pub host: String,
    state: Arc<Mutex<ReceiverState>>,
}

impl Receiver {
    pub async fn start() -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let receiver = Receiver { host, state: Arc::default() };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    /// An address of it.
    pub fn url(&self) -> String {
        format!("http://{}/hooks/XoLZfgK?team=a", self.host)
    }

    /// What befalls the next calls; those after that are answered with 202.
    pub fn reply(&self, reply: Reply) -> &Self {
        self.state.lock().unwrap().replies.push_back(reply);
        self
    }

    /// What came since the last look.
    pub fn calls(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

async fn take(
    State(receiver): State<Receiver>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path_and_query().unwrap().to_string();
    let reply = {
        let mut state = receiver.state.lock().unwrap();
        state.calls.push(RecordedCall { method, path, headers, body });
        state.replies.pop_front()
    };
    let with = |status: u16, body: Body| Response::builder().status(status).body(body).unwrap();
    match reply.unwrap_or(Reply::With(202, vec![], String::new())) {
        Reply::With(status, headers, text) => {
            let mut response = with(status, Body::from(text));
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Reply::Endless(status) => {
            let chunk = Bytes::from("x".repeat(1 << 16));
            let chunks = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
            with(status, Body::from_stream(chunks))
        }
        Reply::Slow(status) => {
            let drops = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
            });
            with(status, Body::from_stream(drops))
        }
        Reply::Hang => std::future::pending().await,
        // Dropped in the middle of the head: the connection ends without an answer.
        Reply::Broken => panic!("the connection ends here"),
    }
}
