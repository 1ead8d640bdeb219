//! The HTTP server: authentication, repositories, and counting of requests.

use super::accounts;
use super::cgi;
use super::repo::Repo;
use super::tap::{RequestKind, Requests, Tap};
use crate::Scratch;
use crate::background_server::{BackgroundServer, send_at_once};
use anyhow::{Result, anyhow};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode, header};
use axum::serve::ListenerExt;
use base64::Engine;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A git server on 127.0.0.1. It runs on its own thread, so that it serves tests of any runtime. Dropping it ends it and
/// removes its repositories.
pub struct GitServer {
    state: Arc<ServerState>,
    server: BackgroundServer,
}

struct ServerState {
    root: PathBuf,
    /// For the requests to all repositories.
    tap: Tap,
    /// For the requests to each repository, by name.
    taps: Mutex<HashMap<String, Arc<Tap>>>,
    _scratch: Scratch,
}

impl GitServer {
    /// A user who may read and push.
    pub const USER: &'static str = accounts::USER;
    /// The password of [`GitServer::USER`].
    pub const PASSWORD: &'static str = accounts::PASSWORD;
    /// A user who may only read.
    pub const READER: &'static str = accounts::READER;
    /// The password of [`GitServer::READER`].
    pub const READER_PASSWORD: &'static str = accounts::READER_PASSWORD;
    /// The user for Flux or its stand-in, who may only read. The requests of this user are not counted and meet no
    /// faults, so that [`Requests`] counts those of Sluice.
    pub const FLUX: &'static str = accounts::FLUX;
    /// The password of [`GitServer::FLUX`].
    pub const FLUX_PASSWORD: &'static str = accounts::FLUX_PASSWORD;

    /// Starts a server without repositories.
    ///
    /// # Errors
    /// No port is free, or no temporary folder can be made.
    pub fn start() -> Result<GitServer> {
        let scratch = Scratch::new("git")?;
        let root = scratch.folder("repos")?;
        let state =
            Arc::new(ServerState { root, tap: Tap::default(), taps: Mutex::default(), _scratch: scratch });
        let router = router(Arc::clone(&state));
        let server = BackgroundServer::start("git-server", async move |listener| {
            // It ends only with the listener.
            let _ = axum::serve(listener.tap_io(send_at_once), router).await;
        })?;
        Ok(GitServer { state, server })
    }

    /// The address of the server, without a password.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the router of this server, to serve it at another address too.
    pub(crate) fn router(&self) -> Router {
        router(Arc::clone(&self.state))
    }

    /// Creates a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// The repository exists, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<Repo> {
        let folder = self.state.root.join(format!("{name}.git"));
        if folder.exists() {
            return Err(anyhow!("the repository {name} exists: give each test its own"));
        }
        let tap = Arc::new(Tap::default());
        let repo = Repo::create(name, folder, format!("{}/{name}.git", self.url()), Arc::clone(&tap))?;
        repo.commit("main", "initial commit", files)?;
        self.state.taps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tap);
        Ok(repo)
    }

    /// Copies a repository as it is now.
    pub(crate) fn copy_repo(&self, original: &Repo, name: &str) -> Result<Repo> {
        let (folder, tap) = (self.state.root.join(format!("{name}.git")), Arc::new(Tap::default()));
        let repo = original.copy(name, folder, format!("{}/{name}.git", self.url()), Arc::clone(&tap))?;
        self.state.taps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tap);
        Ok(repo)
    }

    /// Returns the number of requests to all repositories together.
    pub fn requests(&self) -> Requests {
        self.state.tap.requests()
    }

    /// Counts requests and injects faults for all repositories; see [`Repo::tap`] for one repository.
    pub fn tap(&self) -> &Tap {
        &self.state.tap
    }

    /// The next `n` requests to any repository are answered with 503.
    pub fn fail_next(&self, n: usize) {
        self.state.tap.fail_next(n);
    }

    /// While on, requests to any repository wait.
    pub fn hang(&self, on: bool) {
        self.state.tap.hang(on);
    }
}

fn router(state: Arc<ServerState>) -> Router {
    Router::new().fallback(serve).with_state(state)
}

async fn serve(State(state): State<Arc<ServerState>>, request: Request<Body>) -> Response<Body> {
    let name = request.uri().path().trim_start_matches('/').split(".git/").next().unwrap_or_default();
    let tap = state.taps.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let Some(tap) = tap else { return plain(StatusCode::NOT_FOUND, "the repository does not exist") };
    let (user, kind) = (authenticated(&request), request_kind(&request));
    let is_flux = user == Some(GitServer::FLUX);
    let count = |kind| {
        state.tap.count(kind);
        tap.count(kind);
    };
    if !is_flux {
        state.tap.wait_while_hanging().await;
        tap.wait_while_hanging().await;
        if state.tap.take_failure() || tap.take_failure() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "made to fail by the test");
        }
    }
    let Some(user) = user else {
        count(RequestKind::Refused);
        return challenge();
    };
    if user != GitServer::USER && is_push(&request) {
        count(RequestKind::Refused);
        return plain(StatusCode::FORBIDDEN, "this user may read only");
    }
    if !is_flux {
        count(kind);
    }
    let is_lost = kind == RequestKind::Push && (state.tap.take_loss() || tap.take_loss());
    let answer = cgi::answer(&state.root, user, request).await;
    match answer {
        Ok(answer) if is_lost => lose(answer).await,
        Ok(answer) => answer,
        Err(e) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{e:#}")),
    }
}

/// Waits until git has finished, and replaces its answer with 502.
async fn lose(answer: Response<Body>) -> Response<Body> {
    let _ = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
    plain(StatusCode::BAD_GATEWAY, "the test lost this answer")
}

fn request_kind(request: &Request<Body>) -> RequestKind {
    let path = request.uri().path();
    if path.ends_with("/git-receive-pack") {
        RequestKind::Push
    } else if path.ends_with("/git-upload-pack") {
        RequestKind::Fetch
    } else {
        RequestKind::Ls
    }
}

fn is_push(request: &Request<Body>) -> bool {
    request_kind(request) == RequestKind::Push || request.uri().query() == Some("service=git-receive-pack")
}

fn authenticated(request: &Request<Body>) -> Option<&'static str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let encoded = value.strip_prefix("Basic ")?;
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    match (user, password) {
        (GitServer::USER, GitServer::PASSWORD) => Some(GitServer::USER),
        (GitServer::READER, GitServer::READER_PASSWORD) => Some(GitServer::READER),
        (GitServer::FLUX, GitServer::FLUX_PASSWORD) => Some(GitServer::FLUX),
        _ => None,
    }
}

fn challenge() -> Response<Body> {
    let mut answer = plain(StatusCode::UNAUTHORIZED, "the password is wrong");
    let realm = header::HeaderValue::from_static("Basic realm=\"git\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
    answer
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(format!("{text}\n")));
    *answer.status_mut() = status;
    answer
}
