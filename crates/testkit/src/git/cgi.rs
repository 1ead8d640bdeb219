//! Answers a request with `git http-backend`, git's program for web servers. Bodies are streamed in both directions,
//! because a push may be large.

use super::program::hermetic;
use anyhow::{Context, Result, anyhow, bail};
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use futures::StreamExt;
use futures::stream::unfold;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Runs git for a request below `root` and returns its output as the response.
pub(crate) async fn answer(root: &Path, user: &str, request: Request<Body>) -> Result<Response<Body>> {
    let mut child = command(root, user, &request).spawn().context("cannot run git http-backend")?;
    let stdin = child.stdin.take().ok_or_else(|| anyhow!("git has no input"))?;
    let stdout = child.stdout.take().ok_or_else(|| anyhow!("git has no output"))?;
    tokio::spawn(feed(request.into_body(), stdin));
    let mut output = BufReader::new(stdout);
    let head = read_head(&mut output).await?;
    Ok(head.body(stream(child, output))?)
}

fn command(root: &Path, user: &str, request: &Request<Body>) -> Command {
    let mut command = Command::new("git");
    command.arg("http-backend").current_dir(root).envs(hermetic());
    command.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REQUEST_METHOD", request.method().as_str());
    command.env("PATH_INFO", request.uri().path());
    command.env("QUERY_STRING", request.uri().query().unwrap_or_default());
    command.env("REMOTE_USER", user).env("REMOTE_ADDR", "127.0.0.1");
    let headers = [
        (header::CONTENT_TYPE.as_str(), "CONTENT_TYPE"),
        (header::CONTENT_LENGTH.as_str(), "CONTENT_LENGTH"),
        (header::CONTENT_ENCODING.as_str(), "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ];
    for (name, variable) in headers {
        if let Some(value) = text(request.headers(), name) {
            command.env(variable, value);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Writes the request's body to git. An error means that git or the client closed its end; the answer shows it.
async fn feed(body: Body, mut stdin: ChildStdin) {
    let mut chunks = body.into_data_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        if stdin.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

async fn read_head(output: &mut BufReader<ChildStdout>) -> Result<axum::http::response::Builder> {
    let mut head = Response::builder();
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).await? == 0 {
            bail!("git http-backend ended without an answer");
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Ok(head) };
        head = match name.eq_ignore_ascii_case("status") {
            true => head.status(value.split(' ').next().unwrap_or("500")),
            false => head.header(name, value),
        };
    }
}

/// Streams the rest of git's output. The stream owns the child, so that git is killed when the client disconnects.
fn stream(child: Child, output: BufReader<ChildStdout>) -> Body {
    Body::from_stream(unfold((child, output), |(mut child, mut output)| async move {
        let mut chunk = vec![0; 32 * 1024];
        match output.read(&mut chunk).await {
            Ok(0) => {
                let _ = child.wait().await;
                None
            }
            Ok(n) => {
                chunk.truncate(n);
                Some((Ok::<_, std::io::Error>(chunk), (child, output)))
            }
            Err(e) => Some((Err(e), (child, output))),
        }
    }))
}
