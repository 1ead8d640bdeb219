//! `docs/questions.md`: every command of the page runs in the order of the page, in a shell, against real API servers, real
//! git and a real controller, and prints what the page shows.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::{KubeletStandIn, Scratch, eventually, parse_yaml, shared};

use crate::fleet::{By, Fleet, Shape};
use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::run;
use crate::{other_pages, people};

/// The namespace of the page.
const NAMESPACE: &str = "apps";
/// The address of the repository on the page.
const REPOSITORY: &str = "https://git.example.com/team/fleet";

const PAGE: &str = "docs/questions.md";
/// The promotion of 6.1.8 into prod on the page.
const PROMOTION: &str = "podinfo-prod-5ba2e6d34f";
/// The commit of this promotion on the page.
const COMMIT: &str = "4e53f3be";

/// A command of the page with the output that the page shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    section: String,
    command: String,
    output: String,
}

/// Returns the commands of a page. A block begins with a command after `$ `; lines without `$ ` are output.
fn commands(page: &str) -> Result<Vec<Shown>> {
    let (mut found, mut section, mut in_block): (Vec<Shown>, _, _) = (Vec::new(), "", false);
    let mut is_first = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            is_first = in_block;
            ensure!(line == "```", "{PAGE}: no test runs a block after {line}: write ``` without a language");
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| in_block) {
            found.push(Shown { section: section.into(), command: command.into(), output: String::new() });
            is_first = false;
        } else if in_block {
            ensure!(!is_first, "{PAGE}: a block begins with {line}: begin it with $ and a command");
            let last = found.last_mut().context("no command")?;
            last.output += &format!("{line}\n");
        } else if let Some((_, heading)) = line.split_once("## ") {
            section = heading;
        }
    }
    Ok(found)
}

/// Returns an output with one space between words, and without what differs each time: ages and times are `TIME`, and
/// hashes are numbered in the order in which they appear.
fn steady(output: &str) -> String {
    let mut hashes = Vec::new();
    let mut line = |line: &str| match line.trim().starts_with("Date: ") {
        true => "DATE".to_owned(),
        false => {
            line.split_whitespace().map(|word| steady_word(word, &mut hashes)).collect::<Vec<_>>().join(" ")
        }
    };
    output.lines().map(&mut line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn steady_word(word: &str, hashes: &mut Vec<String>) -> String {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(|c| "smhdy".contains(c))
        && word.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c));
    if is_age || word.parse::<jiff::Timestamp>().is_ok() {
        return "TIME".into();
    }
    let is_hash = |part: &str| part.len() >= 7 && part.chars().all(|c| c.is_ascii_hexdigit());
    let mut without = |part: &str| {
        let hash = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if !is_hash(hash) {
            return part.to_owned();
        }
        let number = hashes.iter().position(|seen| seen == hash).unwrap_or_else(|| {
            hashes.push(hash.to_owned());
            hashes.len() - 1
        });
        format!("HASH{number}{}", &part[hash.len()..])
    };
    word.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(&mut without).collect()
}

#[test]
fn only_times_and_hashes_may_differ_from_the_page() {
    let page =
        "dev  6.1.8 12m\n  main@sha1:cc552e8d844e (cc552e8d844e) [main 9250334] at 2026-11-25T15:44:24Z\n";
    assert_eq!(steady(page), "dev 6.1.8 TIME\nmain@sha1:HASH0 (HASH0) [main HASH1] at TIME");
    let blocks = "## A\n```\n$ one\n1\n$ two\n```\n### B\n```\n$ three\n```\n";
    let found = commands(blocks).unwrap();
    let found: Vec<_> = found.iter().map(|s| (&*s.section, &*s.command, &*s.output)).collect();
    assert_eq!(found, [("A", "one", "1\n"), ("A", "two", ""), ("B", "three", "")]);
    for wrong in ["```\nls\n```\n", "```sh\n$ ls\n```\n"] {
        assert!(commands(wrong).is_err(), "{wrong}");
    }
}

/// The fleet of the page, and the machine on which jane types its commands.
struct Fixture {
    fleet: Fleet,
    controller: Controller,
    /// Has her kubeconfigs and her checkout of the repository.
    scratch: Scratch,
    /// Forwards commands to the controller's API.
    _node: KubeletStandIn,
    /// The commands of the page.
    shown: Vec<Shown>,
    /// The number of commands that have run.
    next: usize,
}

impl Fixture {
    async fn new() -> Result<Fixture> {
        let place = TestNamespace::named(shared().await?, NAMESPACE.into()).await?;
        let mut fleet = Fleet::at(place, Shape::Helm, Duration::from_millis(200), None)?;
        fleet.team("fleet", By::Commit, &["podinfo".into()], "6.1.5").await?;
        let place = &fleet.place;
        let repository = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n\
             metadata: {name: podinfo, namespace: apps}\n\
             spec: {interval: 1h, url: 'https://stefanprodan.github.io/podinfo'}\n";
        for leaf in ["dev", "staging", "prod"] {
            place.leaf(leaf).apply_yaml(repository).await?;
        }
        let mut spec = serde_json::to_value(place.pipelines().get("podinfo").await?.spec)?;
        spec["environments"][2]["promotion"] = spec["promotion"].clone();
        spec["environments"][2]["promotion"]["manual"] = json!(true);
        let patch = Patch::Merge(json!({"spec": {"environments": spec["environments"]}}));
        place.pipelines().patch("podinfo", &PatchParams::default(), &patch).await?;

        let scratch = Scratch::new("questions")?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let api = format!("--api-addr=127.0.0.1:{port}");
        let controller = Controller::start(&place.shared.hub, NAMESPACE, &[&api, "--observe=all"])?;
        let node = KubeletStandIn::start(&place.shared.hub, "questions").await?;
        node.controller_pod(NAMESPACE, "sluice", &["controller", &api], true).await?;
        let shown = commands(include_str!("../../../../docs/questions.md"))?;
        let fixture = Fixture { fleet, controller, scratch, _node: node, shown, next: 0 };
        fixture.create_jane().await?;
        fixture.sh(
            &format!("git clone --quiet {} fleet", fixture.fleet.teams[0].repo.url_with_password()),
            "jane",
        )?;
        Ok(fixture)
    }

    /// Creates the kubeconfigs of jane: one with a certificate, and one with a token, which the API needs.
    async fn create_jane(&self) -> Result<()> {
        let roles = parse_yaml(include_str!("../../../../deploy/people.yaml"))?;
        let rules = roles.iter().filter_map(|role| role["rules"].as_array()).flatten().cloned();
        let clusters = json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get", "list"]});
        let flux = ["source", "kustomize", "helm", "image", "notification"]
            .map(|g| format!("{g}.toolkit.fluxcd.io"));
        let flux = json!({"apiGroups": flux, "resources": ["*"], "verbs": ["list"]});
        let events = json!({"apiGroups": [""], "resources": ["events"], "verbs": ["list"]});
        let rules = Value::Array(rules.chain([clusters, flux, events]).collect());
        let place = &self.fleet.place;
        let certificate = people::kubeconfig(place, "jane", rules.clone()).await?;
        std::fs::write(self.scratch.path().join("jane"), certificate)?;
        people::allow(place, "token", rules).await?;
        let token = place.shared.hub.service_account(NAMESPACE, "token").await?;
        std::fs::write(self.scratch.path().join("token"), token)?;
        Ok(())
    }

    /// Runs a command in a shell with this kubeconfig, and returns its output.
    fn sh(&self, command: &str, kubeconfig: &str) -> Result<String> {
        let sluice = Path::new(env!("CARGO_BIN_EXE_sluice")).parent().context("no folder")?;
        let path = format!("{}:{}", sluice.display(), std::env::var("PATH")?);
        let folder = self.scratch.path();
        let checkout = folder.join("fleet");
        let output = Command::new("sh")
            .args(["-c", &format!("{command} 2>&1")])
            .current_dir(if checkout.exists() { &checkout } else { folder })
            .envs([("PATH", path.as_str()), ("NO_COLOR", "1"), ("SLUICE_SYSTEM_NAMESPACE", NAMESPACE)])
            .envs([("HOME", folder), ("KUBECONFIG", &folder.join(kubeconfig))])
            .envs([("GIT_AUTHOR_NAME", "jane"), ("GIT_AUTHOR_EMAIL", "jane@example.com")])
            .envs([("GIT_COMMITTER_NAME", "jane"), ("GIT_COMMITTER_EMAIL", "jane@example.com")])
            .output()?;
        let text =
            String::from_utf8_lossy(&output.stdout).replace(self.fleet.teams[0].repo.url(), REPOSITORY);
        ensure!(output.status.success(), "{command}: {text}");
        Ok(text)
    }

    /// Runs a command as jane, and returns its output.
    ///
    /// # Errors
    /// It fails.
    fn type_command(&self, command: &str) -> Result<String> {
        // The API of the controller does not know certificates.
        let needs_token = [" trace ", " triggers ", " --fleet"].iter().any(|part| command.contains(part));
        self.sh(command, if needs_token { "token" } else { "jane" })
    }

    /// Runs the commands of the next section of the page, which must be this one.
    async fn section(&mut self, section: &str) -> Result<()> {
        let first = self.next;
        while let Some(shown) = self.shown.get(self.next).filter(|shown| shown.section == section) {
            self.check(shown).await?;
            self.next += 1;
        }
        ensure!(
            self.next > first,
            "{PAGE} has no commands in a section {section:?} after the section before it"
        );
        Ok(())
    }

    /// Runs a command, and fails if it prints something else than the page shows.
    async fn check(&self, shown: &Shown) -> Result<()> {
        let command = self.with_names(&shown.command).await?;
        let once = || async {
            let output = self.type_command(&command)?;
            ensure!(
                steady(&output) == steady(&shown.output),
                "{PAGE}, {}: $ {command}\nprints\n{output}\nand the page shows\n{}",
                shown.section,
                shown.output
            );
            Ok(())
        };
        let changes = ["git ", "sed ", "sluice approve ", "sluice suspend ", "sluice resume "];
        match changes.iter().any(|change| command.starts_with(change)) {
            true => once().await,
            false => eventually(SOON, once).await,
        }
        .with_context(|| self.controller.tail())
    }

    /// Returns a command of the page with the promotion of 6.1.8 into prod, and with its commit, in place of those of the
    /// page.
    async fn with_names(&self, command: &str) -> Result<String> {
        let all = self.fleet.place.promotions().list(&ListParams::default()).await?;
        let promotion = all.iter().find(|p| p.spec.environment == "prod" && p.spec.revision == "6.1.8");
        let promotion = promotion.context("6.1.8 is not promoted into prod")?;
        let commit = promotion.status.clone().unwrap_or_default().commit.unwrap_or_default();
        let commit = commit.get(..8).unwrap_or_default();
        Ok(command.replace(PROMOTION, &promotion.name_any()).replace(COMMIT, commit))
    }

    /// Suspends the Kustomization that applies the files of dev, or resumes it.
    async fn suspend_flux_in_dev(&self, suspend: bool) -> Result<()> {
        if suspend {
            self.fleet.until_reconciled(&self.fleet.teams[0], "fleet").await?;
        }
        let kind = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        self.flux("dev", &kind).await?.patch("fleet", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Writes into the status of the source of prod that Flux has verified its signature, as source-controller does.
    async fn verify_source_of_prod(&self) -> Result<()> {
        // The stand-in for Flux replaces the conditions when it sees another commit.
        self.fleet.until_reconciled(&self.fleet.teams[0], "fleet").await?;
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let sources = self.flux("prod", &kind).await?;
        let mut conditions = sources.get("fleet").await?.data["status"]["conditions"].clone();
        conditions.as_array_mut().context("no conditions")?.push(json!({
            "type": "SourceVerified", "status": "True", "reason": "Succeeded", "message": "verified signature of commit",
            "lastTransitionTime": "2026-11-21T10:00:00Z"}));
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        sources.patch_status("fleet", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn flux(&self, leaf: &str, kind: &GroupVersionKind) -> Result<Api<DynamicObject>> {
        let client = self.fleet.place.leaf(leaf).client().await?;
        Ok(Api::namespaced_with(client, NAMESPACE, &ApiResource::from_gvk(kind)))
    }

    /// Writes the kubeconfig of prod, with the address of a server that does not run, or with its own.
    async fn reach_prod(&self, reachable: bool) -> Result<()> {
        let prod = self.fleet.place.leaf("prod");
        let own = prod.kubeconfig();
        let kubeconfig = if reachable { own } else { own.replace(&prod.url(), "https://127.0.0.1:1") };
        self.fleet.place.secret("prod-kubeconfig", &[("value", &kubeconfig)]).await
    }

    /// Waits until a revision waits for an approval before prod.
    async fn waits(&self, version: &str) -> Result<()> {
        let waits = |p: &sluice_api::Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            status.environments.get("prod").is_some_and(|e| e.waiting_approval.revision == version)
        };
        let found = self.fleet.place.until("podinfo", &format!("{version} waits before prod"), waits).await;
        found.map(drop).with_context(|| self.controller.tail())
    }

    async fn runs(&self, environment: &str, version: &str) -> Result<()> {
        let what = format!("{environment} runs {version}");
        let found = self.fleet.place.until("podinfo", &what, |p| revision(p, environment) == version).await;
        found.map(drop).with_context(|| self.controller.tail())
    }
}

#[test]
fn every_command_of_the_page_of_questions_prints_what_the_page_shows() -> Result<()> {
    run(async {
        let mut fixture = Fixture::new().await?;
        fixture.runs("prod", "6.1.5").await?;
        fixture.fleet.release("6.1.8").await?;
        fixture.waits("6.1.8").await?;
        fixture.section("Why does prod not move?").await?;
        fixture.section("What runs where, and what differs?").await?;
        fixture.section("Which clusters run a version?").await?;
        fixture.verify_source_of_prod().await?;
        fixture.section("Where does a running image come from?").await?;
        fixture.section("What changes if I approve?").await?;
        fixture.fleet.place.until_promotions("podinfo", "prod", &["6.1.8 Succeeded"]).await?;
        fixture.section("Who approved a promotion, and when?").await?;
        fixture.suspend_flux_in_dev(true).await?;
        fixture.fleet.release("6.2.0").await?;
        fixture.section("What starts a pipeline, and why did nothing start?").await?;
        fixture.section("How do I stop all promotions now, and continue?").await?;
        fixture.section("How do I go back to the old revision in prod?").await?;
        fixture.reach_prod(false).await?;
        fixture.section("What happens when a cluster is unreachable?").await?;
        fixture.reach_prod(true).await?;
        fixture.section("After the fix").await?;
        fixture.suspend_flux_in_dev(false).await?;
        fixture.waits("6.2.0").await?;
        let promotion = fixture.with_names(PROMOTION).await?;
        other_pages::run_reading_commands(NAMESPACE, &promotion, |command| fixture.type_command(command))?;
        fixture.section("How do I bring a hotfix into prod first?").await?;
        ensure!(
            fixture.next == fixture.shown.len(),
            "{PAGE}: no test runs the section {}",
            fixture.shown[fixture.next].section
        );
        Ok(())
    })
}
