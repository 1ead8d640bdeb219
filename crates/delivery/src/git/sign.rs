//! Signs commits as `git commit -S` does: with `ssh-keygen` or `gpg`, by the type of the key. Key and passphrase are in
//! private files for that time, and never arguments.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, WaitOptions, waitpid};
use tempfile::TempDir;

use super::access::{RepositoryAccess, SigningKey, private_file};
use super::error::{GitError, GitResult, essence};
use super::run::{Git, GitRun, Output};
use super::ssh_identity::{self, names_a_cipher};

const SSH_KEYGEN: (&str, &str) = ("ssh-keygen", "install OpenSSH's client beside Sluice");
const GPG: (&str, &str) = ("gpg", "install gpg and gpg-agent beside Sluice, or sign with an SSH key");
const GPG_CONNECT_AGENT: (&str, &str) = ("gpg-connect-agent", "install gpgconf beside Sluice");

/// The name of the owner of the Secret's key in the list of allowed signers.
const SIGNER: &str = "sluice";

const LOCKED: &str = "is locked by a passphrase: put that into the Secret too, as signingPassphrase";
const OTHER_PASSPHRASE: &str = "is locked by another passphrase than the signingPassphrase in the Secret";
const NO_KEY: &str = "is no private key: put the file into the Secret that ssh-keygen wrote (not the one that \
                      ends in .pub), or what gpg --armor --export-secret-keys prints";
const OLD_FORM: &str = "is in a form that cannot sign: ssh-keygen -p -f KEY writes it again in OpenSSH's own";
const TWO_KEYS: &str = "holds more than one key or certificate: put a single private key there";
const SLOW: &str =
    "takes more than 1,000 rounds of bcrypt to unlock: ssh-keygen -p -a 100 -f KEY writes it again with 100";
const HARDWARE: &str = "needs a hardware device: make another key with ssh-keygen -t ed25519";

/// The most rounds of bcrypt that unlock a key: about ten seconds of work. ssh-keygen writes 16 or 24 by default.
const MAX_ROUNDS: u32 = 1_000;

/// The signature of these bytes, as armored text.
pub(super) async fn sign(git: &Git, access: &RepositoryAccess, bytes: &[u8]) -> GitResult<String> {
    let Some(key) = access.signing_key() else { return Err(bad(access, NO_KEY)) };
    let text = String::from_utf8_lossy(key.key);
    if text.contains("BEGIN PGP PRIVATE KEY BLOCK") {
        return with_gpg(git, access, &key, bytes).await;
    }
    match problem(&text, key.passphrase) {
        Some(is) => Err(bad(access, is)),
        None => with_ssh(git, access, &key, bytes).await,
    }
}

/// The header for the signature of a commit, by the length of its id: SHA-1 or SHA-256.
pub(super) fn header(id: &str) -> &'static str {
    if id.len() == 40 { "gpgsig" } else { "gpgsig-sha256" }
}

/// The signature that `put_in` added to a commit.
pub(super) fn signature(commit: &[u8], header: &str) -> Option<String> {
    let text = std::str::from_utf8(commit).ok()?;
    let (head, _) = text.split_once("\n\n")?;
    let mut lines = head.lines().skip_while(|line| !line.starts_with(&format!("{header} ")));
    let first = lines.next()?.strip_prefix(header)?.strip_prefix(' ')?;
    let rest = lines.map_while(|line| line.strip_prefix(' '));
    Some(std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n"))
}

/// Whether this is a signature of these bytes by the key in the Secret.
pub(super) async fn is_signed(
    git: &Git,
    access: &RepositoryAccess,
    bytes: &[u8],
    signature: &str,
) -> GitResult<bool> {
    let Some(key) = access.signing_key() else { return Ok(false) };
    let signature = format!("{}\n", signature.trim_end());
    let file = private_file(access.folder(), signature.as_bytes()).map_err(|e| unwritten(access, &e))?;
    let text = String::from_utf8_lossy(key.key);
    if text.contains("BEGIN PGP PRIVATE KEY BLOCK") {
        return verify_gpg(git, access, &key, bytes, file.path()).await;
    }
    match problem(&text, key.passphrase) {
        Some(is) => Err(bad(access, is)),
        None => verify_ssh(git, access, &text, bytes, file.path()).await,
    }
}

/// A commit with its signature: a header whose further lines begin with a space.
pub(super) fn put_in(commit: &[u8], header: &str, signature: &str) -> Vec<u8> {
    let end = commit.windows(2).position(|two| two == b"\n\n").map_or(commit.len(), |at| at + 1);
    let (head, rest) = commit.split_at(end);
    let signature = signature.trim_end().replace('\r', "").replace('\n', "\n ");
    [head, format!("{header} {signature}\n").as_bytes(), rest].concat()
}

fn bad(access: &RepositoryAccess, is: impl Into<String>) -> GitError {
    GitError::SigningKey { repository: access.name().into(), is: is.into() }
}

/// What is wrong with a key for SSH, as far as its text shows.
fn problem(key: &str, passphrase: Option<&str>) -> Option<&'static str> {
    // As ssh-keygen reads it.
    let key = &key.replace('\r', "");
    if !key.contains("PRIVATE KEY-----") {
        return Some(NO_KEY);
    }
    if !key.contains("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return Some(OLD_FORM);
    }
    // ssh-keygen would try a second key in another format, with a KDF of its own.
    if key.matches("-----BEGIN").count() > 1 {
        return Some(TWO_KEYS);
    }
    let bytes = ssh_identity::decoded(key).unwrap_or_default();
    let is_of = |kind: &[u8]| bytes.windows(kind.len()).any(|window| window == kind);
    if is_of(b"sk-ssh-") || is_of(b"sk-ecdsa-") {
        return Some(HARDWARE);
    }
    if passphrase.is_none() && names_a_cipher(key) {
        return Some(LOCKED);
    }
    match rounds(&bytes) {
        None => Some(NO_KEY),
        Some(rounds) => (rounds > MAX_ROUNDS).then_some(SLOW),
    }
}

/// The rounds of bcrypt that unlock a key in OpenSSH's format, 0 for a key without a passphrase. The format: a magic
/// word, the cipher, the KDF and its options, which are a salt and the rounds
/// (<https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.key>).
fn rounds(key: &[u8]) -> Option<u32> {
    let mut rest = key.strip_prefix(b"openssh-key-v1\0")?;
    let (_cipher, kdf, mut options) = (field(&mut rest)?, field(&mut rest)?, field(&mut rest)?);
    if kdf == b"none" {
        return Some(0);
    }
    let _salt = field(&mut options)?;
    options.first_chunk().map(|rounds| u32::from_be_bytes(*rounds))
}

async fn with_ssh(
    git: &Git,
    access: &RepositoryAccess,
    key: &SigningKey<'_>,
    bytes: &[u8],
) -> GitResult<String> {
    // ssh-keygen rejects a key without a final line end, or with those of Windows. Secrets often have both.
    let mut text: Vec<u8> = key.key.iter().copied().filter(|b| *b != b'\r').collect();
    text.push(b'\n');
    let file = private_file(access.folder(), &text).map_err(|e| unwritten(access, &e))?;
    let mut environment = vec![("SSH_ASKPASS_REQUIRE", OsString::from("force"))];
    let asked = key.passphrase.map(|_| asking(access.folder())).transpose();
    let asked = asked.map_err(|e| unwritten(access, &e))?;
    environment.push(("SSH_ASKPASS", asked.as_ref().map_or("/bin/false".into(), |path| path.into())));
    if let Some(passphrase) = key.passphrase {
        environment.push(("SLUICE_PASSPHRASE", passphrase.into()));
    }
    let args = [
        "-Y".into(),
        "sign".into(),
        "-n".into(),
        "git".into(),
        "-f".into(),
        file.path().as_os_str().to_owned(),
    ];
    let call = GitRun::of(SSH_KEYGEN, access, args, environment).with_input(bytes.to_vec());
    let output = git.try_run(call).await?;
    if output.success {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if output.stderr.has("incorrect passphrase") {
        return Err(bad(access, OTHER_PASSPHRASE));
    }
    // The names of temporary files help nobody.
    let says = essence(&output.stderr.shown).replace(&*file.path().to_string_lossy(), "it");
    Err(bad(
        access,
        format!("cannot be used by ssh-keygen ({says}); make another with ssh-keygen -t ed25519"),
    ))
}

/// The public half of a key in OpenSSH's format, as a list of allowed signers has it. The format holds it in the
/// clear: a magic word, cipher, KDF and its options, the number of keys, the public key
/// (PROTOCOL.key of OpenSSH).
fn public_half(key: &str) -> Option<String> {
    let bytes = ssh_identity::decoded(key)?;
    let mut rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    for _ in 0..3 {
        field(&mut rest)?;
    }
    rest = rest.get(4..)?;
    let public = field(&mut rest)?;
    let kind = std::str::from_utf8(field(&mut { public })?).ok()?;
    let is_word = kind.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.@".contains(&b));
    (is_word && !kind.is_empty()).then(|| format!("{kind} {}", STANDARD.encode(public)))
}

/// Takes a field with a length prefix from the front.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (field, left) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = left;
    Some(field)
}

async fn verify_ssh(
    git: &Git,
    access: &RepositoryAccess,
    key: &str,
    bytes: &[u8],
    signature: &Path,
) -> GitResult<bool> {
    let Some(public) = public_half(key) else { return Err(bad(access, NO_KEY)) };
    let signers = format!("{SIGNER} namespaces=\"git\" {public}\n");
    let signers = private_file(access.folder(), signers.as_bytes()).map_err(|e| unwritten(access, &e))?;
    let options = ["-Y", "verify", "-n", "git", "-I", SIGNER].map(OsString::from);
    let files = ["-f".into(), signers.path().into(), "-s".into(), signature.into()];
    let args = options.into_iter().chain(files);
    let call = GitRun::of(SSH_KEYGEN, access, args, Vec::new()).with_input(bytes.to_vec());
    Ok(git.try_run(call).await?.success)
}

/// The program that gives ssh-keygen the passphrase from the environment.
fn asking(folder: &Path) -> std::io::Result<tempfile::TempPath> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(b"#!/bin/sh\nprintf '%s\\n' \"$SLUICE_PASSPHRASE\"\n")?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o700))?;
    // Closed: a file that is open for writing cannot be run.
    Ok(file.into_temp_path())
}

fn unwritten(access: &RepositoryAccess, error: &std::io::Error) -> GitError {
    GitError::Cache { repository: access.name().into(), says: error.to_string() }
}

async fn with_gpg(
    git: &Git,
    access: &RepositoryAccess,
    key: &SigningKey<'_>,
    bytes: &[u8],
) -> GitResult<String> {
    let args = ["--armor", "--detach-sign"].map(OsString::from);
    let signed = in_keyring(git, access, key, args, bytes).await?;
    if signed.success {
        return Ok(String::from_utf8_lossy(&signed.stdout).into_owned());
    }
    Err(bad(access, gpg_says(&signed, key.passphrase)))
}

/// The keyring has only the Secret's key, so that every good signature is by this key.
async fn verify_gpg(
    git: &Git,
    access: &RepositoryAccess,
    key: &SigningKey<'_>,
    bytes: &[u8],
    signature: &Path,
) -> GitResult<bool> {
    let args = ["--status-fd", "1", "--verify", "--"].map(OsString::from);
    let args = args.into_iter().chain([signature.into(), "-".into()]);
    let verified = in_keyring(git, access, key, args, bytes).await?;
    // doc/DETAILS of GnuPG: "GOODSIG: The signature with the keyid is good", and neither expired nor revoked.
    let status = String::from_utf8_lossy(&verified.stdout);
    let is_good = status.lines().any(|line| line.starts_with("[GNUPG:] GOODSIG "));
    Ok(verified.success && is_good)
}

/// Runs gpg with a keyring that holds the Secret's key alone.
async fn in_keyring(
    git: &Git,
    access: &RepositoryAccess,
    key: &SigningKey<'_>,
    args: impl IntoIterator<Item = OsString>,
    input: &[u8],
) -> GitResult<Output> {
    let keyring = tempfile::Builder::new().prefix("gpg-").tempdir_in(access.folder());
    let keyring = keyring.map_err(|e| unwritten(access, &e))?;
    let passphrase = private_file(access.folder(), key.passphrase.unwrap_or_default().as_bytes());
    let passphrase = passphrase.map_err(|e| unwritten(access, &e))?;
    let gpg = |more: Vec<OsString>, input: &[u8]| {
        let mut args: Vec<OsString> = vec!["--homedir".into(), keyring.path().into()];
        args.extend(["--batch", "--no-tty", "--quiet", "--pinentry-mode", "loopback"].map(OsString::from));
        args.extend(["--passphrase-file".into(), passphrase.path().into()]);
        args.extend(more);
        GitRun::of(GPG, access, args, Vec::new()).with_input(input.to_vec())
    };
    let imported = git.try_run(gpg(vec!["--import".into()], key.key)).await?;
    let done = match imported.success {
        true => Some(git.try_run(gpg(args.into_iter().collect(), input)).await),
        false => None,
    };
    end_agent(git, access, &keyring).await;
    done.unwrap_or_else(|| Err(bad(access, gpg_says(&imported, key.passphrase))))
}

fn gpg_says(output: &Output, passphrase: Option<&str>) -> String {
    if output.stderr.has("passphrase") {
        return if passphrase.is_some() { OTHER_PASSPHRASE.into() } else { LOCKED.into() };
    }
    let says = essence(&output.stderr.shown);
    format!("cannot be used by gpg ({says}); put there what gpg --armor --export-secret-keys prints")
}

/// Ends the agent that gpg has started, which holds the key. It would end on its own once its folder is gone. But as the
/// first process of a container, Sluice inherits it and must wait for it.
async fn end_agent(git: &Git, access: &RepositoryAccess, keyring: &TempDir) {
    let args: [OsString; 6] = [
        "--homedir".into(),
        keyring.path().into(),
        "--no-autostart".into(),
        "GETINFO pid".into(),
        "KILLAGENT".into(),
        "/bye".into(),
    ];
    let Ok(said) = git.try_run(GitRun::of(GPG_CONNECT_AGENT, access, args, Vec::new())).await else { return };
    let said = String::from_utf8_lossy(&said.stdout);
    let pid =
        said.lines().find_map(|line| line.strip_prefix("D ")?.trim().parse().ok()).and_then(Pid::from_raw);
    let Some(pid) = pid else { return };
    for _ in 0..100 {
        // An error: it is not a child of this process.
        if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_a_header_of_the_commit() {
        let commit = b"tree 1\nauthor a\ncommitter a\n\nsubject\n\nbody\n";
        let signed = put_in(commit, "gpgsig", "-----BEGIN\n\nAA\r\n-----END\n");
        let expected =
            "tree 1\nauthor a\ncommitter a\ngpgsig -----BEGIN\n \n AA\n -----END\n\nsubject\n\nbody\n";
        assert_eq!(String::from_utf8(signed.clone()).unwrap(), expected);
        let taken_out = signature(&signed, "gpgsig").unwrap();
        assert_eq!(taken_out, "-----BEGIN\n\nAA\n-----END");
        assert_eq!(put_in(commit, "gpgsig", &taken_out), signed);
        assert_eq!(signature(commit, "gpgsig"), None);
        assert_eq!(signature(b"tree 1\n\ngpgsig x\n", "gpgsig"), None, "that is its message");
    }

    #[test]
    fn keys_that_cannot_sign_are_rejected() {
        let openssh = |inside: &[u8]| {
            let body = STANDARD.encode([b"openssh-key-v1\0", inside].concat());
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
        };
        let open = b"\0\0\0\x04none\0\0\0\x04none\0\0\0\0ssh-ed25519";
        let locked = |rounds: u32| {
            let head = b"\0\0\0\x0aaes256-ctr\0\0\0\x06bcrypt\0\0\0\x0a\0\0\0\x02me";
            openssh(&[&head[..], &rounds.to_be_bytes()].concat())
        };
        let hidden = "-----BEG\rIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        for (key, passphrase, expected) in [
            ("ssh-ed25519 AAAA me@here".into(), None, Some(NO_KEY)),
            ("-----BEGIN PGP PUBLIC KEY BLOCK-----".into(), None, Some(NO_KEY)),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA".into(), None, Some(OLD_FORM)),
            (openssh(b"\0\0\0\x04none sk-ssh-ed25519@openssh.com"), None, Some(HARDWARE)),
            (openssh(b"\0\0\0\x0aaes256-ctr"), None, Some(LOCKED)),
            (openssh(b"\0\0\0\x0aaes256-ctr"), Some("x"), Some(NO_KEY)),
            (locked(1_000), Some("x"), None),
            (locked(1_001), Some("x"), Some(SLOW)),
            (locked(u32::MAX), Some("x"), Some(SLOW)),
            (locked(16) + "no base64\n", Some("x"), Some(NO_KEY)),
            (locked(16) + hidden, Some("x"), Some(TWO_KEYS)),
            (openssh(open), None, None),
        ] {
            assert_eq!(problem(&key, passphrase), expected, "{key}");
        }
    }
}
