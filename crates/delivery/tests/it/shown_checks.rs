//! The checks of a change request, as people see them.

use sluice_delivery::{ChangeRequest, ChangeRequestStatus, CheckState, Order, ReportedCheck, ReportedChecks};

use crate::any_forge::{ForgeFixture, everywhere};
use crate::change_request::{merging, proposed, waits};
use crate::fixture::{Bench, bench};
use crate::standin::{CheckOutcome, TOKEN};

/// Looks once. Returns the checks, the number of calls, and whether the change request is open.
async fn look(bench: &Bench, order: &Order, request: &ChangeRequest) -> (Option<ReportedChecks>, u64, bool) {
    let calls = || bench.delivery.stats().calls("GET") + bench.delivery.stats().calls("POST");
    let before = calls();
    let look = bench.delivery.advance(order, request).await.unwrap();
    let is_open = matches!(look.status, ChangeRequestStatus::Open { .. } | ChangeRequestStatus::Waits { .. });
    (look.checks, calls() - before, is_open)
}

fn of<'a>(checks: &'a ReportedChecks, name: &str) -> &'a ReportedCheck {
    checks.shown.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}: {checks:?}"))
}

pub async fn the_checks_of_a_change_request_are_listed_for_people(fixture: ForgeFixture) {
    let bench = bench();
    let order = fixture.order("6.1.8");
    let request = proposed(&bench.delivery, &order).await;
    fixture.protect(request.number, &["ci/build"], 0).await;
    for (name, is) in
        [("lint", CheckOutcome::Green), ("ci/build", CheckOutcome::Pending), ("e2e", CheckOutcome::Failed)]
    {
        fixture.check(request.number, name, is).await;
    }
    // The first look reads what later ones know.
    look(&bench, &order, &request).await;
    // Nobody asks for them, and nothing is merged.
    let (none, calls, is_open) = look(&bench, &order, &request).await;
    assert!(none.is_none() && is_open, "{none:?}");
    let asked = Order { reads_checks: true, ..order.clone() };
    let (checks, more_calls, is_open) = look(&bench, &asked, &request).await;
    let checks = checks.unwrap();
    assert!(is_open && more_calls > calls && more_calls <= calls + 5, "{calls} and {more_calls} calls");
    assert_eq!((checks.failed, checks.passed, checks.head.as_str()), (1, 1, request.head_commit.as_str()));
    assert!(checks.pending >= 1, "{checks:?}");
    assert_eq!(checks.shown[0].name, "e2e", "what has failed comes first");
    for (name, state) in
        [("e2e", CheckState::Failed), ("ci/build", CheckState::Pending), ("lint", CheckState::Green)]
    {
        assert_eq!(of(&checks, name).state, state, "{checks:?}");
    }
    // The policies of Azure DevOps have no page.
    let linked = checks.shown.iter().filter(|check| check.url.is_some()).count();
    assert!(linked >= 3, "{checks:?}");
    assert_eq!(of(&checks, "e2e").url.as_deref(), Some("https://ci.example.com/e2e"));
    // Each look gives the same answer, so that no status is written for it.
    assert_eq!(look(&bench, &asked, &request).await.0, Some(checks.clone()));
    // A merge reads them anyway, once the forge has compared the branches.
    let merged = Order { created: order.created, ..merging(&fixture, "6.1.8") };
    waits(&bench.delivery, &merged, &request).await;
    let (again, _, is_open) = look(&bench, &merged, &request).await;
    assert_eq!((again, is_open), (Some(checks), true));
}

/// A user who may report a check chooses its name and address.
#[tokio::test]
async fn many_and_hostile_checks_are_few_and_clean() {
    everywhere(async |fixture| {
        let bench = bench();
        let order = Order { reads_checks: true, ..fixture.order("6.1.8") };
        let request = proposed(&bench.delivery, &order).await;
        for n in 0..60 {
            fixture.check(request.number, &format!("job-{n}"), CheckOutcome::Green).await;
        }
        let hostile = format!("{TOKEN}\u{1b}[2J\u{202e} {}", "x".repeat(1000));
        fixture.check(request.number, &hostile, CheckOutcome::Failed).await;
        let checks = look(&bench, &order, &request).await.0.unwrap();
        assert!(checks.passed >= 60 && checks.shown.len() == 20, "{:?}: {checks:?}", fixture.kind());
        let first = &checks.shown[0];
        assert!(first.name.starts_with("*** xxx") && first.name.chars().count() <= 101, "{first:?}");
        assert_eq!(first.url, None, "{first:?}");
        for check in &checks.shown {
            let texts = format!("{}{}", check.name, check.url.as_deref().unwrap_or_default());
            assert!(texts.len() <= 1000 && !texts.contains(TOKEN) && !texts.contains('\u{1b}'), "{check:?}");
        }
    })
    .await;
}
