//! Signs commits as `git commit -S` does: with `ssh-keygen` or `gpg`, by the type of the key. Key and passphrase are in
//! private files for that time, and never arguments.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, WaitOptions, waitpid};
use tempfile::{NamedTempFile, TempDir};

use super::access::{RepositoryAccess, SigningKey, private_file};
use super::error::{GitError, GitResult, essence};
use super::run::{Git, GitRun, Output};
use super::ssh_private_key::{self, names_a_cipher};

const SSH_KEYGEN: (&str, &str) = ("ssh-keygen", "install OpenSSH's client where Sluice runs");
const GPG: (&str, &str) = ("gpg", "install gpg and gpg-agent where Sluice runs, or sign with an SSH key");
const GPG_CONNECT_AGENT: (&str, &str) = ("gpg-connect-agent", "install gpgconf where Sluice runs");

/// The name of the owner of the Secret's key in the list of allowed signers.
const SIGNER: &str = "sluice";

const LOCKED: &str = "is locked by a passphrase: put that into the Secret too, as signingPassphrase";
const OTHER_PASSPHRASE: &str = "is locked by another passphrase than the signingPassphrase in the Secret";
const EXPIRED: &str = "has expired: extend it with gpg --quick-set-expire, and put there what gpg --armor \
                       --export-secret-keys prints then";
const REVOKED: &str = "is revoked: put another key there, as gpg --armor --export-secret-keys prints it";
const NO_KEY: &str = "is no private key: put the file into the Secret that ssh-keygen wrote (not the one that \
                      ends in .pub), or what gpg --armor --export-secret-keys prints";
const OLD_FORM: &str = "is in a form that cannot sign: ssh-keygen -p -f KEY writes it again in OpenSSH's own";
const TWO_KEYS: &str = "holds more than one key or certificate: put a single private key there";
const SLOW: &str =
    "takes more than 1,000 rounds of bcrypt to unlock: ssh-keygen -p -a 100 -f KEY writes it again with 100";
const HARDWARE: &str = "needs a hardware device: make another key with ssh-keygen -t ed25519";

/// The most rounds of bcrypt that unlock a key: about ten seconds of work. ssh-keygen writes 16 or 24 by default.
const MAX_ROUNDS: u32 = 1_000;

/// Signs and verifies with the key in the Secret.
pub(super) struct Signer<'a> {
    git: &'a Git,
    access: &'a RepositoryAccess,
    key: SigningKey<'a>,
}

impl<'a> Signer<'a> {
    /// A signer with the key in the Secret, if there is one.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub(super) fn new(git: &'a Git, access: &'a RepositoryAccess) -> GitResult<Option<Self>> {
        let Some(key) = access.signing_key() else { return Ok(None) };
        let signer = Signer { git, access, key };
        match problem(&signer.key_text(), signer.key.passphrase) {
            Some(is) if !signer.is_pgp() => Err(signer.bad_key(is)),
            _ => Ok(Some(signer)),
        }
    }

    fn key_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.key.key)
    }

    fn is_pgp(&self) -> bool {
        self.key_text().contains("BEGIN PGP PRIVATE KEY BLOCK")
    }

    /// The signature of these bytes, as armored text.
    pub(super) async fn sign(&self, bytes: &[u8]) -> GitResult<String> {
        if self.is_pgp() { self.sign_by_gpg(bytes).await } else { self.sign_by_ssh(bytes).await }
    }

    /// Whether this is a signature of these bytes by the key.
    pub(super) async fn is_signed(&self, bytes: &[u8], signature: &str) -> GitResult<bool> {
        let file = self.file(format!("{}\n", signature.trim_end()).as_bytes())?;
        match self.is_pgp() {
            true => self.verify_by_gpg(bytes, file.path()).await,
            false => self.verify_by_ssh(bytes, file.path()).await,
        }
    }

    fn file(&self, bytes: &[u8]) -> GitResult<NamedTempFile> {
        private_file(&self.access.folder, bytes).map_err(|e| self.unwritten(&e))
    }

    fn bad_key(&self, is: impl Into<String>) -> GitError {
        GitError::SigningKey { repository: self.access.name().into(), is: is.into() }
    }

    fn unwritten(&self, error: &std::io::Error) -> GitError {
        GitError::Cache { repository: self.access.name().into(), says: error.to_string() }
    }

    async fn sign_by_ssh(&self, bytes: &[u8]) -> GitResult<String> {
        // ssh-keygen rejects a key without a final line end, or with those of Windows. Secrets often have both.
        let mut text: Vec<u8> = self.key.key.iter().copied().filter(|b| *b != b'\r').collect();
        text.push(b'\n');
        let file = self.file(&text)?;
        let mut environment = vec![("SSH_ASKPASS_REQUIRE", OsString::from("force"))];
        let asked = self.key.passphrase.map(|_| askpass(&self.access.folder)).transpose();
        let asked = asked.map_err(|e| self.unwritten(&e))?;
        environment.push(("SSH_ASKPASS", asked.as_ref().map_or("/bin/false".into(), |path| path.into())));
        environment.extend(self.key.passphrase.map(|text| ("SLUICE_PASSPHRASE", text.into())));
        let args =
            ["-Y", "sign", "-n", "git", "-f"].map(OsString::from).into_iter().chain([file.path().into()]);
        let run = GitRun::of(SSH_KEYGEN, self.access, args, environment).with_input(bytes.to_vec());
        let output = self.git.try_run(run).await?;
        if output.success {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        if output.stderr.has("incorrect passphrase") {
            return Err(self.bad_key(OTHER_PASSPHRASE));
        }
        // The names of temporary files help nobody.
        let says = essence(&output.stderr.shown).replace(&*file.path().to_string_lossy(), "it");
        let what = format!("cannot be used by ssh-keygen ({says}); make another with ssh-keygen -t ed25519");
        Err(self.bad_key(what))
    }

    async fn verify_by_ssh(&self, bytes: &[u8], signature: &Path) -> GitResult<bool> {
        let Some(public) = public_half(&self.key_text()) else { return Err(self.bad_key(NO_KEY)) };
        let signers = self.file(format!("{SIGNER} namespaces=\"git\" {public}\n").as_bytes())?;
        let options = ["-Y", "verify", "-n", "git", "-I", SIGNER].map(OsString::from);
        let files = ["-f".into(), signers.path().into(), "-s".into(), signature.into()];
        let args = options.into_iter().chain(files);
        let run = GitRun::of(SSH_KEYGEN, self.access, args, Vec::new()).with_input(bytes.to_vec());
        Ok(self.git.try_run(run).await?.success)
    }

    async fn sign_by_gpg(&self, bytes: &[u8]) -> GitResult<String> {
        let signed = self.in_keyring(["--armor", "--detach-sign"].map(OsString::from), bytes).await?;
        if signed.success {
            return Ok(String::from_utf8_lossy(&signed.stdout).into_owned());
        }
        // gpg signs with none of these, and says only that there is no key.
        let listed = ["--with-colons", "--list-secret-keys"].map(OsString::from);
        let listed = self.in_keyring(listed, b"").await?;
        Err(match unusable(&String::from_utf8_lossy(&listed.stdout)) {
            Some(is) => self.bad_key(is),
            None => self.bad_key(gpg_says(&signed, self.key.passphrase)),
        })
    }

    /// The keyring has only the Secret's key, so that every good signature is by this key.
    async fn verify_by_gpg(&self, bytes: &[u8], signature: &Path) -> GitResult<bool> {
        let args = ["--status-fd", "1", "--verify", "--"].map(OsString::from);
        let verified = self.in_keyring(args.into_iter().chain([signature.into(), "-".into()]), bytes).await?;
        // doc/DETAILS of GnuPG: "GOODSIG: The signature with the keyid is good", and neither expired nor revoked.
        let status = String::from_utf8_lossy(&verified.stdout);
        let is_good = status.lines().any(|line| line.starts_with("[GNUPG:] GOODSIG "));
        Ok(verified.success && is_good)
    }

    /// Runs gpg with a keyring that holds the Secret's key alone.
    async fn in_keyring(&self, args: impl IntoIterator<Item = OsString>, input: &[u8]) -> GitResult<Output> {
        let keyring = tempfile::Builder::new()
            .prefix("gpg-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.access.folder);
        let keyring = keyring.map_err(|e| self.unwritten(&e))?;
        let passphrase = self.file(self.key.passphrase.unwrap_or_default().as_bytes())?;
        let gpg = |more: Vec<OsString>, input: &[u8]| {
            let mut args: Vec<OsString> = vec!["--homedir".into(), keyring.path().into()];
            args.extend(
                ["--batch", "--no-tty", "--quiet", "--pinentry-mode", "loopback"].map(OsString::from),
            );
            args.extend(["--passphrase-file".into(), passphrase.path().into()]);
            args.extend(more);
            GitRun::of(GPG, self.access, args, Vec::new()).with_input(input.to_vec())
        };
        let imported = self.git.try_run(gpg(vec!["--import".into()], self.key.key)).await?;
        let done = match imported.success {
            true => Some(self.git.try_run(gpg(args.into_iter().collect(), input)).await),
            false => None,
        };
        self.end_agent(&keyring).await;
        done.unwrap_or_else(|| Err(self.bad_key(gpg_says(&imported, self.key.passphrase))))
    }

    /// Ends the agent that gpg has started, which holds the key. It would end on its own once its folder is gone. But as
    /// the first process of a container, Sluice inherits it and must wait for it.
    async fn end_agent(&self, keyring: &TempDir) {
        let commands = ["--no-autostart", "GETINFO pid", "KILLAGENT", "/bye"].map(OsString::from);
        let args = ["--homedir".into(), keyring.path().into()].into_iter().chain(commands);
        let run = GitRun::of(GPG_CONNECT_AGENT, self.access, args, Vec::new());
        let Ok(output) = self.git.try_run(run).await else { return };
        let stdout = String::from_utf8_lossy(&output.stdout);
        let pid = stdout.lines().find_map(|line| line.strip_prefix("D ")?.trim().parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { return };
        for _ in 0..100 {
            // An error: it is not a child of this process.
            if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
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

/// A commit with its signature: a header whose further lines begin with a space.
pub(super) fn put_in(commit: &[u8], header: &str, signature: &str) -> Vec<u8> {
    let end = commit.windows(2).position(|two| two == b"\n\n").map_or(commit.len(), |at| at + 1);
    let (head, rest) = commit.split_at(end);
    let signature = signature.trim_end().replace('\r', "").replace('\n', "\n ");
    [head, format!("{header} {signature}\n").as_bytes(), rest].concat()
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
    let bytes = ssh_private_key::decoded(key).unwrap_or_default();
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

/// The public half of a key in OpenSSH's format, as a list of allowed signers has it. The format holds it in the
/// clear: a magic word, cipher, KDF and its options, the number of keys, the public key
/// (PROTOCOL.key of OpenSSH).
fn public_half(key: &str) -> Option<String> {
    let bytes = ssh_private_key::decoded(key)?;
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

/// The program that gives ssh-keygen the passphrase from the environment.
fn askpass(folder: &Path) -> std::io::Result<tempfile::TempPath> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(b"#!/bin/sh\nprintf '%s\\n' \"$SLUICE_PASSPHRASE\"\n")?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o700))?;
    // Closed: a file that is open for writing cannot be run.
    Ok(file.into_temp_path())
}

/// Says why no key in a list can sign, if all have expired or are revoked. In a line of a key (`sec`) or a subkey (`ssb`), the
/// second field is the validity, the twelfth has an `s` if the key can sign, and the fifteenth is `#` if the Secret has only its
/// public half (doc/DETAILS of GnuPG).
fn unusable(list: &str) -> Option<&'static str> {
    let keys = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let signing = keys.filter(|fields| {
        matches!(fields.first(), Some(&("sec" | "ssb")))
            && fields.get(11).is_some_and(|can| can.contains('s'))
            && fields.get(14) != Some(&"#")
    });
    let validities: Vec<&str> = signing.filter_map(|fields| fields.get(1).copied()).collect();
    match &validities[..] {
        [] => None,
        all if all.iter().all(|validity| *validity == "e") => Some(EXPIRED),
        all if all.iter().all(|validity| matches!(*validity, "e" | "r")) => Some(REVOKED),
        _ => None,
    }
}

fn gpg_says(output: &Output, passphrase: Option<&str>) -> String {
    if output.stderr.has("passphrase") {
        return if passphrase.is_some() { OTHER_PASSPHRASE.into() } else { LOCKED.into() };
    }
    let says = essence(&output.stderr.shown);
    format!("cannot be used by gpg ({says}); put there what gpg --armor --export-secret-keys prints")
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
