//! Deliveries over SSH, to a real sshd: with one accepted key, and one known server.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{StatusCode, Uri};
use sluice_delivery::{
    AllowedHosts, Credentials, Delivered, DeliveryStrategy, ForgeKind, Order, Retry, Settings,
};
use sluice_testkit::{Repo, SshServer};

use crate::commit::to_main;
use crate::crash;
use crate::fixture::{FILE, again, bench, bench_with, yaml};
use crate::git_trouble::fails;

async fn server() -> (SshServer, Repo, Order) {
    let server = SshServer::start().await.unwrap();
    let repo = server.create_repo("fleet", &[(FILE, &yaml("6.1.5"))]).unwrap();
    let credentials = Credentials {
        identity: Some(server.identity().unwrap()),
        known_hosts: Some(server.known_hosts().unwrap().into_bytes()),
        ..Credentials::default()
    };
    let order = Order { credentials, ..to_main(&repo, "6.1.8") };
    (server, repo, order)
}

fn with(order: &Order, change: impl FnOnce(&mut Credentials)) -> Order {
    let mut order = order.clone();
    change(&mut order.credentials);
    order
}

#[tokio::test]
async fn a_promotion_goes_over_ssh_and_is_found_again() {
    let (_server, repo, order) = server().await;
    let done = bench().delivery.deliver(&order).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    assert_eq!(repo.read("main", FILE).unwrap(), yaml("6.1.8"));
    assert_eq!(bench().delivery.deliver(&again(&order)).await.unwrap(), done);
    assert_eq!(repo.log("main").unwrap().len(), 2);
}

/// Serves an API that refuses every token. Returns its address, and the paths of the calls.
async fn refusing_api() -> (String, Arc<Mutex<Vec<String>>>) {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = paths.clone();
    let refuse = move |uri: Uri| {
        seen.lock().unwrap().push(uri.path().to_string());
        async { (StatusCode::UNAUTHORIZED, r#"{"message": "invalid token"}"#) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}/forge/api/v1/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(refuse)).await.unwrap() });
    (api, paths)
}

#[tokio::test]
async fn the_api_is_at_the_address_in_the_pipeline_although_git_uses_ssh() {
    let (server, _, order) = server().await;
    let (api, paths) = refusing_api().await;
    for forge in ForgeKind::ALL {
        let name = match forge {
            ForgeKind::AzureDevOps => "acme/project/_git/azure".to_string(),
            other => format!("acme/{}", format!("{other:?}").to_lowercase()),
        };
        let repo = server.create_repo(&name, &[(FILE, &yaml("6.1.5"))]).unwrap();
        let strategy = |api_url: &str| DeliveryStrategy::PullRequest {
            forge,
            url: server.short_url(&name),
            base: "main".into(),
            settings: Box::new(Settings { api_url: Some(api_url.into()), ..Settings::default() }),
        };
        let mut order = with(&order, |c| c.token = Some("t0ken".into()));
        order.strategy = strategy(&api);
        fails(&bench(), &order, "AuthenticationFailed").await;
        assert!(repo.branches().unwrap().contains(&"sluice/apps/podinfo/prod".to_string()), "{forge:?}");
        let called = std::mem::take(&mut *paths.lock().unwrap());
        let is_here = |path: &String| path.starts_with("/forge/api/v1/") && path.contains("acme");
        let is_azure = |path: &String| path.starts_with("/forge/api/v1/project/_apis/git/repositories/azure");
        let is_right =
            |path: &String| if forge == ForgeKind::AzureDevOps { is_azure(path) } else { is_here(path) };
        assert!(!called.is_empty() && called.iter().all(is_right), "{forge:?}: {called:?}");
        // It is checked as an address of its own.
        order.strategy = strategy("https://user@elsewhere.example/api");
        fails(&bench(), &order, "InvalidAddress").await;
        let here = vec!["127.0.0.1:*".parse().unwrap()];
        let limited = bench_with(|options| options.allowed_hosts = AllowedHosts::new(here));
        order.strategy = strategy("https://elsewhere.example/api");
        fails(&limited, &order, "AddressRefused").await;
    }
}

#[tokio::test]
async fn a_push_whose_answer_got_lost_is_found() {
    let (_server, repo, order) = server().await;
    let bench = bench();
    // The branch has moved, and the server's git ends before its answer does.
    repo.hook("post-receive", "kill -9 $PPID").unwrap();
    for order in [&order, &again(&order)] {
        let done = bench.delivery.deliver(order).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    }
    assert_eq!(repo.log("main").unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_is_made_once_if_the_process_dies_at_any_fault_point() {
    let (_server, repo, order) = server().await;
    let to_main = |version: &str| Order { credentials: order.credentials.clone(), ..to_main(&repo, version) };
    crash::commits_survive(&repo, to_main).await;
}

#[tokio::test]
async fn ssh_keys_are_read_with_any_line_endings() {
    let (_server, repo, order) = server().await;
    let text = String::from_utf8(order.credentials.identity.clone().unwrap()).unwrap();
    let forms = [text.trim_end().to_string(), text.replace('\n', "\r\n")];
    for (i, form) in forms.into_iter().enumerate() {
        let known = String::from_utf8(order.credentials.known_hosts.clone().unwrap()).unwrap();
        let order = with(
            &Order { credentials: order.credentials.clone(), ..to_main(&repo, &format!("6.2.{i}")) },
            |c| {
                c.identity = Some(form.into_bytes());
                c.known_hosts = Some(known.trim_end().replace('\n', "\r\n").into_bytes());
            },
        );
        bench().delivery.deliver(&order).await.unwrap();
        assert_eq!(repo.read("main", FILE).unwrap(), yaml(&format!("6.2.{i}")));
    }
}

#[tokio::test]
async fn an_ssh_server_with_an_unknown_host_key_is_rejected() {
    let (server, repo, order) = server().await;
    let bench = bench();
    let known = server.known_hosts().unwrap();
    let (_, key) = known.split_once(' ').unwrap();
    let elsewhere = format!("[127.0.0.1]:1 {key}");
    for known in [server.wrong_known_hosts().unwrap(), elsewhere.clone(), "nonsense".into()] {
        let order = with(&order, |c| c.known_hosts = Some(known.clone().into_bytes()));
        let error = fails(&bench, &order, "HostKeyUnknown").await.to_string();
        assert!(error.contains("known_hosts") && error.contains("ssh-keyscan"), "{error}");
        assert!(!error.contains("sluice-private"), "our own folders help nobody: {error}");
    }
    assert_eq!(repo.log("main").unwrap().len(), 1);
    // Among others, it is found; ssh also takes a line that leaves out the port.
    let known = format!("# ours\n{elsewhere}\n127.0.0.1 {key}");
    bench.delivery.deliver(&with(&order, |c| c.known_hosts = Some(known.into_bytes()))).await.unwrap();
}

#[tokio::test]
async fn unusable_identities_are_reported_without_a_prompt() {
    let (server, repo, order) = server().await;
    let bench = bench();
    let stranger = server.other_identity("").unwrap();
    let error = fails(&bench, &with(&order, |c| c.identity = Some(stranger)), "AuthenticationFailed").await;
    assert!(error.to_string().contains("identity"), "{error}");
    let locked = server.other_identity("open sesame").unwrap();
    let error = fails(&bench, &with(&order, |c| c.identity = Some(locked)), "IdentityInvalid").await;
    assert!(error.to_string().contains("passphrase"), "{error}");
    assert_eq!(error.retry(), Retry::Soon, "nobody tells us when the Secret changes");
    let broken = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    fails(&bench, &with(&order, |c| c.identity = Some(broken.to_vec())), "IdentityInvalid").await;
    let error = fails(&bench, &with(&order, |c| c.identity = None), "MissingCredential").await;
    assert!(error.to_string().contains("has no identity"), "{error}");
    let error = fails(&bench, &with(&order, |c| c.known_hosts = None), "MissingCredential").await;
    assert!(error.to_string().contains("has no known_hosts"), "{error}");
    assert_eq!(repo.log("main").unwrap().len(), 1);
}

#[tokio::test]
async fn missing_repositories_and_servers_are_reported_over_ssh() {
    let (server, repo, order) = server().await;
    let bench = bench();
    let to = |url: String| {
        let strategy = sluice_delivery::DeliveryStrategy::Commit { url, branch: "main".into() };
        Order { strategy, ..order.clone() }
    };
    fails(&bench, &to(repo.url().replace("fleet", "nobody")), "RepositoryNotFound").await;
    drop(server);
    fails(&bench, &order, "Unreachable").await;
}
