//! A program that receives webhooks and, at `/events`, events.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

/// A call as the receiver got it.
#[derive(Clone, Debug)]
pub struct ReceivedCall {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ReceivedCall {
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().into()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The status and the text of an answer.
pub type ReceiverAnswer = (u16, &'static str);

/// A receiver of webhooks and, at `/events`, of events. Like notification-controller, the receiver answers 429 to a
/// repeated event.
#[derive(Clone, Default)]
pub struct Receiver {
    pub host: String,
    calls_by_path: Arc<Mutex<BTreeMap<String, Vec<ReceivedCall>>>>,
    /// The next answers by path. A path without an entry answers 202.
    answers: Arc<Mutex<BTreeMap<String, Vec<ReceiverAnswer>>>>,
}

impl Receiver {
    pub async fn start() -> Result<Receiver> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Receiver { host: listener.local_addr()?.to_string(), ..Receiver::default() };
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(receiver)
    }

    /// Returns the flags of a controller that calls the receiver.
    pub fn flags(&self) -> [String; 3] {
        [
            "--insecure-webhook-http".into(),
            "--insecure-webhook-private-addresses".into(),
            format!("--events-addr=http://{}/events", self.host),
        ]
    }

    pub fn calls(&self, path: &str) -> Vec<ReceivedCall> {
        self.calls_by_path.lock().unwrap().get(path).cloned().unwrap_or_default()
    }

    /// Returns the events about an object, in the order of their arrival.
    pub fn events_about(&self, kind: &str, name: &str) -> Vec<Value> {
        let all = self.calls("/events").into_iter().map(|call| call.json());
        all.filter(|event| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name)
            .collect()
    }

    /// Returns how many events came for a pipeline, and how many of these were not repetitions.
    pub fn events(&self, pipeline: &str) -> (usize, usize) {
        let events = self.events_about("Pipeline", pipeline);
        let tokens: HashSet<String> =
            events.iter().map(|e| e["metadata"]["pipelines.weave.works/token"].to_string()).collect();
        (events.len(), tokens.len())
    }

    pub fn set_answers(&self, path: &str, answers: &[ReceiverAnswer]) {
        self.answers.lock().unwrap().insert(path.into(), answers.to_vec());
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let path = uri.path().to_string();
    let call = ReceivedCall { headers, body };
    let mut calls_by_path = receiver.calls_by_path.lock().unwrap();
    let calls = calls_by_path.entry(path.clone()).or_default();
    let token = |call: &ReceivedCall| call.json()["metadata"]["pipelines.weave.works/token"].to_string();
    let repeated = path == "/events" && calls.iter().any(|c| token(c) == token(&call));
    calls.push(call);
    if repeated {
        return (StatusCode::TOO_MANY_REQUESTS, "");
    }
    let mut answers = receiver.answers.lock().unwrap();
    let (status, text) = match answers.get_mut(&path) {
        Some(answers) if !answers.is_empty() => answers.remove(0),
        _ => (202, ""),
    };
    (StatusCode::from_u16(status).unwrap(), text)
}
