//! Who may see and do what: each view and each action, by the pages and by the API, for people of two namespaces on a
//! real API server. Nobody is let in by a right on something else.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use reqwest::StatusCode;
use serde_json::json;
use sluice_testkit::eventually;

use crate::page::{Person, rule, waiting};
use crate::place::{SOON, TestNamespace};
use crate::run;

/// The actions: the kind of their object, their name, and the only person who has the rights for it.
const ACTIONS: [(&str, &str, &str); 5] = [
    ("promotions", "approve", "approver"),
    ("promotions", "reject", "approver"),
    ("promotions", "retry", "retrier"),
    ("pipelines", "suspend", "editor"),
    ("pipelines", "resume", "editor"),
];

#[test]
fn no_right_opens_another_view_or_action() -> Result<()> {
    run(async {
        let (place, other) = (TestNamespace::new("matrix").await?, TestNamespace::new("neighbour").await?);
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let waiting = waiting(&place, &[&format!("--api-addr={address}"), "--api-actions"]).await?;
        let base = format!("http://{address}");
        let see = [rule("pipelines", &["get"]), rule("promotions", &["get"])];
        let clusters =
            json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"]});
        let everything = [rule("*", &["*"])];
        let mut people = Vec::new();
        for (name, place, rules) in [
            ("viewer", &place, [&see[..], &[]].concat()),
            (
                "editor",
                &place,
                [&see[..], &[rule("pipelines", &["patch"]), rule("promotions", &["patch"])]].concat(),
            ),
            ("approver", &place, [&see[..], &[rule("promotions", &["patch", "approve"])]].concat()),
            ("retrier", &place, [&see[..], &[rule("promotions", &["patch", "retry"])]].concat()),
            // Without the right to get the objects, no other right shows them or does anything to them.
            ("blind", &place, vec![rule("*", &["patch", "update", "approve", "retry", "create", "delete"])]),
            // A pipeline is shown with its promotions, to those who may get both.
            ("pipelines-only", &place, vec![rule("pipelines", &["*"])]),
            ("promotions-only", &place, vec![rule("promotions", &["*"])]),
            ("neighbour", &other, everything.to_vec()),
            ("operator", &place, vec![clusters]),
        ] {
            people.push((name, Person::new(place, &base, name, json!(rules)).await?));
        }
        let n = &place.namespace;
        let promotion = place.promotions().list(&Default::default()).await?.items[0].name_any();
        let matrix = AccessMatrix { namespace: n, promotion: &promotion };
        eventually(SOON, || async {
            let (_, page) = people[0].1.get(&format!("/pipelines/{n}/app")).await?;
            ensure!(page.contains("waits for approval"), "{page}");
            Ok(())
        })
        .await
        .with_context(|| waiting.controller.tail())?;
        for (name, person) in &people {
            let is_seen = ["viewer", "editor", "approver", "retrier"].contains(name);
            matrix.views(name, person, is_seen).await?;
            matrix.fleet(name, person, *name == "operator").await?;
            matrix.forms(name, person, is_seen).await?;
            matrix.proposals(name, person, is_seen).await?;
            matrix.live(name, person, is_seen).await?;
            matrix.actions(name, person, is_seen).await?;
        }
        let left = place.promotions().get(&promotion).await?;
        ensure!(left.spec.approval.is_none() && left.spec.rejection.is_none(), "{:?}", left.spec);
        let pipeline = place.pipelines().get("app").await?;
        ensure!(!pipeline.spec.suspend, "somebody suspended it");
        Ok(())
    })
}

/// Returns a page without the bar above it, which names the person and the namespace of the person's account.
fn content(page: &str) -> Result<&str> {
    page.split_once("<main").map(|(_, content)| content).context("the page has no content")
}

struct AccessMatrix<'a> {
    namespace: &'a str,
    promotion: &'a str,
}

impl AccessMatrix<'_> {
    fn path(&self, kind: &str) -> String {
        let name = if kind == "promotions" { self.promotion } else { "app" };
        format!("/{kind}/{}/{name}", self.namespace)
    }

    /// Each view of the pipeline and its promotion, and the lists.
    async fn views(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        let wanted = if is_seen { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let (pipeline, promotion) = (self.path("pipelines"), self.path("promotions"));
        for part in ["", "/history", "/objects", "/triggers"] {
            let (status, text) = person.get(&format!("{pipeline}{part}")).await?;
            ensure!(status == wanted, "{who} gets {status} for the page {part}: {text}");
        }
        for page in [promotion.clone(), format!("{promotion}/change")] {
            let (status, text) = person.get(&page).await?;
            ensure!(status == wanted, "{who} gets {status} for {page}: {text}");
        }
        for part in ["", "/explain", "/history", "/tree", "/triggers"] {
            let (status, answer) = person.ask(&format!("{pipeline}{part}")).await?;
            ensure!(status == wanted, "{who} gets {status} of the API for {part}: {answer}");
        }
        // Nobody of them may list events, which the API server decides for those who see the pipeline.
        let wanted_events = if is_seen { StatusCode::FORBIDDEN } else { StatusCode::NOT_FOUND };
        let (status, answer) = person.ask(&format!("{pipeline}/events")).await?;
        ensure!(status == wanted_events, "{who} gets {status} for the events: {answer}");
        let (status, answer) = person.ask(&format!("/events?namespace={}", self.namespace)).await?;
        ensure!(status == StatusCode::FORBIDDEN, "{who} gets {status} for all events: {answer}");
        let (status, answer) = person.ask(&format!("/check?namespace={}", self.namespace)).await?;
        let is_checked = !answer.to_string().contains("there are no pipelines");
        ensure!(
            status == StatusCode::OK && is_checked == is_seen,
            "{who} gets {status} {answer} of the check"
        );
        let (status, answer) = person.call(&format!("{pipeline}/reconcile"), &json!({})).await?;
        ensure!(status == wanted, "{who} gets {status} for reconcile: {answer}");
        let (status, answer) = person.ask(&promotion).await?;
        ensure!(status == wanted, "{who} gets {status} for the promotion: {answer}");
        for (list, shown) in [("/", &pipeline), ("/promotions", &promotion)] {
            let (_, page) = person.get(list).await?;
            ensure!(page.contains(shown) == is_seen, "{who} sees in {list}: {page}");
        }
        let (_, list) = person.ask("/pipelines").await?;
        ensure!((list["items"] != json!([])) == is_seen, "{who} sees {list}");
        Ok(())
    }

    /// The views of the clusters. Only who may get the GitopsClusters sees them and what runs there: nobody may get a HelmRelease on
    /// the hub.
    async fn fleet(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        for list in ["/clusters", "/charts", "/images"] {
            let (status, page) = person.get(list).await?;
            ensure!(status == StatusCode::OK, "{who} gets {status} for the page {list}");
            let (status, answer) = person.ask(list).await?;
            ensure!(status == StatusCode::OK, "{who} gets {status} of the API for {list}: {answer}");
            for (by, text) in [("page", content(&page)?), ("API", &answer.to_string())] {
                // No application here runs an image.
                let is_shown = is_seen && list != "/images";
                ensure!(text.contains(self.namespace) == is_shown, "{who} sees in {list} by {by}: {text}");
            }
        }
        for cluster in ["", &format!("&cluster={}/dev", self.namespace)] {
            let object = format!("/trace?kind=HelmRelease&namespace={}&name=app{cluster}", self.namespace);
            let (status, answer) = person.ask(&object).await?;
            let (page_status, page) = person.get(&object).await?;
            let may_be_traced = is_seen && !cluster.is_empty();
            for (by, status, text) in [("API", status, answer.to_string()), ("page", page_status, page)] {
                ensure!(
                    text.contains("1.1.0") == may_be_traced,
                    "{who} gets {status} {text} of {object} by {by}"
                );
            }
        }
        Ok(())
    }

    /// The form that edits the pipeline, and the one for a new pipeline, in which everybody may write.
    async fn forms(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        let edit = format!("{}/edit", self.path("pipelines"));
        let wanted = if is_seen { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let (status, text) = person.get(&edit).await?;
        ensure!(status == wanted, "{who} gets {status} for {edit}: {text}");
        let (status, text) = person.post(&edit, "name=app").await?;
        ensure!((status == StatusCode::NOT_FOUND) != is_seen, "{who} gets {status} for the form: {text}");
        // It offers the clusters that the person may see.
        let (status, page) = person.get("/pipelines/new").await?;
        let is_offered = content(&page)?.contains(self.namespace);
        ensure!(status == StatusCode::OK && is_offered == (who == "operator"), "{who} gets {status}: {page}");
        Ok(())
    }

    /// The proposal in git of a new pipeline and of a change: only for those who could write the Pipeline.
    async fn proposals(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        let target = "e0.name=dev&e0.t0.namespace=a&do=propose&path=a.yaml&confirmed=none";
        let fields = format!(
            "namespace={}&name=new&kind=HelmRelease&app=app&strategy=notification&{target}",
            self.namespace
        );
        let (status, text) = person.post("/pipelines/new", &fields).await?;
        let may_create = ["blind", "pipelines-only"].contains(&who);
        ensure!(
            (status == StatusCode::FORBIDDEN) != may_create,
            "{who} gets {status} for a new pipeline: {text}"
        );
        let (status, text) = person.post(&format!("{}/edit", self.path("pipelines")), &fields).await?;
        let wanted = if is_seen { StatusCode::FORBIDDEN } else { StatusCode::NOT_FOUND };
        ensure!(status == wanted || who == "editor", "{who} gets {status} for a change: {text}");
        Ok(())
    }

    /// The streams of changes: of a page, and of the API.
    async fn live(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        for page in [self.path("pipelines"), self.path("promotions"), "/".into()] {
            let text = person.stream(&format!("/live?of={page}&have=nothing"), "\n\n").await?;
            ensure!(text.contains("1.1.0") == is_seen, "{who} gets of {page}: {text}");
        }
        for page in ["/clusters", "/charts", "/images"] {
            let text = person.stream(&format!("/live?of={page}&have=nothing"), "\n\n").await?;
            let is_shown = who == "operator" && page != "/images";
            ensure!(text.contains(self.namespace) == is_shown, "{who} gets of {page}: {text}");
        }
        let text = person.stream("/api/v1/changes", "event: listed").await?;
        ensure!(text.contains("1.1.0") == is_seen, "{who} gets of the changes: {text}");
        Ok(())
    }

    /// Each action: its page, its form and its call of the API. Who has the rights is only told to look again.
    async fn actions(&self, who: &str, person: &Person, is_seen: bool) -> Result<()> {
        for (kind, action, needs) in ACTIONS {
            let path = format!("{}/{action}", self.path(kind));
            let (page, text) = person.get(&path).await?;
            let (form, _) = person.post(&path, "seen=another&reason=none").await?;
            let (call, _) = person.act(&path, &json!("another")).await?;
            let refused = if is_seen { StatusCode::FORBIDDEN } else { StatusCode::NOT_FOUND };
            for (by, status) in [("page", page), ("form", form), ("API", call)] {
                let is_refused = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status);
                let is_right = if who == needs { !is_refused } else { status == refused };
                ensure!(is_right, "{who} gets {status} for {action} by {by}: {text}");
            }
        }
        Ok(())
    }
}
