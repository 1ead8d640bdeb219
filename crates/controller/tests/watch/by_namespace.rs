//! A session whose user may read only some namespaces: a change of the namespaces ends no watch of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use kube::Client;
use sluice_controller::ObserveScope;
use sluice_controller::watch::observed_memory::ObservedMemory;
use sluice_core::fleet::{ClusterEvent, Kind};
use sluice_testkit::{WAIT_TIMEOUT, eventually};

use crate::fake_api_server;
use crate::run;
use crate::running_session::RunningSession;

/// How often Deployments were listed, by path.
type Lists = Arc<Mutex<BTreeMap<String, usize>>>;

/// Lists and watches are forbidden, except of Deployments in a namespace.
fn answer(lists: &Lists, request: &Request) -> Response {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let json = |text: &'static str| ([(CONTENT_TYPE, "application/json")], text).into_response();
    match path {
        "/version" => json("{}"),
        "/apis" => json(r#"{"groups":[]}"#),
        _ if !path.contains("/namespaces/") || !path.ends_with("/deployments") => {
            let status =
                r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"no"}"#;
            (StatusCode::FORBIDDEN, json(status)).into_response()
        }
        _ if query.contains("watch") => {
            let silent = futures::stream::pending::<Result<Bytes, Infallible>>();
            ([(CONTENT_TYPE, "application/json")], Body::from_stream(silent)).into_response()
        }
        _ => {
            *lists.lock().unwrap().entry(path.into()).or_default() += 1;
            json(r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}"#)
        }
    }
}

#[test]
fn a_change_of_the_namespaces_lists_only_the_new_ones() -> Result<()> {
    run(async {
        let counted = Lists::default();
        let shared = counted.clone();
        let app = Router::new().fallback(move |request: Request| async move { answer(&shared, &request) });
        let config = fake_api_server::start(app).await?;
        let (client, memory) = (Client::try_from(config)?, ObservedMemory::new(1 << 20));
        let mut session = RunningSession::start(client, "prod", ObserveScope::Targets, memory);
        // Each new namespace is listed, and no other one again.
        for n in 0..8 {
            let new = format!("x{n}");
            session
                .namespaces
                .send_modify(|known| *known = BTreeSet::from(["apps".to_string(), new.clone()]));
            let is_new = |event| match event {
                ClusterEvent::Listed(Kind::Deployment, Some(listed), _) => (listed == new).then_some(()),
                _ => None,
            };
            session.first(is_new).await?;
        }
        let apps = |counts: &BTreeMap<String, usize>| {
            counts.iter().find(|(path, _)| path.contains("/apps/")).map(|(_, count)| *count)
        };
        eventually(WAIT_TIMEOUT, || async {
            ensure!(apps(&counted.lock().unwrap()).is_some(), "it is not listed yet");
            Ok(())
        })
        .await?;
        let counts = counted.lock().unwrap().clone();
        ensure!(apps(&counts) == Some(1) && counts.values().all(|count| *count == 1), "{counts:?}");
        Ok(())
    })
}
