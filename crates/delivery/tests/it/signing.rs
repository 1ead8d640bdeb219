//! Signed commits, verified by git.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sluice_delivery::{Credentials, Delivered, Order};
use sluice_testkit::{Repo, eventually};

use crate::any_forge::ForgeFixture;
use crate::change_request::proposed;
use crate::commit::{server, to_main};
use crate::fixture::{Bench, FILE, again, bench, git, yaml};
use crate::git_trouble::fails;

/// Runs a program to a successful end; what it printed.
fn run(program: &str, args: &[&str], folder: &Path) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("GNUPGHOME", folder).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A key for SSH, and the file that says that commits may be signed with it.
pub fn ssh_key(folder: &Path, kind: &str, passphrase: &str) -> Vec<u8> {
    let _ = std::fs::remove_file(folder.join("key"));
    run("ssh-keygen", &["-q", "-t", kind, "-C", "sluice@localhost", "-N", passphrase, "-f", "key"], folder);
    let public = std::fs::read_to_string(folder.join("key.pub")).unwrap();
    std::fs::write(folder.join("allowed"), format!("sluice@localhost {public}")).unwrap();
    std::fs::read(folder.join("key")).unwrap()
}

/// A key for GPG with the passphrase `sesame`.
pub fn gpg_key(folder: &Path) -> Vec<u8> {
    let need = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/need");
    assert!(Command::new(need).arg("gpg").status().unwrap().success());
    let loopback = ["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "sesame"];
    let gpg = |more: &[&str]| run("gpg", &[&loopback, more].concat(), folder);
    gpg(&["--quick-gen-key", "Sluice <sluice@localhost>", "ed25519", "sign", "0"]);
    let key = gpg(&["--armor", "--export-secret-keys"]);
    run("gpgconf", &["--kill", "gpg-agent"], folder);
    key.into_bytes()
}

pub fn signed_with(order: &Order, key: &[u8], passphrase: Option<&str>) -> Order {
    let credentials = Credentials {
        signing_key: Some(key.to_vec()),
        signing_passphrase: passphrase.map(String::from),
        ..order.credentials.clone()
    };
    Order { credentials, ..order.clone() }
}

pub fn verify_ssh(repo: &Repo, branch: &str, folder: &Path) {
    let allowed = format!("gpg.ssh.allowedSignersFile={}", folder.join("allowed").display());
    git(repo.folder(), &["-c", "gpg.format=ssh", "-c", &allowed, "verify-commit", branch], "");
}

/// Nothing secret is left on disk; the words are those of this test alone.
fn nothing_is_left(bench: &Bench, words: &[&str]) {
    let mut folders = vec![bench.cache.path().to_path_buf()];
    let private = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    folders.extend(private.map(|e| e.path()).filter(|p| p.to_string_lossy().contains("sluice-private-")));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            assert!(words.iter().all(|word| !text.contains(word)), "{path:?}");
        }
    }
}

#[tokio::test]
async fn commits_are_signed_with_ssh_keys_of_every_kind() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, folder) = (bench(), tempfile::tempdir().unwrap());
    let kinds = [("ed25519", ""), ("rsa", ""), ("ecdsa", ""), ("ed25519", "a \"$HOME\" word")];
    for (i, (kind, passphrase)) in kinds.into_iter().enumerate() {
        let key = ssh_key(folder.path(), kind, passphrase);
        let key = String::from_utf8(key).unwrap().trim_end().replace('\n', "\r\n");
        let order = to_main(&repo, &format!("6.2.{i}"));
        let order = signed_with(&order, key.as_bytes(), Some(passphrase).filter(|p| !p.is_empty()));
        let done = bench.delivery.deliver(&order).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
        verify_ssh(&repo, "main", folder.path());
        assert_eq!(repo.read("main", FILE).unwrap(), yaml(&format!("6.2.{i}")));
        assert_eq!(bench.delivery.deliver(&again(&order)).await.unwrap(), done, "it is found again");
        let line = key.lines().nth(1).unwrap().to_string();
        nothing_is_left(&bench, &[&line, "HOME\" word"]);
    }
    git(repo.folder(), &["fsck", "--strict"], "");
    // Without the key nothing is signed.
    bench.delivery.deliver(&to_main(&repo, "6.3.0")).await.unwrap();
    assert!(!git(repo.folder(), &["cat-file", "commit", "main"], "").contains("gpgsig"));
}

#[tokio::test]
async fn commits_are_signed_with_gpg_and_its_agent_ends() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, folder) = (bench(), tempfile::tempdir().unwrap());
    let key = gpg_key(folder.path());
    let order = to_main(&repo, "6.1.8");
    let done = bench.delivery.deliver(&signed_with(&order, &key, Some("sesame"))).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    run("git", &["--git-dir", repo.folder().to_str().unwrap(), "verify-commit", "main"], folder.path());
    nothing_is_left(&bench, &["sesame", "BEGIN PGP PRIVATE"]);
    let next = to_main(&repo, "6.1.9");
    let says = |error: sluice_delivery::DeliveryError| error.to_string();
    let wrong = fails(&bench, &signed_with(&next, &key, Some("no")), "SigningKeyInvalid").await;
    assert!(says(wrong).contains("another passphrase than the signingPassphrase"));
    let locked = fails(&bench, &signed_with(&next, &key, None), "SigningKeyInvalid").await;
    assert!(says(locked).contains("as signingPassphrase"));
    let broken = b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n-----END PGP PRIVATE KEY BLOCK-----\n";
    let broken = fails(&bench, &signed_with(&next, broken, None), "SigningKeyInvalid").await;
    assert!(says(broken).contains("cannot be used by gpg"));
    eventually(Duration::from_secs(60), async || {
        let agents = run("ps", &["-e", "-o", "args="], folder.path());
        let left = agents.lines().any(|line| line.contains("gpg-agent") && line.contains("sluice-private-"));
        anyhow::ensure!(!left, "{agents}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_key_for_gpg_that_has_expired_or_is_revoked_is_named_so() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let bench = bench();
    let gpg = |folder: &Path, args: &[&str]| {
        let quiet = ["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""];
        run("gpg", &[&quiet, args].concat(), folder)
    };
    let make = |folder: &Path, args: &[&str], expires: &str| {
        let new = ["--quick-gen-key", "Sluice <sluice@localhost>", "ed25519", "sign", expires];
        gpg(folder, &[args, &new].concat());
    };
    let [expired, revoked] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    make(expired.path(), &["--faked-system-time", "20240101T000000"], "1d");
    make(revoked.path(), &[], "0");
    let revocations = std::fs::read_dir(revoked.path().join("openpgp-revocs.d")).unwrap();
    let file = revocations.flatten().next().unwrap().path();
    // GnuPG writes a colon before the first line, so that nobody imports it by mistake.
    let revocation = std::fs::read_to_string(&file).unwrap().replace(":-----BEGIN", "-----BEGIN");
    std::fs::write(&file, revocation).unwrap();
    gpg(revoked.path(), &["--import", file.to_str().unwrap()]);
    for (folder, is) in [(&expired, "the signingKey in the Secret has expired"), (&revoked, "is revoked")] {
        let key = gpg(folder.path(), &["--armor", "--export-secret-keys"]);
        run("gpgconf", &["--kill", "gpg-agent"], folder.path());
        let order = signed_with(&to_main(&repo, "6.1.8"), key.as_bytes(), None);
        let error = fails(&bench, &order, "SigningKeyInvalid").await.to_string();
        assert!(error.contains(is) && !error.contains("/gpg-"), "{error}");
    }
}

/// The same locked key, as if it took so many rounds of bcrypt: the rounds follow a salt of 16 bytes.
fn with_rounds(key: &[u8], rounds: u32) -> Vec<u8> {
    let text = std::str::from_utf8(key).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut body = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let at = body.windows(6).position(|word| word == b"bcrypt").unwrap() + 6 + 4 + 4 + 16;
    body[at..at + 4].copy_from_slice(&rounds.to_be_bytes());
    format!("{}\n{}\n{}\n", lines[0], STANDARD.encode(body), lines[lines.len() - 1]).into_bytes()
}

#[tokio::test]
async fn unusable_signing_keys_are_reported_and_nothing_is_pushed() {
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    let (bench, folder) = (bench(), tempfile::tempdir().unwrap());
    let order = to_main(&repo, "6.1.8");
    let locked = ssh_key(folder.path(), "ed25519", "sesame");
    let public = std::fs::read(folder.path().join("key.pub")).unwrap();
    let openssh = |body: &str| {
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
            .into_bytes()
    };
    // The head of a key without a passphrase, and nothing below it.
    let broken = openssh("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB");
    let slow = with_rounds(&locked, 1_001);
    for (key, passphrase, words) in [
        (&locked[..], None, "put that into the Secret too, as signingPassphrase"),
        (&locked, Some("open"), "another passphrase than the signingPassphrase"),
        (&public, None, "is no private key"),
        (&openssh("AAAA"), None, "is no private key"),
        (&broken, None, "cannot be used by ssh-keygen"),
        (&slow, Some("sesame"), "more than 1,000 rounds of bcrypt"),
        (b"nonsense", None, "is no private key"),
    ] {
        let error = fails(&bench, &signed_with(&order, key, passphrase), "SigningKeyInvalid").await;
        assert!(error.to_string().contains("the signingKey in the Secret"), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("sluice-private"), "our own folders help nobody: {error}");
    }
    assert_eq!((repo.log("main").unwrap().len(), bench.delivery.stats().git_pushes), (1, 0));
}

#[tokio::test]
async fn a_head_branch_is_signed_once_and_one_without_a_signature_gets_it() {
    let fixture = ForgeFixture::github().await;
    let (bench, folder) = (bench(), tempfile::tempdir().unwrap());
    // Signatures of this kind are another each time.
    let key = ssh_key(folder.path(), "ecdsa", "");
    let order = fixture.order("6.1.8");
    let unsigned = proposed(&bench.delivery, &order).await.head_commit;
    let signed = proposed(&bench.delivery, &signed_with(&order, &key, None)).await;
    assert_ne!(signed.head_commit, unsigned);
    verify_ssh(fixture.repo(), &signed.branch, folder.path());
    assert_eq!(
        proposed(&bench.delivery, &signed_with(&order, &key, None)).await.head_commit,
        signed.head_commit
    );
    assert_eq!((bench.delivery.stats().git_pushes, fixture.pulls().await.len()), (2, 1));
}
