//! Sign-in at an identity provider: the good path, and what attackers and broken providers try.

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use sluice_web::{SessionKeys, SignInOptions};

use crate::browser::{Answer, Browser};
use crate::provider::{ISSUER, Provider};
use crate::world::World;
use crate::{pages, world};

const PAGE: &str = "/pipelines/apps/podinfo";
const APPROVE: &str = "/promotions/apps/podinfo-prod-1/approve";
const SESSION: &str = "__Host-sluice-session";
const FLOW: &str = "__Host-sluice-sign-in";

fn at(provider: &Provider) -> SignInOptions {
    let page_url = "https://sluice.example.com".parse().ok();
    let session_keys = SessionKeys::parse(&[7; 32]).ok();
    SignInOptions { page_url, session_keys, oidc: Some(provider.options()), ..SignInOptions::default() }
}

fn fixture() -> (World, Provider, Router) {
    let (world, provider) = (world(), Provider::default());
    let router = pages(&world, at(&provider));
    (world, provider, router)
}

fn browser(router: &Router) -> Browser {
    let mut browser = Browser::new(router);
    browser.origin = "https://sluice.example.com".into();
    browser
}

/// Opens a page without a session, and goes to the provider. Returns the address there.
async fn leave(browser: &mut Browser, page: &str) -> String {
    let to_sign_in = browser.get(page).await;
    let form = browser.get(to_sign_in.location()).await;
    assert!(form.text.contains("Sign in at id.example.com"), "{}", form.text);
    let link = form.text.split("href=\"/sign-in/oidc").nth(1).unwrap().split('"').next().unwrap();
    let gone = browser.get(&format!("/sign-in/oidc{link}")).await;
    assert_eq!(gone.status, StatusCode::SEE_OTHER, "{}", gone.text);
    gone.location().to_string()
}

async fn sign_in(browser: &mut Browser, provider: &Provider, email: &str, page: &str) -> Answer {
    let address = leave(browser, page).await;
    browser.get_from_elsewhere(&provider.sign_in(&address, email)).await
}

#[tokio::test]
async fn a_person_signs_in_at_the_provider_and_acts_with_the_id_token() {
    let (world, provider, router) = fixture();
    let mut admin = browser(&router);
    let address = leave(&mut admin, APPROVE).await;
    let kept = admin.cookies[FLOW].clone();
    for attribute in ["Path=/;", "Max-Age=600;", "HttpOnly", "SameSite=Lax", "Secure"] {
        assert!(kept.contains(attribute), "{kept}");
    }
    let back = admin.get_from_elsewhere(&provider.sign_in(&address, "admin")).await;
    assert_eq!((back.status, back.refresh().as_str()), (StatusCode::OK, APPROVE), "{}", back.text);
    assert_eq!(back.headers["referrer-policy"], "no-referrer");
    assert!(!admin.cookies.contains_key(FLOW), "a sign-in counts once");
    let session = &admin.cookies[SESSION];
    for attribute in ["Path=/;", "HttpOnly", "SameSite=Strict", "Secure"] {
        assert!(session.contains(attribute), "{session}");
    }
    let form = admin.get(&back.refresh()).await;
    let (token, seen) = (form.field("token"), form.field("seen"));
    let answer = admin.post(APPROVE, &[("token", &token), ("seen", &seen)]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let (by, change) = world.changes().pop().unwrap();
    assert!(by.ends_with(".signed") && change.spec["approval"]["by"] == "admin", "{by} {change:?}");
    // Somebody else sees something else.
    let mut nobody = browser(&router);
    let back = sign_in(&mut nobody, &provider, "nobody", PAGE).await;
    assert_eq!(nobody.get(&back.refresh()).await.status, StatusCode::NOT_FOUND);
    // Signing out ends the session, and leads to that of the provider.
    let token = admin.get("/").await.field("token");
    let out = admin.post("/sign-out", &[("token", &token)]).await;
    assert!(!admin.cookies.contains_key(SESSION));
    let page = admin.get(out.location()).await.text;
    let there = "https://id.example.com/out?client_id=sluice&amp;post_logout_redirect_uri=https%3A//sluice.example.com/sign-in";
    assert!(page.contains(there), "{page}");
}

#[tokio::test]
async fn an_answer_counts_only_in_the_browser_that_asked_for_it() {
    let (_, provider, router) = fixture();
    let (mut eve, mut victim) = (browser(&router), browser(&router));
    // Login CSRF: the victim opens the way back of the attacker's sign-in.
    let address = leave(&mut eve, PAGE).await;
    let of_eve = provider.sign_in(&address, "viewer");
    for _ in 0..2 {
        assert_eq!(victim.get_from_elsewhere(&of_eve).await.status, StatusCode::BAD_REQUEST);
        assert!(!victim.cookies.contains_key(SESSION));
        // The same in the middle of a sign-in of the victim's own, which can go on afterwards.
        let address = leave(&mut victim, PAGE).await;
        assert_eq!(victim.get_from_elsewhere(&of_eve).await.status, StatusCode::BAD_REQUEST);
        assert!(victim.cookies.contains_key(FLOW));
        // The attacker's code with the victim's state: the verifier is another one.
        let own = provider.sign_in(&address, "admin");
        let code = |back: &str| back.split("code=").nth(1).unwrap().split('&').next().unwrap().to_string();
        let fresh = leave(&mut eve, PAGE).await;
        let mixed = own.replace(&code(&own), &code(&provider.sign_in(&fresh, "viewer")));
        let answer = victim.get_from_elsewhere(&mixed).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.text);
        assert!(answer.text.contains("The identity provider refuses it: invalid_grant"), "{}", answer.text);
        assert!(victim.cookies.is_empty());
    }
    assert_eq!(provider.asked("/token"), 2, "codes with the wrong state are not sent on");
}

#[tokio::test]
async fn a_code_counts_once_and_a_session_begins_anew() {
    let (_, provider, router) = fixture();
    let mut admin = browser(&router);
    admin.post("/sign-in", &[("token", "viewer")]).await;
    let earlier = admin.cookies[SESSION].clone();
    let form_token = admin.get("/").await.field("token");
    // The sign-in is begun although there is a session, for example by another tab.
    let address = admin.get("/sign-in/oidc?to=/clusters").await.location().to_string();
    let flow = admin.cookies[FLOW].clone();
    let back = provider.sign_in(&address, "admin");
    assert_eq!(admin.get_from_elsewhere(&back).await.refresh(), "/clusters");
    assert_ne!(admin.cookies[SESSION], earlier);
    assert_ne!(admin.get("/").await.field("token"), form_token, "fixation");
    // Replayed, also with the cookie that belongs to it.
    assert_eq!(admin.get_from_elsewhere(&back).await.status, StatusCode::BAD_REQUEST);
    let mut thief = browser(&router);
    thief.cookies.insert(FLOW.into(), flow);
    assert_eq!(thief.get_from_elsewhere(&back).await.status, StatusCode::FORBIDDEN);
    assert!(!thief.cookies.contains_key(SESSION));
    // A sign-in is no session, and a session no sign-in.
    let value = |cookie: &str| cookie.replace("SameSite=Strict", "SameSite=Lax");
    thief.cookies.insert(FLOW.into(), value(&admin.cookies[SESSION]));
    assert_eq!(thief.get_from_elsewhere(&back).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_id_token_for_something_else_signs_nobody_in() {
    let (_, provider, router) = fixture();
    for (claim, said) in [
        (("nonce", json!("another")), "of another sign-in"),
        (("nonce", Value::Null), "of another sign-in"),
        (("iss", json!("https://evil.example")), "of another issuer"),
        (("aud", json!("another")), "for another client"),
        (("exp", json!(1_600_000_000)), "has ended"),
        (("email", json!("unknown")), "does not accept the ID token"),
        (("padding", json!("x".repeat(3000))), "only 2800 fit into a cookie"),
    ] {
        provider.claims(std::slice::from_ref(&claim));
        let mut admin = browser(&router);
        let answer = sign_in(&mut admin, &provider, "admin", PAGE).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{claim:?}");
        assert!(answer.text.contains(said), "{claim:?} {}", answer.text);
        assert!(admin.cookies.is_empty(), "{claim:?}");
    }
}

#[tokio::test]
async fn a_provider_that_answers_something_else_signs_nobody_in() {
    let (_, provider, router) = fixture();
    for (answer, said) in [
        (Ok((200, "<html>")), "no JSON"),
        (Ok((200, "{}")), "none in its answer"),
        (Ok((200, "{\"id_token\": \"opaque\"}")), "no ID token"),
        (Ok((200, "{\"id_token\": 5}")), "no JSON"),
        (Ok((500, "code1 s3cret")), "the status is 500"),
        (Ok((302, "")), "the status is 302"),
        (Ok((400, "{\"error\": \"<b>code1 s3cret</b>\"}")), "for no known reason"),
        (Err("it took longer than 10 s"), "longer than 10 s"),
    ] {
        provider.answer("/token", answer);
        let mut admin = browser(&router);
        let back = sign_in(&mut admin, &provider, "admin", PAGE).await;
        assert!(back.status.is_client_error() || back.status.is_server_error(), "{answer:?}");
        assert!(back.text.contains(said), "{answer:?} {}", back.text);
        assert!(!back.text.contains("s3cret") && !back.text.contains("code1"), "{}", back.text);
        assert!(admin.cookies.is_empty(), "{answer:?}");
        // The token form is still there, and leads to the same page.
        assert_eq!(back.field("to"), PAGE);
    }
    provider.recover();
    // The person says no, or the provider names another issuer (RFC 9207).
    let mut admin = browser(&router);
    let address = leave(&mut admin, PAGE).await;
    let state = provider.sign_in(&address, "admin").split("state=").nth(1).unwrap().to_string();
    let refused =
        admin.get_from_elsewhere(&format!("/sign-in/callback?error=access_denied&state={state}")).await;
    assert!(refused.text.contains("access_denied"), "{}", refused.text);
    provider.document("authorization_response_iss_parameter_supported", json!(true));
    let router = pages(&world(), at(&provider));
    for (issuer, status) in [
        ("", StatusCode::FORBIDDEN),
        ("&iss=https%3A//evil.example", StatusCode::FORBIDDEN),
        (&format!("&iss={ISSUER}"), StatusCode::OK),
    ] {
        let mut admin = browser(&router);
        let address = leave(&mut admin, PAGE).await;
        let back = format!("{}{issuer}", provider.sign_in(&address, "admin"));
        assert_eq!(admin.get_from_elsewhere(&back).await.status, status, "{issuer}");
    }
}

#[tokio::test]
async fn while_the_provider_is_down_people_sign_in_with_a_token() {
    for answer in [Err("connection refused"), Ok((200, "<html>")), Ok((503, "")), Ok((200, "{}"))] {
        let (_, provider, router) = fixture();
        provider.answer("openid-configuration", answer);
        let mut admin = browser(&router);
        for _ in 0..3 {
            let page = admin.get(&format!("/sign-in/oidc?to={PAGE}")).await;
            assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(page.text.contains("Sluice asks it again soon"), "{}", page.text);
            assert_eq!(page.field("to"), PAGE);
        }
        assert_eq!(provider.asked("openid-configuration"), 1, "there is a pause after a failure");
        let answer = admin.post("/sign-in", &[("token", "admin"), ("to", PAGE)]).await;
        assert_eq!(answer.location(), PAGE);
    }
}

#[tokio::test]
async fn after_the_sign_in_only_pages_of_this_server_are_opened() {
    let (_, provider, router) = fixture();
    for to in
        ["https://evil.example", "//evil.example", "/%5Cevil.example", "/sign-in/oidc", "javascript:alert(1)"]
    {
        let mut admin = browser(&router);
        let address = admin.get(&format!("/sign-in/oidc?to={to}")).await.location().to_string();
        let back = admin.get_from_elsewhere(&provider.sign_in(&address, "admin")).await;
        assert_eq!(back.refresh(), "/", "{to}");
    }
    // A link on another site: the browser sends the session only after a page of this server.
    let mut admin = browser(&router);
    sign_in(&mut admin, &provider, "admin", "/").await;
    let to_sign_in = admin.get_from_elsewhere(PAGE).await.location().to_string();
    let bounced = admin.get_from_elsewhere(&to_sign_in).await;
    assert_eq!(bounced.refresh(), format!("/sign-in?to={PAGE}"));
    assert_eq!(admin.get(&bounced.refresh()).await.location(), PAGE);
}

#[tokio::test]
async fn a_session_goes_on_with_a_refresh_token_and_ends_without() {
    let (_, provider, router) = fixture();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let soon = [("exp", json!(now + 5))];
    for (meanwhile, goes_on) in [
        (&[][..], true),
        (&[("sub", json!("viewer"))][..], false),
        (&[("nonce", json!("another"))][..], false),
        (&[("iss", json!("https://evil.example"))][..], false),
        (&soon[..], false),
    ] {
        provider.claims(&soon);
        let mut admin = browser(&router);
        sign_in(&mut admin, &provider, "admin", "/").await;
        let earlier = admin.cookies.clone();
        assert!(admin.cookies[SESSION].contains("Max-Age=28"), "{}", admin.cookies[SESSION]);
        provider.claims(meanwhile);
        let before = provider.asked("/token");
        // The token has ended, and a second tab asks at the same time with the same cookie.
        for _ in 0..2 {
            let to_sign_in = admin.get(PAGE).await.location().to_string();
            assert_eq!(to_sign_in, format!("/sign-in?to={PAGE}"));
            let answer = admin.get(&to_sign_in).await;
            assert_eq!(answer.location() == PAGE, goes_on, "{meanwhile:?} {}", answer.text);
            if goes_on {
                assert_eq!(admin.get(PAGE).await.status, StatusCode::OK);
                assert_eq!(provider.asked("/token"), before + 1);
                admin.cookies = earlier.clone();
            }
        }
    }
    // The provider has ended the session, or gives no refresh token.
    provider.claims(&soon);
    let mut admin = browser(&router);
    sign_in(&mut admin, &provider, "admin", "/").await;
    provider.answer("/token", Ok((400, "{\"error\": \"invalid_grant\"}")));
    let page = admin.get("/sign-in").await.text;
    assert!(page.contains("refuses it: invalid_grant") && page.contains("Sign in at"), "{page}");
}

#[tokio::test]
async fn without_a_provider_the_page_says_so() {
    let router = pages(&world(), SignInOptions::default());
    let mut nobody = Browser::new(&router);
    let page = nobody.get("/sign-in").await.text;
    assert!(page.contains("No identity provider and no proxy signs people in here"), "{page}");
    assert!(!page.contains("/sign-in/oidc"));
    for path in ["/sign-in/oidc", "/sign-in/callback?code=a&state=b"] {
        assert_eq!(nobody.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}
