//! Starts Gitea: with one folder for all its files, SQLite, no SSH, and no calls to other servers.

use super::api::{Api, ApiCredentials, PASSWORD, USER};
use super::repo::ForgeRepo;
use crate::servers::{forge_folder, probe, start_on_free_port, start_ready};
use crate::{ProcessGuard, Scratch};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running Gitea. Dropping it ends the server and removes its files.
///
/// It can be kept in a static, because it holds nothing that belongs to a runtime.
pub struct Gitea {
    // Dropped in this order: the server before its folder.
    _server: ProcessGuard,
    url: String,
    token: String,
    folder: PathBuf,
    _scratch: Scratch,
}

impl Gitea {
    /// The administrator, who owns the repositories.
    pub const USER: &'static str = USER;
    /// The password of the administrator, and of every other user.
    pub const PASSWORD: &'static str = PASSWORD;

    /// Starts a server with an administrator and no repositories.
    ///
    /// # Errors
    /// The binary cannot be found or built, or the server does not become ready.
    pub async fn start() -> Result<Gitea> {
        let binaries = forge_folder()?;
        let scratch = Scratch::new("gitea")?;
        let folder = scratch.path().to_owned();
        let (server, port) = start_on_free_port(|port| {
            let (binaries, folder) = (binaries.clone(), folder.clone());
            async move { launch(&binaries, &folder, port).await }
        })
        .await
        .context("cannot start Gitea")?;
        let url = format!("http://127.0.0.1:{port}");
        let mut gitea = Gitea { _server: server, url, token: String::new(), folder, _scratch: scratch };
        gitea.create_administrator(&binaries)?;
        gitea.token = gitea.token_for("tests", &["all"]).await?;
        Ok(gitea)
    }

    /// The address of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A token of the administrator with all scopes.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Creates a token of the administrator with these scopes only, such as `read:repository`.
    ///
    /// # Errors
    /// A token of this name exists, or a scope does not exist.
    pub async fn token_for(&self, name: &str, scopes: &[&str]) -> Result<String> {
        let credentials = ApiCredentials::Password(Self::USER.to_owned(), Self::PASSWORD.to_owned());
        let api = Api { url: self.url.clone(), credentials };
        let path = format!("/users/{}/tokens", Self::USER);
        let answer = api.post(&path, json!({"name": name, "scopes": scopes})).await?;
        answer["sha1"].as_str().map(str::to_owned).context("Gitea returned no token")
    }

    /// Creates a repository whose branch `main` holds one commit with these files.
    ///
    /// # Errors
    /// The repository exists.
    pub async fn create_repo(&self, name: &str, files: &[(&str, &str)]) -> Result<ForgeRepo> {
        let api = self.api();
        let wanted = json!({"name": name, "default_branch": "main", "private": true});
        api.post("/user/repos", wanted).await?;
        let folder = self.folder.join("repositories").join(Self::USER).join(format!("{name}.git"));
        let url = format!("{}/{}/{name}", self.url, Self::USER);
        let repo = ForgeRepo::new(api, name, folder, url, &self.token);
        repo.commit("main", "initial commit", files)?;
        repo.until_indexed("main").await?;
        Ok(repo)
    }

    /// Creates a user, unless the user exists.
    ///
    /// # Errors
    /// Gitea rejects the call.
    pub async fn create_user(&self, name: &str) -> Result<()> {
        if self.api().get(&format!("/users/{name}")).await.is_ok() {
            return Ok(());
        }
        let user = json!({
            "username": name, "email": format!("{name}@example.com"), "password": Self::PASSWORD,
            "must_change_password": false,
        });
        match self.api().post("/admin/users", user).await {
            // Another test has created the user meanwhile.
            Err(error) if !error.to_string().contains("already exists") => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns all requests so far, as `METHOD path status`, from the access log.
    ///
    /// # Errors
    /// The access log cannot be read.
    pub fn requests(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(self.folder.join("log/access.log"))?;
        let lines = text.lines().filter_map(|line| line.split_once("access: "));
        Ok(lines.map(|(_, request)| request.to_owned()).collect())
    }

    fn api(&self) -> Api {
        Api { url: self.url.clone(), credentials: ApiCredentials::Token(self.token.clone()) }
    }

    fn create_administrator(&self, binaries: &Path) -> Result<()> {
        let mut command = gitea_command(binaries, &self.folder);
        command.args(["admin", "user", "create", "--admin", "--must-change-password=false"]);
        command.args(["--username", Self::USER, "--password", Self::PASSWORD]);
        command.args(["--email", "sluice@example.com"]);
        let output = command.output().context("cannot run gitea")?;
        if !output.status.success() {
            let output = [output.stdout, output.stderr].concat();
            bail!("cannot create Gitea's administrator: {}", String::from_utf8_lossy(&output));
        }
        Ok(())
    }
}

async fn launch(binaries: &Path, folder: &Path, port: u16) -> Result<ProcessGuard> {
    std::fs::write(folder.join("app.ini"), settings(binaries, folder, port))?;
    let mut command = gitea_command(binaries, folder);
    command.arg("web");
    let url = format!("http://127.0.0.1:{port}/api/healthz");
    start_ready("gitea", &command, &folder.join("gitea.log"), || probe(url.clone())).await
}

fn gitea_command(binaries: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binaries.join("gitea"));
    command.arg("--config").arg(folder.join("app.ini")).arg("--work-path").arg(folder);
    command.env("HOME", folder).current_dir(folder);
    command
}

fn settings(binaries: &Path, folder: &Path, port: u16) -> String {
    let (binaries, folder) = (binaries.display(), folder.display());
    format!(
        r#"
APP_NAME = Gitea for tests
RUN_MODE = prod
; Containers and build machines often have no other user.
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {binaries}/static
APP_DATA_PATH = {folder}/data
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
SQLITE_JOURNAL_MODE = WAL
SQLITE_TIMEOUT = 30000
[repository]
ROOT = {folder}/repositories
DEFAULT_BRANCH = main
[security]
INSTALL_LOCK = true
; The passwords of tests need no protection, and a slow hash would slow down every call.
PASSWORD_HASH_ALGO = pbkdf2$1$20
[log]
ROOT_PATH = {folder}/log
MODE = console
LEVEL = Warn
logger.access.MODE = requests
ACCESS_LOG_TEMPLATE = access: {{{{.Ctx.Req.Method}}}} {{{{.Ctx.Req.URL.RequestURI}}}} {{{{.ResponseWriter.Status}}}}
[log.requests]
MODE = file
LEVEL = Info
FILE_NAME = access.log
[git.config]
uploadpack.allowFilter = true
uploadpack.allowAnySHA1InWant = true
[webhook]
ALLOWED_HOST_LIST = *
[service]
DISABLE_REGISTRATION = true
[actions]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[cron]
ENABLED = false
[mailer]
ENABLED = false
"#
    )
}
