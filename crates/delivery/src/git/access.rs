//! Access to a repository: the address, and the credentials where only git can see them: in its environment, and in files
//! that only this user can read. Credentials are never arguments.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::{GitError, GitResult};
use super::ssh_private_key;
use crate::address::RepositoryAddress;
use crate::credentials::Credentials;
use crate::forge_kind::ForgeKind;

/// Access to one repository, for the time of one delivery.
pub(crate) struct RepositoryAccess {
    pub(crate) address: RepositoryAddress,
    credentials: Credentials,
    /// A fingerprint of the credentials: answers to other credentials are not valid for these.
    pub(super) fingerprint: String,
    /// The pipeline, as `namespace/name`, in whose queue the delivery waits.
    pub(super) pipeline: String,
    forge: Option<ForgeKind>,
    ca_file: Option<NamedTempFile>,
    ssh: Option<(NamedTempFile, NamedTempFile)>,
    /// The folder for files with secrets, which nobody else may read.
    pub(super) folder: PathBuf,
}

/// The key that signs commits, and its passphrase.
pub(super) struct SigningKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) passphrase: Option<&'a str>,
}

impl RepositoryAccess {
    /// Writes the credentials for git into private files below `folder`. They are removed with this value.
    pub(crate) fn new(
        address: RepositoryAddress,
        forge: Option<ForgeKind>,
        credentials: &Credentials,
        pipeline: &str,
        folder: &Path,
    ) -> GitResult<Self> {
        let write = |bytes: &[u8]| {
            private_file(folder, bytes)
                .map_err(|e| GitError::Cache { repository: address.text.clone(), says: e.to_string() })
        };
        let lacks = |key| GitError::NoCredential { repository: address.text.clone(), key };
        let ca_file = credentials.ca_file.as_deref().map(write).transpose()?;
        let ssh = if address.scheme == "ssh" {
            let identity = credentials.identity.as_deref().ok_or_else(|| lacks("identity"))?;
            let known = credentials.known_hosts.as_deref().ok_or_else(|| lacks("known_hosts"))?;
            let identity = ssh_private_key::readable(identity)
                .map_err(|is| GitError::Identity { repository: address.text.clone(), is })?;
            Some((write(&identity)?, write(known)?))
        } else {
            None
        };
        let (credentials, fingerprint) = (credentials.clone(), credentials.fingerprint());
        let pipeline = pipeline.to_string();
        Ok(RepositoryAccess {
            credentials,
            fingerprint,
            pipeline,
            forge,
            ca_file,
            ssh,
            address,
            folder: folder.into(),
        })
    }

    /// The key that signs commits, if there is one.
    pub(super) fn signing_key(&self) -> Option<SigningKey<'_>> {
        let key = self.credentials.signing_key.as_deref()?;
        Some(SigningKey { key, passphrase: self.credentials.signing_passphrase.as_deref() })
    }

    /// The name of the repository in messages.
    pub(super) fn name(&self) -> &str {
        &self.address.text
    }

    pub(super) fn redact(&self, text: &str) -> String {
        self.credentials.redact(text)
    }

    /// The configuration of git for this address.
    pub(super) fn configuration(&self) -> Vec<(String, OsString)> {
        let mut settings = vec![("remote.origin.url".to_string(), OsString::from(&self.address.text))];
        if !self.address.scheme.starts_with("http") {
            return settings;
        }
        if let Some(value) = self.credentials.for_git(self.forge) {
            let header = format!("Authorization: {value}");
            settings.push((format!("http.{}.extraHeader", self.address.text), header.into()));
        }
        if let Some(file) = &self.ca_file {
            settings.push(("http.sslCAInfo".into(), file.path().into()));
        }
        settings
    }

    /// The command by which git runs ssh: with this key, and to known servers only.
    pub(super) fn ssh_command(&self) -> Option<OsString> {
        let (identity, known) = self.ssh.as_ref()?;
        let mut command = OsString::from(
            "ssh -F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes \
             -o GlobalKnownHostsFile=/dev/null -o PasswordAuthentication=no -o ConnectTimeout=20 \
             -o ServerAliveInterval=15",
        );
        for (option, file) in [("UserKnownHostsFile", known), ("IdentityFile", identity)] {
            command.push(format!(" -o {option}="));
            command.push(quoted(file.path()));
        }
        Some(command)
    }
}

/// A path in quotes for a shell, because git runs the command in one.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

pub(super) fn private_file(folder: &Path, bytes: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn ssh_is_pinned_and_its_files_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let address = RepositoryAddress::parse("git@example.com:a/b.git", false).unwrap();
        let bare = Credentials::default();
        let refused =
            RepositoryAccess::new(address.clone(), None, &bare, "apps/podinfo", folder.path()).err().unwrap();
        assert_eq!(refused.reason(), "MissingCredential");
        let full = Credentials {
            identity: Some(b"-----BEGIN PRIVATE KEY-----\n".to_vec()),
            known_hosts: Some(b"example.com ssh-ed25519 AAAA".to_vec()),
            ..Credentials::default()
        };
        let access = RepositoryAccess::new(address, None, &full, "apps/podinfo", folder.path()).unwrap();
        let command = access.ssh_command().unwrap().into_string().unwrap();
        assert!(command.contains("StrictHostKeyChecking=yes"));
        for file in std::fs::read_dir(folder.path()).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        drop(access);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
