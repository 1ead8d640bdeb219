//! The HTTP side: who may ask, which repository, and what is counted.

use super::cgi;
use super::repo::Repo;
use super::tap::{Kind, Requests, Tap};
use crate::Scratch;
use crate::listening::Listening;
use anyhow::{Result, anyhow};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode, header};
use base64::Engine;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A git server on 127.0.0.1. It runs on a thread of its own, so it serves tests of any runtime;
/// dropping it ends it and removes its repositories.
pub struct GitServer {
    state: Arc<Served>,
    listening: Listening,
}

struct Served {
    root: PathBuf,
    whole: Tap,
    taps: Mutex<HashMap<String, Arc<Tap>>>,
    _scratch: Scratch,
}

impl GitServer {
    /// A user who may read and push.
    pub const USER: &'static str = "sluice";
    /// The password of [`GitServer::USER`].
    pub const PASSWORD: &'static str = "open sesame/+?";
    /// A user who may read and not push.
    pub const READER: &'static str = "reader";
    /// The password of [`GitServer::READER`].
    pub const READER_PASSWORD: &'static str = "look but do not touch";
    /// The user for Flux, or a stand-in for it: may read, is not counted, and meets no faults. What
    /// [`Requests`] says is then what Sluice asked.
    pub const FLUX: &'static str = "flux";
    /// The password of [`GitServer::FLUX`].
    pub const FLUX_PASSWORD: &'static str = "reconcile";

    /// Starts a server without repositories.
    ///
    /// # Errors
    /// When there is no port or no temporary folder to be had.
    pub fn start() -> Result<GitServer> {
        let scratch = Scratch::new("git")?;
        let root = scratch.folder("repos")?;
        let state =
            Arc::new(Served { root, whole: Tap::default(), taps: Mutex::default(), _scratch: scratch });
        let router = router(Arc::clone(&state));
        let listening = Listening::start("git-server", async move |listener| {
            // It ends with the listener only.
            let _ = axum::serve(listener, router).await;
        })?;
        Ok(GitServer { state, listening })
    }

    /// The server's address, without a password in it.
    pub fn url(&self) -> String {
        self.listening.url()
    }

    /// The same server, to be served at another door.
    pub(crate) fn router(&self) -> Router {
        router(Arc::clone(&self.state))
    }

    /// Makes a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// When there is one of this name, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<Repo> {
        let folder = self.state.root.join(format!("{name}.git"));
        if folder.exists() {
            return Err(anyhow!("there is a repository {name} already: give each test one of its own"));
        }
        let tap = Arc::new(Tap::default());
        let repo = Repo::create(name, folder, format!("{}/{name}.git", self.url()), Arc::clone(&tap))?;
        repo.commit("main", "initial commit", files)?;
        self.state.taps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tap);
        Ok(repo)
    }

    /// Makes a repository that is as another is now.
    pub(crate) fn copy_repo(&self, of: &Repo, name: &str) -> Result<Repo> {
        let (folder, tap) = (self.state.root.join(format!("{name}.git")), Arc::new(Tap::default()));
        let repo = of.copy(name, folder, format!("{}/{name}.git", self.url()), Arc::clone(&tap))?;
        self.state.taps.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tap);
        Ok(repo)
    }

    /// Requests to all repositories together.
    pub fn requests(&self) -> Requests {
        self.state.whole.requests()
    }

    /// Breaks or counts the whole server; see [`Repo::tap`] for one repository of it.
    pub fn tap(&self) -> &Tap {
        &self.state.whole
    }

    /// The next `n` requests to any repository are answered 503.
    pub fn fail_next(&self, n: usize) {
        self.state.whole.fail_next(n);
    }

    /// While on, requests to any repository wait.
    pub fn hang(&self, on: bool) {
        self.state.whole.hang(on);
    }
}

fn router(state: Arc<Served>) -> Router {
    Router::new().fallback(serve).with_state(state)
}

async fn serve(State(state): State<Arc<Served>>, request: Request<Body>) -> Response<Body> {
    let name = request.uri().path().trim_start_matches('/').split(".git/").next().unwrap_or_default();
    let tap = state.taps.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let Some(tap) = tap else { return plain(StatusCode::NOT_FOUND, "there is no such repository") };
    let (user, kind) = (authenticated(&request), kind_of(&request));
    let flux = user == Some(GitServer::FLUX);
    let count = |kind| {
        state.whole.count(kind);
        tap.count(kind);
    };
    if !flux {
        state.whole.pass().await;
        tap.pass().await;
        if state.whole.takes_failure() || tap.takes_failure() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "made to fail by the test");
        }
    }
    let Some(user) = user else {
        count(Kind::Refused);
        return challenge();
    };
    if user != GitServer::USER && writes(&request) {
        count(Kind::Refused);
        return plain(StatusCode::FORBIDDEN, "this user may read only");
    }
    if !flux {
        count(kind);
    }
    let lost = kind == Kind::Push && (state.whole.takes_loss() || tap.takes_loss());
    let answer = cgi::answer(&state.root, user, request).await;
    match answer {
        Ok(answer) if lost => lose(answer).await,
        Ok(answer) => answer,
        Err(e) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{e:#}")),
    }
}

/// Lets git finish its work, and tells the client nothing of it.
async fn lose(answer: Response<Body>) -> Response<Body> {
    let _ = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
    plain(StatusCode::BAD_GATEWAY, "the answer was made to get lost by the test")
}

fn kind_of(request: &Request<Body>) -> Kind {
    let path = request.uri().path();
    if path.ends_with("/git-receive-pack") {
        Kind::Push
    } else if path.ends_with("/git-upload-pack") {
        Kind::Fetch
    } else {
        Kind::Ls
    }
}

fn writes(request: &Request<Body>) -> bool {
    kind_of(request) == Kind::Push || request.uri().query() == Some("service=git-receive-pack")
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
