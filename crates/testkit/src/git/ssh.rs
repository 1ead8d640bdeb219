//! git over SSH: a real sshd that runs as whoever runs the tests and lets one key in.

use super::repo::Repo;
use crate::servers::{start_on_free_port, start_ready};
use crate::{Leash, Scratch};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// sshd starts itself anew for each connection and wants to know its whole path for that.
const SSHD: &str = "/usr/sbin/sshd";

/// An SSH server on 127.0.0.1 that serves bare repositories. Dropping it ends it and removes them.
pub struct SshServer {
    // Dropped in this order: the server before the folder it reads.
    _server: Leash,
    port: u16,
    user: String,
    folder: PathBuf,
    _scratch: Scratch,
}

impl SshServer {
    /// Starts a server without repositories; installs the program where that can be done.
    ///
    /// # Errors
    /// When there is no sshd and it cannot be installed, or it does not become ready.
    pub async fn start() -> Result<SshServer> {
        need_sshd()?;
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

    /// Makes a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// When there is one of this name, or git fails.
    pub fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<Repo> {
        let folder = self.folder.join(format!("{name}.git"));
        let url = format!("ssh://{}@127.0.0.1:{}{}", self.user, self.port, folder.display());
        let repo = Repo::create(name, folder, url, Arc::default())?;
        repo.commit("main", "initial commit", files)?;
        Ok(repo)
    }

    /// The private key that is let in.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn identity(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.folder.join("identity"))?)
    }

    /// A private key that is not let in; with a passphrase, the one that is, locked by it.
    ///
    /// # Errors
    /// When `ssh-keygen` fails.
    pub fn other_identity(&self, passphrase: &str) -> Result<Vec<u8>> {
        if passphrase.is_empty() {
            return Ok(std::fs::read(new_key(&self.folder, "stranger")?)?);
        }
        let locked = self.folder.join("locked");
        std::fs::copy(self.folder.join("identity"), &locked)?;
        keygen(&["-p", "-P", "", "-N", passphrase], &locked)?;
        Ok(std::fs::read(locked)?)
    }

    /// The line of `known_hosts` for this server.
    ///
    /// # Errors
    /// When the key cannot be read.
    pub fn known_hosts(&self) -> Result<String> {
        self.known_as("host.pub")
    }

    /// The same line with another server's key.
    ///
    /// # Errors
    /// When `ssh-keygen` fails.
    pub fn wrong_known_hosts(&self) -> Result<String> {
        new_key(&self.folder, "impostor")?;
        self.known_as("impostor.pub")
    }

    fn known_as(&self, key: &str) -> Result<String> {
        let key = std::fs::read_to_string(self.folder.join(key))?;
        Ok(format!("[127.0.0.1]:{} {}\n", self.port, key.trim()))
    }
}

/// Finds sshd, or installs it as `make test` does.
fn need_sshd() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/need");
    let status = Command::new(&script).arg("sshd").stdin(Stdio::null()).status();
    if !status.with_context(|| format!("cannot run {}", script.display()))?.success() {
        bail!("there is no sshd: see above what to install");
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

async fn launch(folder: &Path, port: u16) -> Result<Leash> {
    // Where root runs it, sshd wants this folder, which otherwise its service makes.
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
         # The scratch folder's parents are everybody's.\n\
         StrictModes no\n\
         UsePAM no\n\
         UseDNS no\n\
         PidFile none\n\
         PrintMotd no\n\
         AcceptEnv GIT_PROTOCOL\n"
    )
}
