//! Kubeconfigs from Secrets, also malicious ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_controller::watch::kubeconfig::{KubeconfigError, client, data, text};

use crate::support::with;

/// A kubeconfig that needs no files or programs.
fn self_contained() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "dev",
        "clusters": [{"name": "dev", "cluster": {"server": "https://dev.example:6443"}}],
        "users": [{"name": "dev", "user": {"token": "hunter2"}}],
        "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "dev"}}],
    })
}

async fn rejection(kubeconfig: &Value, allow_exec: bool) -> Option<KubeconfigError> {
    client("fleet/dev", &kubeconfig.to_string(), allow_exec).await.err()
}

#[tokio::test]
async fn a_self_contained_kubeconfig_makes_a_client() {
    assert_eq!(rejection(&self_contained(), false).await, None);
    let (_, secrets) = client("fleet/dev", &self_contained().to_string(), false).await.unwrap();
    assert_eq!(secrets.hide("hunter2 is not valid"), "*** is not valid");
    // The other cluster decides whom a user may impersonate.
    assert_eq!(rejection(&with(self_contained(), "users/0/user/as", "sluice".into()), false).await, None);
    assert_eq!(
        rejection(&with(self_contained(), "clusters/0/cluster/tls-server-name", "api".into()), false).await,
        None
    );
}

#[tokio::test]
async fn a_kubeconfig_that_uses_programs_files_proxies_or_unchecked_servers_is_rejected() {
    let secret = || "fleet/dev".to_string();
    let exec =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", "id"]});
    let table = [
        ("users/0/user/exec", exec, KubeconfigError::Exec(secret(), "/bin/sh".into())),
        ("users/0/user/auth-provider", json!({"name": "gcp"}), KubeconfigError::Exec(secret(), "gcp".into())),
        ("users/0/user/tokenFile", "/run/token".into(), KubeconfigError::File(secret(), "/run/token".into())),
        (
            "users/0/user/client-certificate",
            "/etc/c".into(),
            KubeconfigError::File(secret(), "/etc/c".into()),
        ),
        ("users/0/user/client-key", "/etc/k".into(), KubeconfigError::File(secret(), "/etc/k".into())),
        (
            "clusters/0/cluster/certificate-authority",
            "/etc/ca".into(),
            KubeconfigError::File(secret(), "/etc/ca".into()),
        ),
        ("clusters/0/cluster/server", "http://169.254.169.254".into(), KubeconfigError::NotHttps(secret())),
        ("clusters/0/cluster/server", "dev.example:6443".into(), KubeconfigError::NotHttps(secret())),
        ("clusters/0/cluster/insecure-skip-tls-verify", true.into(), KubeconfigError::Unverified(secret())),
        ("clusters/0/cluster/proxy-url", "http://proxy:3128".into(), KubeconfigError::Proxy(secret())),
        ("users/0/user/token", "a\r\nx-other: b".into(), KubeconfigError::NoHeader(secret(), "token")),
        ("users/0/user/username", "a\nb".into(), KubeconfigError::NoHeader(secret(), "username")),
        ("users/0/user/password", "a\n".into(), KubeconfigError::NoHeader(secret(), "password")),
        ("users/0/user/as", "a\rb".into(), KubeconfigError::NoHeader(secret(), "as")),
        ("users/0/user/token", "a\u{0}".into(), KubeconfigError::NoHeader(secret(), "token")),
        ("users/0/user/token", "a\u{1f}".into(), KubeconfigError::NoHeader(secret(), "token")),
    ];
    for (path, value, error) in table {
        assert_eq!(rejection(&with(self_contained(), path, value), false).await, Some(error), "{path}");
    }
}

#[tokio::test]
async fn the_flag_allows_programs_and_nothing_else() {
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/program"});
    let with_exec = with(self_contained(), "users/0/user/exec", exec);
    let error = rejection(&with_exec, true).await;
    assert!(!matches!(error, Some(KubeconfigError::Exec(..))), "{error:?}");
    let with_file = with(with_exec, "users/0/user/tokenFile", "/run/token".into());
    assert_eq!(
        rejection(&with_file, true).await,
        Some(KubeconfigError::File("fleet/dev".into(), "/run/token".into()))
    );
}

#[tokio::test]
async fn an_error_says_what_to_write_instead() {
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"});
    let message =
        rejection(&with(self_contained(), "users/0/user/exec", exec), false).await.unwrap().to_string();
    assert_eq!(
        message,
        "the kubeconfig in Secret fleet/dev runs a program (aws), which Sluice does not allow: use a token or a client \
         certificate, or start the controller with --insecure-kubeconfig-exec"
    );
    let message = rejection(&with(self_contained(), "users/0/user/tokenFile", "/run/t".into()), false)
        .await
        .unwrap()
        .to_string();
    assert_eq!(
        message,
        "the kubeconfig in Secret fleet/dev names a file (/run/t), which Sluice does not read: embed it (kubectl \
         config view --raw --flatten)"
    );
}

#[tokio::test]
async fn the_error_of_an_invalid_kubeconfig_contains_no_secret() {
    let table = [
        "users: [{name: dev, user: {token: hunter2",
        "hunter2",
        "- hunter2",
        "users: hunter2",
        "\thunter2: [",
        "{}",
        "current-context: dev",
    ];
    for text in table {
        let message = client("fleet/dev", text, false).await.err().expect(text).to_string();
        assert!(message.starts_with("the kubeconfig in Secret fleet/dev cannot be read ("), "{message}");
        assert!(message.ends_with("): replace it with a whole, self-contained kubeconfig"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let wrong_base64 =
        with(self_contained(), "clusters/0/cluster/certificate-authority-data", "hunter2".into());
    let message = rejection(&wrong_base64, false).await.unwrap().to_string();
    assert!(!message.contains("hunter2"), "{message}");
}

/// Hundreds of clusters may name one Secret, and the kubeconfig is kept for each.
#[test]
fn a_large_kubeconfig_is_refused() {
    let secret = |bytes: usize| BTreeMap::from([("value".to_string(), vec![b'a'; bytes])]);
    assert!(text("fleet/dev", &secret(64 << 10)).is_ok());
    assert_eq!(
        text("fleet/dev", &secret((64 << 10) + 1)).unwrap_err().to_string(),
        "the kubeconfig in Secret fleet/dev has more than 64 KiB: remove the clusters and users that its context does not \
         use (kubectl config view --raw --minify)"
    );
}

#[test]
fn the_first_key_with_a_kubeconfig_is_used() {
    let secret = |pairs: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.as_bytes().to_vec())).collect()
    };
    let read = |pairs: &[(&str, &str)]| text("fleet/dev", &secret(pairs));
    let none = || Err(KubeconfigError::NoKey("fleet/dev".into()));
    let all = [("kubeconfig", "c"), ("value.yaml", "b"), ("value", "a")];
    assert_eq!(read(&all), Ok("a".into()));
    assert_eq!(read(&all[..2]), Ok("b".into()));
    assert_eq!(read(&all[..1]), Ok("c".into()));
    assert_eq!(read(&[("value", " \n"), ("kubeconfig", "c")]), Ok("c".into()));
    assert_eq!(read(&[("value", "")]), none());
    assert_eq!(read(&[("config", "c")]), none());
    assert_eq!(read(&[]), none());
    assert_eq!(
        none().map(|_: String| ()).unwrap_err().to_string(),
        "Secret fleet/dev has no kubeconfig: put it under the key value (value.yaml and kubeconfig are read too)"
    );
    let binary = BTreeMap::from([("value".to_string(), vec![0xff, 0xfe])]);
    assert!(matches!(text("fleet/dev", &binary), Err(KubeconfigError::Unreadable(..))));
    assert!(data(k8s_openapi::api::core::v1::Secret::default()).is_empty());
}
