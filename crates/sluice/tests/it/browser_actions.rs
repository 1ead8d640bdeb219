//! Each action of the pages in a real Chromium: who may take it takes it with the mouse, somebody else sees what came of it
//! without loading the page again, and who may not reads why.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_testkit::{Browser, eventually};

use crate::browser::{opened, until_gone};
use crate::page::{FILE, Waiting, rule, waiting};
use crate::place::{SOON, TestNamespace};
use crate::run;

/// The reason that the approver gives for the rejection.
const REASON: &str = "the error rate has doubled";

struct ActionsFixture {
    place: TestNamespace,
    waiting: Waiting,
    base: String,
    pipeline: String,
    promotion: String,
}

impl ActionsFixture {
    async fn new() -> Result<ActionsFixture> {
        let place = TestNamespace::new("actions").await?;
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let waiting = waiting(&place, &[&format!("--api-addr={address}"), "--api-actions"]).await?;
        let n = &place.namespace;
        let name = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let (pipeline, promotion) = (format!("/pipelines/{n}/app"), format!("/promotions/{n}/{name}"));
        Ok(ActionsFixture { waiting, base: format!("http://{address}"), pipeline, promotion, place })
    }

    /// Opens the page of the pipeline as somebody with these verbs on pipelines and promotions.
    async fn person(&self, name: &str, pipelines: &[&str], promotions: &[&str]) -> Result<Browser> {
        let rules: Value = json!([rule("pipelines", pipelines), rule("promotions", promotions)]);
        let opened = opened(&self.place, &self.base, name, rules, &self.pipeline).await;
        opened.with_context(|| self.waiting.controller.tail())
    }

    /// Takes an action: its button, the confirmation with these texts, and the button there.
    async fn act(&self, browser: &Browser, of: &str, action: &str, says: &[&str]) -> Result<()> {
        browser.open(&format!("{}{}", self.base, self.pipeline)).await?;
        let button = format!("a[href=\"{of}/{action}\"]");
        eventually(SOON, || async { browser.click(&button).await }).await.context(button)?;
        for text in says {
            browser.until_text(text).await?;
        }
        if action == "reject" {
            browser.write("#reason", REASON).await?;
        }
        browser.click("form button.main").await?;
        eventually(SOON, || async {
            let address = browser.address().await?;
            ensure!(address.ends_with(of), "after {action}: {address}: {}", browser.text().await?);
            Ok(())
        })
        .await
    }

    /// Checks that somebody has no button for an action, and reads why at its address.
    async fn may_not(&self, browser: &Browser, of: &str, action: &str) -> Result<()> {
        browser.open(&format!("{}{}", self.base, self.pipeline)).await?;
        browser.until_text("1.1.0").await?;
        let count = format!("return document.querySelectorAll('a[href$=\"/{action}\"]').length");
        ensure!(browser.run(&count).await? == 0, "a button to {action}");
        browser.open(&format!("{}{of}/{action}", self.base)).await?;
        browser.until_text(&format!("You may not {action} it: you do not have the right to")).await?;
        browser.until_text("ask the owners of the namespace").await
    }

    /// Each action is logged where it is made, and what came of it by the replica that acts for the pipeline.
    fn the_log_names_who_acted(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.waiting.controller.log())?;
        let account = |name: &str| format!("system:serviceaccount:{}:{name}", self.place.namespace);
        let (editor, approver) = (account("editor"), account("approver"));
        let acted = [
            (&editor, "suspend"),
            (&editor, "resume"),
            (&approver, "reject"),
            (&approver, "retry"),
            (&approver, "approve"),
        ];
        let acted =
            acted.map(|(by, action)| format!("a person has acted person=\"{by}\" action=\"{action}\""));
        let rejected = format!("phase=Rejected why=\"rejected by {approver}: {REASON}\"");
        for line in acted.into_iter().chain([rejected, format!("by=\"{approver}\"")]) {
            ensure!(log.contains(&line), "the log does not have {line}: {}", self.waiting.controller.tail());
        }
        Ok(())
    }
}

#[test]
fn each_action_is_taken_by_who_may_and_shows_to_others_without_a_reload() -> Result<()> {
    run(async {
        let fixture = ActionsFixture::new().await?;
        let (pipeline, promotion) = (fixture.pipeline.as_str(), fixture.promotion.as_str());
        let watcher = fixture.person("watcher", &["get"], &["get"]).await?;
        let editor = fixture.person("editor", &["get", "patch"], &["get"]).await?;
        let approver = fixture.person("approver", &["get"], &["get", "patch", "approve", "retry"]).await?;
        watcher.until_text("1.1.0 waits for approval").await?;
        watcher.run("window.sameDocument = true").await?;

        fixture.act(&editor, pipeline, "suspend", &["Suspend app?"]).await?;
        watcher.until_text("The pipeline is suspended").await?;
        fixture.may_not(&approver, pipeline, "resume").await?;
        fixture.act(&editor, pipeline, "resume", &["Resume app?"]).await?;
        until_gone(&watcher, "The pipeline is suspended").await?;
        fixture.may_not(&approver, pipeline, "suspend").await?;

        for action in ["approve", "reject"] {
            fixture.may_not(&editor, promotion, action).await?;
        }
        let says = ["Reject 1.1.0 into prod?", "a commit to main", FILE];
        fixture.act(&approver, promotion, "reject", &says).await?;
        watcher.until_text(REASON).await?;
        watcher.until_text("rejected by system:serviceaccount:").await?;

        fixture.may_not(&editor, promotion, "retry").await?;
        fixture.act(&approver, promotion, "retry", &["Retry 1.1.0 into prod?", FILE]).await?;
        watcher.until_text("waits for a new approval").await?;

        fixture.act(&approver, promotion, "approve", &["Approve 1.1.0 into prod?", FILE]).await?;
        watcher.until_text("1.1.0 into prod delivered").await?;
        ensure!(
            watcher.run("return window.sameDocument === true").await? == true,
            "the page was loaded again"
        );
        ensure!(fixture.waiting.repo.read("main", FILE)?.contains("1.1.0"), "the file was not changed");

        fixture.the_log_names_who_acted()?;

        // The story of the promotion has both tries, and its files.
        watcher.open(&format!("{}{promotion}", fixture.base)).await?;
        watcher.until_text(&format!("approver rejected it: {REASON}")).await?;
        watcher.until_text("In an earlier try").await?;
        watcher.click("a[href$=\"/change\"]").await?;
        watcher.until_text("What 1.1.0 changed in prod").await?;
        watcher.until_text(FILE).await?;
        watcher.until_text("by commit").await
    })
}
