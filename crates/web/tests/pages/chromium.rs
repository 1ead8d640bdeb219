//! A real Chromium of somebody who has signed in, in front of a server of its own.

use std::path::PathBuf;

use sluice_core::fleet::index::Fleet;
use sluice_testkit::{Browser, Look};
use sluice_web::{Api, router};
use tokio::task::JoinHandle;

use super::world::World;

/// The looks in which pages are checked.
const LOOKS: [(&str, Look); 3] = [
    ("light", Look { width: 1280, dark: false }),
    ("dark", Look { width: 1280, dark: true }),
    ("phone", Look { width: 360, dark: false }),
];

/// A server of the pages. Dropping it ends it.
pub struct PageServer {
    /// Host and port.
    pub address: String,
    task: JoinHandle<std::io::Result<()>>,
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the pages, with actions and without a fleet.
pub async fn serve(world: &World) -> PageServer {
    serve_with(Fleet::default(), world).await
}

async fn serve_with(fleet: Fleet, world: &World) -> PageServer {
    let router = router(Api::new(fleet, world.clone(), true));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    PageServer { address, task: tokio::spawn(async move { axum::serve(listener, router).await }) }
}

pub struct Chromium {
    pub browser: Browser,
    pub base: String,
    _server: PageServer,
}

impl Chromium {
    /// Signs in as the admin of a world without a fleet.
    pub async fn of_admin(world: &World) -> Chromium {
        Chromium::of_admin_with(Fleet::default(), world).await
    }

    /// Signs in as the admin.
    pub async fn of_admin_with(fleet: Fleet, world: &World) -> Chromium {
        let server = serve_with(fleet, world).await;
        let base = format!("http://{}", server.address);
        let browser = Browser::start().await.unwrap();
        browser.open(&format!("{base}/sign-in")).await.unwrap();
        browser.write("#token", "admin").await.unwrap();
        browser.click("button.main").await.unwrap();
        browser.until_text("New pipeline").await.unwrap();
        Chromium { browser, base, _server: server }
    }

    pub async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.base)).await.unwrap();
    }

    /// Returns what is wrong with pages in any look. `make screenshots` names a folder for pictures.
    pub async fn faults_of(&self, pages: &[(&str, &str)]) -> Vec<String> {
        let pictures = std::env::var_os("SLUICE_SCREENSHOTS").map(PathBuf::from);
        let mut faults = Vec::new();
        for (name, path) in pages {
            for (look, size) in LOOKS {
                self.browser.look(size).await.unwrap();
                self.open(path).await;
                let found = self.browser.faults().await.unwrap();
                faults.extend(found.into_iter().map(|fault| format!("{name} {look}: {fault}")));
                if let Some(folder) = &pictures {
                    self.browser.picture(&folder.join(format!("{name}-{look}.png"))).await.unwrap();
                }
            }
        }
        faults
    }
}
