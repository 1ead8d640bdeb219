//! git over SSH: a real sshd that runs as the user of the tests and accepts one key.

use super::repo::Repo;
use crate::servers::{start_on_free_port, start_ready};
use crate::{ProcessGuard, Scratch};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// sshd starts itself again for each connection, and needs its absolute path for that.
const SSHD: &str = "/usr/sbin/sshd";

/// An SSH server on 127.0.0.1 with bare repositories. Dropping it ends it and removes the repositories.
pub struct SshServer {
    // Dropped in this order: the server before its folder.
    _server: ProcessGuard,
    port: u16,
    user: String,
    folder: PathBuf,
    _scratch: Scratch,
}

impl SshServer {
    /// Starts a server without repositories. Installs sshd if it is missing, as `make test` does.
    ///
    /// # Errors
    /// sshd is missing and cannot be installed, or does not become ready.
    pub async fn start() -> Result<SshServer> {
        install_sshd()?;
        let scratch = Scratch::new("ssh")?;
        let folder = scratch.path().to_owned();
        let key = new_key(&folder, "identity")?;
        std::fs::copy(key.with_extension("pub"), folder.join("authorized_keys"))?;
        new_key(&folder, "host")?;
        let (server, port) = start_on_free_port(|port| {
            let folder = folder.clone();
            async move { launch(&folder, port).await }
        })
        .await
        .context("cannot start sshd")?;
        let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?.trim().to_owned();
        Ok(SshServer { _server: server, port, user, folder, _scratch: scratch })
    }

    /// Creates a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// The repository exists, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<Repo> {
        let folder = self.folder.join(format!("{name}.git"));
        let url = format!("ssh://{}@127.0.0.1:{}{}", self.user, self.port, folder.display());
        let repo = Repo::create(name, folder, url, Arc::default())?;
        repo.commit("main", "initial commit", files)?;
        Ok(repo)
    }

    /// Returns an address of a repository whose path is only the name of the repository, as at forges.
    pub fn short_url(&self, name: &str) -> String {
        format!("ssh://{}@127.0.0.1:{}/{name}.git", self.user, self.port)
    }

    /// The accepted private key.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn identity(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.folder.join("identity"))?)
    }

    /// Returns a private key that is not accepted. With a passphrase: the accepted key, encrypted with it.
    ///
    /// # Errors
    /// `ssh-keygen` fails.
    pub fn other_identity(&self, passphrase: &str) -> Result<Vec<u8>> {
        if passphrase.is_empty() {
            return Ok(std::fs::read(new_key(&self.folder, "other")?)?);
        }
        let encrypted = self.folder.join("encrypted");
        std::fs::copy(self.folder.join("identity"), &encrypted)?;
        keygen(&["-p", "-P", "", "-N", passphrase], &encrypted)?;
        Ok(std::fs::read(encrypted)?)
    }

    /// The `known_hosts` line of this server.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn known_hosts(&self) -> Result<String> {
        self.known_hosts_line("host.pub")
    }

    /// A `known_hosts` line of this server with a wrong key.
    ///
    /// # Errors
    /// `ssh-keygen` fails.
    pub fn wrong_known_hosts(&self) -> Result<String> {
        new_key(&self.folder, "wrong-host")?;
        self.known_hosts_line("wrong-host.pub")
    }

    fn known_hosts_line(&self, key: &str) -> Result<String> {
        let key = std::fs::read_to_string(self.folder.join(key))?;
        Ok(format!("[127.0.0.1]:{} {}\n", self.port, key.trim()))
    }
}

/// Installs sshd if it is missing.
fn install_sshd() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/need");
    let status = Command::new(&script).arg("sshd").stdin(Stdio::null()).status();
    if !status.with_context(|| format!("cannot run {}", script.display()))?.success() {
        bail!("sshd is missing: see above what to install");
    }
    Ok(())
}

fn new_key(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    keygen(&["-t", "ed25519", "-C", name, "-N", ""], &path)?;
    Ok(path)
}

fn keygen(args: &[&str], path: &Path) -> Result<()> {
    let output = Command::new("ssh-keygen").arg("-q").args(args).arg("-f").arg(path).output()?;
    if !output.status.success() {
        bail!("ssh-keygen failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

async fn launch(folder: &Path, port: u16) -> Result<ProcessGuard> {
    // Run by root, sshd needs this folder, which its service usually creates.
    let _ = std::fs::create_dir_all("/run/sshd");
    let config = folder.join("sshd_config");
    std::fs::write(&config, settings(folder, port))?;
    let mut command = Command::new(SSHD);
    command.args(["-D", "-e", "-f"]).arg(&config);
    start_ready("sshd", &command, &folder.join("sshd.log"), || async move {
        let mut greeting = [0; 4];
        TcpStream::connect(("127.0.0.1", port)).await?.read_exact(&mut greeting).await?;
        Ok(())
    })
    .await
}

fn settings(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "ListenAddress 127.0.0.1:{port}\n\
         HostKey {folder}/host\n\
         AuthorizedKeysFile {folder}/authorized_keys\n\
         AuthenticationMethods publickey\n\
         PermitRootLogin prohibit-password\n\
         # All users may write to the parents of the scratch folder.\n\
         StrictModes no\n\
         UsePAM no\n\
         UseDNS no\n\
         PidFile none\n\
         PrintMotd no\n\
         AcceptEnv GIT_PROTOCOL\n\
         # Paths are below the scratch folder, also those of short addresses.\n\
         ForceCommand exec sh -c \"$(echo \"$SSH_ORIGINAL_COMMAND\" | sed \"s#'{folder}/#'/#; s#'/#'{folder}/#\")\"\n"
    )
}
