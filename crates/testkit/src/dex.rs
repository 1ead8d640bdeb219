//! A real Dex as the identity provider of tests: with TLS, people with passwords, and everything in memory.

use crate::plane_state::PlaneState;
use crate::restartable::Restartable;
use crate::servers::{issuer_folder, start_on_free_port, start_ready};
use crate::{ProcessGuard, Scratch};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The bcrypt hash of [`Dex::PASSWORD`].
const PASSWORD_HASH: &str = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W";

/// A program at which people sign in.
#[derive(Clone, Debug)]
pub struct DexClient {
    /// Its id, for which ID tokens are.
    pub id: String,
    /// Its secret; `None` for a public client.
    pub secret: Option<String>,
    /// The address to which people are sent back.
    pub redirect: String,
}

/// An identity provider. Dropping it ends it, and all its state is lost.
pub struct Dex {
    server: Restartable,
    port: u16,
    scratch: Scratch,
    plane: Arc<PlaneState>,
}

impl Dex {
    /// The password of everybody.
    pub const PASSWORD: &str = "password";

    pub(crate) async fn start_on(
        plane: Arc<PlaneState>,
        clients: &[DexClient],
        people: &[&str],
        token_lifetime: &str,
    ) -> Result<Dex> {
        let scratch = Scratch::new("dex")?;
        let folder = scratch.path().to_path_buf();
        let server = plane.authority.server()?;
        let files =
            [("ca.crt", plane.authority.pem()), ("tls.crt", server.certificate), ("tls.key", server.key)];
        for (name, text) in files {
            std::fs::write(folder.join(name), text)?;
        }
        let (guard, port) = start_on_free_port(|port| {
            let configuration = configuration(&folder, port, (clients, people), token_lifetime);
            let folder = folder.clone();
            async move {
                std::fs::write(folder.join("config.json"), configuration.to_string())?;
                launch(&folder, port).await
            }
        })
        .await
        .context("cannot start Dex")?;
        let server = Restartable::new("Dex");
        server.put(guard);
        Ok(Dex { server, port, scratch, plane })
    }

    /// The issuer, as ID tokens name it.
    pub fn issuer(&self) -> String {
        issuer(self.port)
    }

    /// A file with the authority of its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.scratch.path().join("ca.crt")
    }

    /// The authority of its certificate, as PEM.
    pub fn ca(&self) -> String {
        self.plane.authority.pem()
    }

    /// Returns a configuration with which an API server accepts its ID tokens for a client.
    pub(crate) fn authentication_configuration(&self, client: &str) -> String {
        let issuer = json!({"url": self.issuer(), "audiences": [client], "certificateAuthority": self.ca()});
        // The rule of docs/page.md.
        let rule = json!({"expression": "!user.username.startsWith('system:')",
            "message": "names that begin with system: are those of Kubernetes"});
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [{
            "issuer": issuer, "claimMappings": {"username": {"claim": "email", "prefix": ""}},
            "userValidationRules": [rule]}]})
        .to_string()
    }

    /// Kills it. [`Dex::start`] starts it again with the same configuration, without what it knew.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts it again on the same port.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start(&self) -> Result<()> {
        self.stop();
        let server = launch(self.scratch.path(), self.port).await?;
        self.server.put(server);
        Ok(())
    }

    /// Freezes it: it accepts connections and answers nothing until [`Dex::thaw`].
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self) -> Result<()> {
        self.server.freeze()
    }

    /// Ends a [`Dex::freeze`].
    ///
    /// # Errors
    /// It does not run.
    pub fn thaw(&self) -> Result<()> {
        self.server.thaw()
    }
}

fn issuer(port: u16) -> String {
    format!("https://127.0.0.1:{port}/dex")
}

async fn launch(folder: &Path, port: u16) -> Result<ProcessGuard> {
    let mut command = Command::new(issuer_folder()?.join("dex"));
    command.arg("serve").arg(folder.join("config.json"));
    crate::kubeconfig::install_tls_provider();
    let authority = std::fs::read(folder.join("ca.crt"))?;
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&authority)?])
        .build()
        .context("no client for Dex")?;
    let document = format!("{}/.well-known/openid-configuration", issuer(port));
    start_ready("dex", &command, &folder.join("dex.log"), || {
        let request = client.get(&document);
        async move { Ok(request.send().await?.error_for_status().map(drop)?) }
    })
    .await
}

/// Returns the configuration, which is YAML and so may be JSON.
fn configuration(
    folder: &Path,
    port: u16,
    (clients, people): (&[DexClient], &[&str]),
    token_lifetime: &str,
) -> Value {
    let file = |name: &str| folder.join(name).display().to_string();
    let client = |client: &DexClient| {
        let mut object = json!({"id": client.id, "name": client.id, "redirectURIs": [client.redirect]});
        match &client.secret {
            Some(secret) => object["secret"] = json!(secret),
            None => object["public"] = json!(true),
        }
        object
    };
    let person =
        |email: &&str| json!({"email": email, "hash": PASSWORD_HASH, "username": email, "userID": email});
    json!({
        "issuer": issuer(port),
        "storage": {"type": "memory"},
        "web": {"https": format!("127.0.0.1:{port}"), "tlsCert": file("tls.crt"), "tlsKey": file("tls.key")},
        "expiry": {"idTokens": token_lifetime},
        "oauth2": {"skipApprovalScreen": true},
        "enablePasswordDB": true,
        "staticClients": clients.iter().map(client).collect::<Vec<_>>(),
        "staticPasswords": people.iter().map(person).collect::<Vec<_>>(),
    })
}
