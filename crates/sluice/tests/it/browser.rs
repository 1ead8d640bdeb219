//! The pages in a real Chromium: an approval with the keyboard that another browser shows without a reload, a restart of the
//! server, and every page in every look.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::{Browser, Look, Scratch, eventually};

use crate::page::{FILE, Waiting, rule, waiting};
use crate::place::{SOON, TestNamespace};
use crate::{people, run};

/// Opens a page as a person with these rights, who signs in first.
pub async fn opened(
    place: &TestNamespace,
    base: &str,
    name: &str,
    rules: Value,
    path: &str,
) -> Result<Browser> {
    let token = people::token(place, name, rules).await?;
    let browser = Browser::start().await?;
    browser.open(&format!("{base}{path}")).await?;
    browser.until_address("/sign-in?to=").await?;
    browser.write("#token", &token).await?;
    browser.click("button.main").await?;
    browser.until_address(path).await?;
    Ok(browser)
}

/// Waits until a text is gone.
pub async fn until_gone(browser: &Browser, unwanted: &str) -> Result<()> {
    eventually(SOON, || async {
        let text = browser.text().await?;
        ensure!(!text.contains(unwanted), "still {unwanted:?}: {text}");
        Ok(())
    })
    .await
}

struct BrowserFixture {
    place: TestNamespace,
    waiting: Waiting,
    base: String,
    pipeline: String,
    promotion: String,
}

impl BrowserFixture {
    async fn new() -> Result<BrowserFixture> {
        BrowserFixture::with_flags(&[]).await
    }

    async fn with_flags(flags: &[&str]) -> Result<BrowserFixture> {
        let place = TestNamespace::new("browser").await?;
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let flags = [&[&api, "--api-actions", "--observe=all"], flags].concat();
        let waiting = waiting(&place, &flags).await?;
        let n = &place.namespace;
        let name = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let (pipeline, promotion) = (format!("/pipelines/{n}/app"), format!("/promotions/{n}/{name}"));
        Ok(BrowserFixture { waiting, base: format!("http://{address}"), pipeline, promotion, place })
    }

    /// Opens the list of pipelines as a viewer.
    async fn list_of_viewer(&self) -> Result<Browser> {
        let browser = self.opened("viewer", &["get"], &self.pipeline).await?;
        browser.open(&format!("{}/", self.base)).await?;
        browser.until_text("1.1.0").await?;
        Ok(browser)
    }

    async fn opened(&self, name: &str, verbs: &[&str], path: &str) -> Result<Browser> {
        let clusters =
            json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"]});
        let rules = json!([rule("pipelines", &["get", "patch"]), rule("promotions", verbs), clusters]);
        let opened = opened(&self.place, &self.base, name, rules, path).await;
        opened.with_context(|| self.waiting.controller.tail())
    }
}

#[test]
fn an_approval_in_one_browser_shows_in_another_which_survives_a_restart() -> Result<()> {
    run(async {
        let mut fixture = BrowserFixture::new().await?;
        let approver = fixture.opened("approver", &["get", "patch", "approve"], &fixture.pipeline).await?;
        let viewer = fixture.opened("viewer", &["get"], &fixture.pipeline).await?;
        for browser in [&approver, &viewer] {
            browser.until_text("1.1.0 waits for approval").await?;
        }
        ensure!(!viewer.text().await?.contains("Approve"), "a button that the viewer may not use");
        viewer.until_text("You may not approve it here").await?;
        viewer.run("window.sameDocument = true").await?;

        approver.press("a").await?;
        approver.until_text("Approve 1.1.0 into prod?").await?;
        approver.until_text(FILE).await?;
        approver.click("form button.main").await?;
        approver.until_address(&fixture.promotion).await?;
        approver.until_text("approver approved it").await?;
        viewer.until_text("1.1.0 into prod delivered").await?;
        ensure!(
            viewer.run("return window.sameDocument === true").await? == true,
            "the page was loaded again"
        );

        // The session ends with the process, and the page leads to the sign-in and back.
        fixture.waiting.controller.restart(true)?;
        viewer.until_address("/sign-in?to=").await?;
        ensure!(viewer.address().await?.ends_with(&fixture.pipeline), "{}", viewer.address().await?);
        Ok(())
    })
}

#[test]
fn a_page_says_that_the_connection_is_lost_and_follows_again_after_a_restart() -> Result<()> {
    run(async {
        let scratch = Scratch::new("session-key")?;
        let key = scratch.path().join("key");
        std::fs::write(&key, format!("{}=\n", "A".repeat(43)))?;
        let flag = format!("--session-key-file={}", key.display());
        let mut fixture = BrowserFixture::with_flags(&[&flag]).await?;
        let viewer = fixture.opened("viewer", &["get"], &fixture.pipeline).await?;
        viewer.until_text("1.1.0 waits for approval").await?;
        viewer.run("window.sameDocument = true").await?;
        fixture.waiting.controller.kill();
        viewer.until_text("The connection is lost").await?;
        fixture.waiting.controller.restart(true)?;
        until_gone(&viewer, "The connection is lost").await?;
        let suspended = Patch::Merge(json!({"spec": {"suspend": true}}));
        fixture.place.pipelines().patch("app", &PatchParams::default(), &suspended).await?;
        viewer.until_text("The pipeline is suspended").await?;
        ensure!(
            viewer.run("return window.sameDocument === true").await? == true,
            "the page was loaded again"
        );
        Ok(())
    })
}

/// Escape and Enter, as WebDriver names them (w3.org/TR/webdriver2, keyboard actions).
const ESCAPE: &str = "\u{e00c}";
const ENTER: &str = "\u{e007}";

#[test]
fn each_key_of_the_list_of_keys_does_what_it_says() -> Result<()> {
    run(async {
        let fixture = BrowserFixture::new().await?;
        let browser = fixture.list_of_viewer().await?;
        let focused = "return document.activeElement.matches(arguments_of_test)";
        let has_focus = async |selector: &str| -> Result<bool> {
            Ok(browser.run(&focused.replace("arguments_of_test", &format!("{selector:?}"))).await? == true)
        };
        browser.press("/").await?;
        ensure!(has_focus("main input[type=search]").await?, "/ goes to the search");
        // In the field, a key is a letter.
        browser.press("j").await?;
        browser.press(ESCAPE).await?;
        ensure!(has_focus("body").await?, "Escape leaves the search");
        let is_open = "return document.querySelector('dialog#keys').open";
        browser.press("?").await?;
        ensure!(browser.run(is_open).await? == true, "? shows the keys");
        browser.press(ESCAPE).await?;
        ensure!(browser.run(is_open).await? == false, "Escape closes them");
        let pages =
            [("r", "/promotions"), ("c", "/clusters"), ("h", "/charts"), ("i", "/images"), ("p", "/")];
        for (key, page) in pages {
            browser.press("g").await?;
            browser.press(key).await?;
            let is_there = format!("return location.pathname === {page:?}");
            eventually(SOON, || async {
                ensure!(browser.run(&is_there).await? == true, "g {key} does not lead to {page}");
                Ok(())
            })
            .await?;
        }
        browser.until_text("1.1.0").await?;
        browser.press("j").await?;
        ensure!(has_focus(".row.at a").await?, "j goes to the first row");
        browser.press("k").await?;
        ensure!(has_focus(".row.at a").await?, "k stays in the first row");
        browser.press(ENTER).await?;
        browser.until_address(&fixture.pipeline).await
    })
}

#[test]
fn nothing_moves_for_people_who_want_no_motion() -> Result<()> {
    run(async {
        let fixture = BrowserFixture::new().await?;
        let browser = fixture.list_of_viewer().await?;
        // The look of a revision on its way to an environment.
        let moves = "document.querySelector('.row .link').classList.add('moves'); return document.getAnimations().length";
        for is_wanted in [true, false] {
            browser.motion(is_wanted).await?;
            let moving = browser.run(moves).await?;
            ensure!((moving != 0) == is_wanted, "{moving} parts move, and motion is wanted: {is_wanted}");
        }
        Ok(())
    })
}

#[test]
fn the_form_for_a_pipeline_says_what_is_wrong_while_one_types() -> Result<()> {
    run(async {
        let fixture = BrowserFixture::new().await?;
        let n = &fixture.place.namespace;
        let path = format!("/pipelines/new?namespace={n}");
        let browser = fixture.opened("editor", &["get"], &path).await?;
        browser.until_text("You may not create pipelines here").await?;
        browser.run("window.sameDocument = true").await?;
        browser.write("#name", "my app").await?;
        browser.until_text("is no name").await?;
        browser.write("#app", "app").await?;
        // Where it runs, and the manifest, as far as they are known.
        browser.until_text("Add as an environment").await?;
        browser.until_text("name: my app").await?;
        let typed = browser.run("return document.getElementById('name').value").await?;
        ensure!(typed == "my app", "what was typed is gone: {typed}");
        ensure!(
            browser.run("return window.sameDocument === true").await? == true,
            "the page was loaded again"
        );
        // Enter and buttons send the form, as without the script.
        browser.click("button[value=add-environment]").await?;
        browser.until_text("Environment 2").await?;
        let faults = browser.faults().await?;
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    })
}

/// The looks in which every page is checked.
pub const LOOKS: [(&str, Look); 4] = [
    ("light", Look { width: 1280, dark: false }),
    ("dark", Look { width: 1280, dark: true }),
    ("phone", Look { width: 360, dark: false }),
    ("phone-dark", Look { width: 360, dark: true }),
];

#[test]
fn every_page_is_accessible_in_every_look_and_without_errors() -> Result<()> {
    run(async {
        let fixture = BrowserFixture::new().await?;
        let browser = fixture.opened("approver", &["get", "patch", "approve"], &fixture.pipeline).await?;
        // `make screenshots` names a folder for pictures.
        let pictures = std::env::var_os("SLUICE_SCREENSHOTS").map(PathBuf::from);
        let approve = format!("{}/approve", fixture.promotion);
        let change = format!("{}/change", fixture.promotion);
        let reject = format!("{}/reject", fixture.promotion);
        let suspend = format!("{}/suspend", fixture.pipeline);
        let history = format!("{}/history?environment=prod", fixture.pipeline);
        let objects = format!("{}/objects", fixture.pipeline);
        let triggers = format!("{}/triggers", fixture.pipeline);
        let n = &fixture.place.namespace;
        let new = format!("/pipelines/new?namespace={n}&kind=HelmRelease&app=app");
        let edit = format!("{}/edit", fixture.pipeline);
        let trace = format!("/trace?cluster={n}/prod&kind=HelmRelease&namespace={n}&name=app");
        let mut faults = Vec::new();
        for (page, path) in [
            ("pipelines", "/"),
            ("nothing-found", "/?q=nothing"),
            ("pipeline", &fixture.pipeline),
            ("history", &history),
            ("objects", &objects),
            ("triggers", &triggers),
            ("new", &new),
            ("edit", &edit),
            ("promotions", "/promotions"),
            ("promotion", &fixture.promotion),
            ("change", &change),
            ("approve", &approve),
            ("reject", &reject),
            ("suspend", &suspend),
            ("clusters", "/clusters"),
            ("charts", "/charts"),
            ("chart", "/charts?name=podinfo"),
            ("images", "/images"),
            ("trace", &trace),
            ("absent", "/pipelines/absent/absent"),
        ] {
            for (look, size) in LOOKS {
                browser.look(size).await?;
                browser.open(&format!("{}{path}", fixture.base)).await?;
                let found = browser.faults().await?;
                // The browser reports the status of a page that is not there.
                let is_expected = |fault: &String| page == "absent" && fault.contains("404");
                faults.extend(
                    found.into_iter().filter(|f| !is_expected(f)).map(|f| format!("{page} {look}: {f}")),
                );
                if let Some(folder) = &pictures {
                    browser.picture(&folder.join(format!("{page}-{look}.png"))).await?;
                }
            }
        }
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    })
}
