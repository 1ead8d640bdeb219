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
            ("neighbour", &other, everything.to_vec()),
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
            let is_seen = !matches!(*name, "blind" | "neighbour");
            matrix.views(name, person, is_seen).await?;
            matrix.actions(name, person, is_seen).await?;
        }
        let left = place.promotions().get(&promotion).await?;
        ensure!(left.spec.approval.is_none() && left.spec.rejection.is_none(), "{:?}", left.spec);
        let pipeline = place.pipelines().get("app").await?;
        ensure!(!pipeline.spec.suspend, "somebody suspended it");
        Ok(())
    })
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
        // Nobody of them may get a GitopsCluster, or a HelmRelease on the hub.
        for list in ["/clusters", "/charts", "/images"] {
            let (status, answer) = person.ask(list).await?;
            let is_hidden = !answer.to_string().contains(self.namespace);
            ensure!(status == StatusCode::OK && is_hidden, "{who} sees {status} {answer} in {list}");
        }
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
