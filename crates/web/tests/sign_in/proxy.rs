//! Behind a proxy that signs people in, and adds their token to each request.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use sluice_web::{SessionKeys, SignInOptions};

use crate::browser::Browser;
use crate::{pages, world};

const APPROVE: &str = "/promotions/apps/podinfo-prod-1/approve";

fn trusting() -> SignInOptions {
    let page_url = "https://sluice.example.com".parse().ok();
    SignInOptions { page_url, trust_proxy_token: true, ..SignInOptions::default() }
}

#[tokio::test]
async fn the_token_of_a_proxy_counts_only_if_the_proxy_is_trusted() {
    let (trusted, other) = (pages(&world(), trusting()), pages(&world(), SignInOptions::default()));
    for (token, page, status) in [
        ("viewer", "/", StatusCode::OK),
        ("viewer", "/pipelines/apps/podinfo", StatusCode::OK),
        ("nobody", "/pipelines/apps/podinfo", StatusCode::NOT_FOUND),
        ("stolen", "/", StatusCode::SEE_OTHER),
    ] {
        let mut browser = Browser::new(&trusted);
        browser.bearer = Some(token.into());
        assert_eq!(browser.get(page).await.status, status, "{token} {page}");
        let mut ignored = Browser::new(&other);
        ignored.bearer = Some(token.into());
        assert_eq!(ignored.get(page).await.status, StatusCode::SEE_OTHER, "{token} {page}");
    }
    // A bare name is nobody.
    let mut browser = Browser::new(&trusted);
    for name in
        ["x-forwarded-user", "x-remote-user", "remote-user", "x-forwarded-email", "x-auth-request-user"]
    {
        let answer = browser.send(Method::GET, "/", &[(name, "admin")], Body::empty()).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{name}");
    }
    for value in ["admin", "Basic YWRtaW46eA==", "Bearer ", "bearer"] {
        let answer = browser.send(Method::GET, "/", &[("authorization", value)], Body::empty()).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{value}");
    }
}

#[tokio::test]
async fn the_token_of_a_proxy_goes_before_a_session_and_cannot_be_signed_out_here() {
    let router = pages(&world(), trusting());
    let mut browser = Browser::new(&router);
    browser.origin = "https://sluice.example.com".into();
    browser.post("/sign-in", &[("token", "nobody")]).await;
    assert!(browser.get("/").await.text.contains("Sign out"));
    browser.bearer = Some("admin".into());
    let page = browser.get("/").await.text;
    assert!(page.contains("checkout") && !page.contains("Sign out"), "{page}");
    assert_eq!(browser.get("/sign-in?to=/clusters").await.location(), "/clusters");
    // The page of the sign-in says whose fault it is.
    for (token, said) in
        [(Some("stolen"), "that the proxy in front of Sluice sends"), (None, "sent no token")]
    {
        let mut browser = Browser::new(&router);
        browser.bearer = token.map(str::to_string);
        let page = browser.get("/sign-in").await.text;
        assert!(page.contains(said), "{page}");
    }
}

#[tokio::test]
async fn forms_behind_a_proxy_count_only_from_the_pages_and_for_the_same_person() {
    let world = world();
    let keys = || SessionKeys::parse(&[7; 32]).ok();
    let router = pages(&world, SignInOptions { session_keys: keys(), ..trusting() });
    let mut admin = Browser::new(&router);
    (admin.bearer, admin.origin) = (Some("admin".into()), "https://sluice.example.com".into());
    let form = admin.get(APPROVE).await;
    let (token, seen) = (form.field("token"), form.field("seen"));
    assert!(!token.is_empty() && !seen.is_empty(), "{}", form.text);

    let mut shop = Browser::new(&router);
    shop.bearer = Some("viewer".into());
    let foreign = shop.get("/pipelines/apps/podinfo").await.field("token");
    for forged in ["", &foreign, "guessed"] {
        let answer = admin.post(APPROVE, &[("token", forged), ("seen", &seen)]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{forged:?}");
    }
    let fields = [("token", token.as_str()), ("seen", seen.as_str())];
    let answer = admin.post_from("https://evil.example", APPROVE, &fields).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    // Another site cannot use the API either, to whose requests the proxy adds the token too.
    let path = format!("/api/v1{APPROVE}");
    let headers = [("content-type", "application/json"), ("origin", "https://evil.example")];
    let body = format!("{{\"seen\": \"{seen}\"}}");
    let answer = admin.send(Method::POST, &path, &headers, Body::from(body)).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(world.changes().is_empty());

    // Another replica with the same key takes the form.
    let mut replica = Browser::new(&pages(&world, SignInOptions { session_keys: keys(), ..trusting() }));
    (replica.bearer, replica.origin) = (Some("admin".into()), admin.origin.clone());
    assert_eq!(replica.post(APPROVE, &fields).await.status, StatusCode::SEE_OTHER);
    assert_eq!(world.changes()[0].0, "admin");
}
