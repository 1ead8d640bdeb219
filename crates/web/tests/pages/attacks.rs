//! Attacks on the pages: another page around them, line breaks in what becomes a header, and a token in the address.

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Browser;
use super::chromium::Chromium;
use super::draft::{NEW, sent, with};
use super::world::{World, every_state};

/// Puts a page of the same server into a frame, and leaves in `seen` how much of it the page around it can read.
const FRAME: &str = "const frame = document.createElement('iframe');
    frame.onload = () => { document.title = String(frame.contentDocument ? frame.contentDocument.body.innerText.length : 'empty'); };
    frame.src = arguments[0];
    document.body.append(frame);";

#[tokio::test]
async fn no_page_is_shown_in_a_frame() {
    let chromium = Chromium::of_admin(&World::new(every_state())).await;
    // The description of the API has no policy: a page of the same origin that can have frames.
    let framed = async |path: &str| {
        chromium.open("/openapi.json").await;
        chromium.browser.run(&FRAME.replace("arguments[0]", &format!("'{path}'"))).await.unwrap();
        let title = async || chromium.browser.run("return document.title").await.unwrap();
        for _ in 0..200 {
            if let Some(seen) = title().await.as_str().filter(|seen| !seen.is_empty()) {
                return seen.to_string();
            }
        }
        panic!("the frame of {path} has not loaded");
    };
    assert_ne!(framed("/openapi.json").await, "empty", "a frame of another page shows it");
    for path in ["/", "/sign-in", "/pipelines/apps/podinfo", "/promotions/apps/podinfo-prod-1/approve"] {
        assert_eq!(framed(path).await, "empty", "{path}");
    }
}

/// Sends a request as it is, and returns the lines of the head of the answer.
async fn head(address: &str, request: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    answer.split("\r\n\r\n").next().unwrap().lines().map(String::from).collect()
}

#[tokio::test]
async fn line_breaks_in_addresses_and_names_make_no_header() {
    let world = World::new(every_state());
    let server = super::chromium::serve(&world).await;
    for path in [
        "/%0d%0ax-evil:%201",
        "/?search=%0d%0ax-evil:%201",
        "/sign-in?to=/%0d%0ax-evil:%201",
        "/pipelines/apps/podinfo%0d%0ax-evil:%201",
        "/pipelines/new?namespace=apps%0d%0ax-evil:%201",
        "/promotions/apps/a%0d%0ax-evil:%201/approve",
        "/api/v1/pipelines/apps/podinfo%0d%0ax-evil:%201",
        "/\r\nx-evil: 1",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
        let lines = head(&server.address, &request).await;
        assert!(lines[0].starts_with("http/1.1 "), "{path}: {lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("x-evil")), "{path}: {lines:?}");
    }
    // The name of the file is that of the pipeline.
    let admin = Browser::new(&world, true, "admin").await;
    let mut files = 0;
    for name in
        ["podinfo", "pod\r\nx-evil: 1", "pod\"; filename=\"evil.html", "../../evil", "pod\u{202e}lmay.exe"]
    {
        let file = sent(&admin, NEW, &with(&[("name", name), ("do", "download")])).await;
        assert!(!file.headers.contains_key("x-evil"), "{name}");
        let disposition = file.headers.get("content-disposition").map(|value| value.to_str().unwrap());
        let is_harmless = |value: &str| {
            let name = value.strip_prefix("attachment; filename=\"").and_then(|rest| rest.strip_suffix('"'));
            name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)))
        };
        files += u32::from(disposition.is_some());
        assert!(disposition.is_none_or(is_harmless), "{name}: {disposition:?}");
    }
    assert!(files > 0, "nothing was downloaded");
}

#[tokio::test]
async fn a_token_in_the_address_signs_nobody_in_and_comes_back_nowhere() {
    let world = World::new(every_state());
    let stranger = Browser::new(&world, true, "").await;
    let admin = Browser::new(&world, true, "admin").await;
    for path in [
        "/",
        "/pipelines/apps/podinfo",
        "/promotions/apps/podinfo-prod-1",
        "/sign-in",
        "/charts",
        "/api/v1/pipelines",
        "/absent",
    ] {
        for (parameter, token) in [("token", "admin"), ("access_token", "admin"), ("token", "leaked-4711")] {
            let address = format!("{path}?{parameter}={token}");
            let answer = stranger.get(&address).await;
            assert!(
                !answer.text.contains("podinfo-prod-1") && !answer.headers.contains_key("set-cookie"),
                "{address}"
            );
            assert!(path == "/sign-in" || answer.status != StatusCode::OK, "{address}: {}", answer.status);
            for answer in [answer, admin.get(&address).await] {
                let headers = format!("{:?}", answer.headers);
                assert!(
                    !headers.contains("leaked-4711") && !answer.text.contains("leaked-4711"),
                    "{address}: {headers} {}",
                    answer.text
                );
            }
        }
    }
}
