//! A real Chromium, without a window, driven by chromedriver as the WebDriver standard says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{ProcessGuard, Scratch, eventually};

/// How long the browser and its driver may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the driver is started: it lets the system choose a port for IPv6, and ends if another process has that port
/// for IPv4.
const DRIVER_STARTS: u32 = 5;
/// How long the browser may take for a command: axe reads every element of a page.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// How long something may take to appear on a page.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(60);
/// Checks a page for faults that keep people with disabilities from using it (<https://github.com/dequelabs/axe-core>,
/// MPL-2.0).
const AXE: &str = include_str!("../assets/axe-4.14.1.min.js");

/// A browser with a profile of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    /// The address of the driver's session.
    session: String,
    _driver: ProcessGuard,
    _chromium: ProcessGuard,
    _profile: Scratch,
}

/// The look of a page.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The width of the window.
    pub width: u32,
    /// Whether the person prefers dark colours.
    pub dark: bool,
}

/// The name under which the standard hands out a reference to an element
/// (<https://www.w3.org/TR/webdriver2/#elements>).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    /// Starts a browser.
    ///
    /// # Errors
    /// Chromium or chromedriver is not installed, or does not start.
    pub async fn start() -> Result<Browser> {
        let profile = Scratch::new("browser")?;
        let folder = profile.path().to_path_buf();
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        chromium.args(["--no-first-run", "--remote-debugging-port=0", "about:blank"]);
        chromium.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        let chromium = ProcessGuard::start("chromium", &chromium, &folder.join("chromium.log"))?;
        let active = folder.join("profile/DevToolsActivePort");
        let debugger = first_line(&active, |line| line.parse::<u16>().ok()).await?;
        let (driver, port) = start_driver(&folder).await?;
        // reqwest wants one, although nothing here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        let driver_address = format!("http://127.0.0.1:{port}");
        let wanted = json!({
            "goog:chromeOptions": {"debuggerAddress": format!("127.0.0.1:{debugger}")},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": wanted}});
        let answer = command(&http, &format!("{driver_address}/session"), Some(wanted)).await;
        let answer = answer.context("chromedriver does not drive chromium")?;
        let id = answer["sessionId"].as_str().context("no session")?;
        let session = format!("{driver_address}/session/{id}");
        Ok(Browser { http, session, _driver: driver, _chromium: chromium, _profile: profile })
    }

    /// Opens an address, and waits until the page is loaded.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn open(&self, address: &str) -> Result<()> {
        self.post("url", json!({"url": address})).await.map(drop)
    }

    /// Returns the address of the page.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn address(&self) -> Result<String> {
        let address = command(&self.http, &format!("{}/url", self.session), None).await?;
        Ok(address.as_str().context("no address")?.to_owned())
    }

    /// Runs a script, and returns what it returns.
    ///
    /// # Errors
    /// The script fails.
    pub async fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Writes into a field.
    ///
    /// # Errors
    /// There is no such field.
    pub async fn write(&self, selector: &str, text: &str) -> Result<()> {
        let field = self.element(selector).await?;
        self.post(&format!("element/{field}/value"), json!({"text": text})).await.map(drop)
    }

    /// Clicks on something.
    ///
    /// # Errors
    /// There is nothing like it, or it cannot be clicked.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.post(&format!("element/{element}/click"), json!({})).await.map(drop)
    }

    /// Presses a key, with the focus where it is.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn press(&self, key: &str) -> Result<()> {
        let keys = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": keys});
        self.post("actions", json!({"actions": [keyboard]})).await.map(drop)
    }

    /// Returns the text that a person sees.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn text(&self) -> Result<String> {
        let text = self.run("return document.body.innerText").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the person sees a text.
    ///
    /// # Errors
    /// It does not appear.
    pub async fn until_text(&self, wanted: &str) -> Result<()> {
        eventually(APPEAR_TIMEOUT, || async {
            let text = self.text().await?;
            ensure!(text.contains(wanted), "no {wanted:?} at {}: {text}", self.address().await?);
            Ok(())
        })
        .await
    }

    /// Waits until the address contains a text.
    ///
    /// # Errors
    /// It does not.
    pub async fn until_address(&self, wanted: &str) -> Result<()> {
        eventually(APPEAR_TIMEOUT, || async {
            let address = self.address().await?;
            ensure!(address.contains(wanted), "the address is {address}, without {wanted:?}");
            Ok(())
        })
        .await
    }

    /// Shows pages like this from now on.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn look(&self, look: Look) -> Result<()> {
        // A phone draws its scroll bars over the page.
        let is_phone = look.width < 600;
        let size = json!({"width": look.width, "height": 800, "deviceScaleFactor": 1, "mobile": is_phone});
        self.chrome("Emulation.setDeviceMetricsOverride", size).await?;
        let scheme = if look.dark { "dark" } else { "light" };
        self.prefers("prefers-color-scheme", scheme).await
    }

    /// Says from now on whether the person wants pages to move (`prefers-reduced-motion`).
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn motion(&self, is_wanted: bool) -> Result<()> {
        let value = if is_wanted { "no-preference" } else { "reduce" };
        self.prefers("prefers-reduced-motion", value).await
    }

    /// Sets one preference of the person, instead of an earlier one.
    async fn prefers(&self, name: &str, value: &str) -> Result<()> {
        let features = json!({"features": [{"name": name, "value": value}]});
        self.chrome("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Accepts every certificate from now on, such as those of the authorities of tests.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn accept_certificates(&self) -> Result<()> {
        self.chrome("Security.setIgnoreCertificateErrors", json!({"ignore": true})).await.map(drop)
    }

    /// Returns what is wrong with the page: what axe finds, a width that does not fit, and errors on the console since the
    /// last call.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn faults(&self) -> Result<Vec<String>> {
        self.run(AXE).await?;
        let check = "const done = arguments[arguments.length - 1];
            axe.run().then((result) => done(result.violations.map((fault) =>
              `${fault.id}: ${fault.help}: ${fault.nodes.map((node) => node.html).join(' ').slice(0, 300)}`)));";
        let found = self.post("execute/async", json!({"script": check, "args": []})).await?;
        let mut faults: Vec<String> = serde_json::from_value(found)?;
        let wide = "const page = document.documentElement; return page.scrollWidth > page.clientWidth";
        if self.run(wide).await? == true {
            faults.push("the page is wider than the window".into());
        }
        let log = self.post("se/log", json!({"type": "browser"})).await?;
        let entries = log.as_array().cloned().unwrap_or_default();
        faults.extend(entries.iter().map(|entry| format!("console: {}", entry["message"])));
        Ok(faults)
    }

    /// Writes a picture of the whole page, in PNG.
    ///
    /// # Errors
    /// The browser does not answer, or the file cannot be written.
    pub async fn picture(&self, file: &Path) -> Result<()> {
        // Chromium draws rows that it had left out so far in the frame after the one in which they come into view.
        let frames = "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
        self.run(frames).await?;
        let options = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.chrome("Page.captureScreenshot", options).await?;
        let data = answer["data"].as_str().context("no picture")?;
        use base64::Engine;
        let png = base64::engine::general_purpose::STANDARD.decode(data)?;
        Ok(std::fs::write(file, png)?)
    }

    /// Has Chromium do something that the standard does not have (<https://chromedevtools.github.io/devtools-protocol/>).
    async fn chrome(&self, command: &str, parameters: Value) -> Result<Value> {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let found = self.post("element", json!({"using": "css selector", "value": selector})).await?;
        Ok(found[ELEMENT].as_str().with_context(|| format!("no element {selector}"))?.to_owned())
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        command(&self.http, &format!("{}/{path}", self.session), Some(body)).await
    }
}

/// Starts a driver, and returns it with its port.
async fn start_driver(folder: &Path) -> Result<(ProcessGuard, u16)> {
    let mut chromedriver = Command::new("chromedriver");
    chromedriver.arg("--port=0");
    for start in 1..=DRIVER_STARTS {
        let log = folder.join(format!("chromedriver-{start}.log"));
        let driver = ProcessGuard::start("chromedriver", &chromedriver, &log)?;
        let port = first_line(&log, |line| {
            let started = line.split_once("started successfully on port ");
            let port = started.and_then(|(_, port)| port.trim_end_matches('.').parse::<u16>().ok());
            port.map(Some).or(line.ends_with("port not available. Exiting...").then_some(None))
        });
        if let Some(port) = port.await? {
            return Ok((driver, port));
        }
    }
    bail!("chromedriver found its port taken {DRIVER_STARTS} times");
}

/// Sends a command to a driver, and returns its value.
async fn command(http: &reqwest::Client, address: &str, body: Option<Value>) -> Result<Value> {
    let request = match body {
        Some(body) => http.post(address).json(&body),
        None => http.get(address),
    };
    let mut answer: Value = request.timeout(COMMAND_TIMEOUT).send().await?.json().await?;
    let value = answer["value"].take();
    ensure!(value["error"].is_null(), "{}: {}", value["error"], value["message"]);
    Ok(value)
}

/// Waits for a line of a file that says something.
async fn first_line<T>(file: &PathBuf, read: impl Fn(&str) -> Option<T>) -> Result<T> {
    eventually(START_TIMEOUT, || async {
        let text = std::fs::read_to_string(file).with_context(|| format!("no {} yet", file.display()))?;
        text.lines().find_map(&read).with_context(|| format!("{} says: {text}", file.display()))
    })
    .await
}
