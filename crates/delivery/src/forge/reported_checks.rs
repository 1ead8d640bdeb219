//! The checks of a change request as people see them: few, short, and clean. Forges and everybody who may report a check choose
//! names and addresses. Pure.

use reqwest::Url;

use super::readiness::{Check, CheckState, Readiness};
use crate::foreign_text::clean;
use crate::outcome::{ReportedCheck, ReportedChecks};

/// The most checks that are shown.
const MAX_SHOWN: usize = 20;
/// The most characters of the name of a check.
const MAX_NAME_CHARS: usize = 100;
/// The longest address of a check, in bytes.
const MAX_URL_BYTES: usize = 500;

/// Returns the checks of a head; `None` if the token may not read them. `redact` removes secrets. The order depends only on the
/// checks: a forge may return the same checks in another order each time.
pub(crate) fn reported(readiness: &Readiness, redact: impl Fn(&str) -> String) -> Option<ReportedChecks> {
    if readiness.are_checks_hidden {
        return None;
    }
    let mut all: Vec<&Check> = readiness.checks.iter().chain(&readiness.other_checks).collect();
    let count = |state: CheckState| all.iter().filter(|check| check.state == state).count();
    let (failed, pending, passed) =
        (count(CheckState::Failed), count(CheckState::Pending), count(CheckState::Green));
    all.sort_by(|a, b| {
        let key = |check: &Check| (check.state, !check.required);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name)).then_with(|| a.url.cmp(&b.url))
    });
    let shown = all.into_iter().take(MAX_SHOWN).map(|check| ReportedCheck {
        name: name(&check.name, &redact),
        state: check.state,
        required: check.required,
        url: check.url.as_deref().and_then(|url| link(url, &redact)),
    });
    Some(ReportedChecks { head: readiness.head.clone(), failed, pending, passed, shown: shown.collect() })
}

/// Cleaned before secrets are removed, since a secret may have escape sequences in it; cut afterwards, since a part of a
/// secret is not recognized.
fn name(name: &str, redact: impl Fn(&str) -> String) -> String {
    let name = clean(&redact(&clean(name, usize::MAX)), MAX_NAME_CHARS);
    if name.is_empty() { "a check without a name".into() } else { name }
}

/// Returns an address that a browser may open, in the form in which browsers send it. An address that names a user looks like
/// one of another host.
fn link(url: &str, redact: impl Fn(&str) -> String) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let is_plain = url.scheme() == "https" && url.username().is_empty() && url.password().is_none();
    let text: String = url.into();
    (is_plain && text.len() <= MAX_URL_BYTES && redact(&text) == text).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, state: CheckState, required: bool, url: &str) -> Check {
        Check::new(name, state, required).with_url(&json!(url))
    }

    fn shown(checks: Vec<Check>) -> ReportedChecks {
        let readiness = Readiness { head: "a".into(), checks, ..Readiness::default() };
        reported(&readiness, |text| text.replace("hunter2", "***")).unwrap()
    }

    #[test]
    fn those_that_block_come_first_and_all_are_counted() {
        use CheckState::{Failed, Green, Pending};
        let many = (0..30).map(|n| check(&format!("job-{n:02}"), Green, n == 29, ""));
        let blocking =
            [("b", Pending, false), ("c", Failed, false), ("a", Pending, true), ("d", Failed, true)];
        let blocking = blocking.map(|(name, state, required)| check(name, state, required, ""));
        let mut checks: Vec<Check> = many.chain(blocking).collect();
        let first = shown(checks.clone());
        assert_eq!((first.failed, first.pending, first.passed, first.shown.len()), (2, 2, 30, MAX_SHOWN));
        let names: Vec<&str> = first.shown.iter().take(6).map(|check| check.name.as_str()).collect();
        assert_eq!(names, ["d", "c", "a", "b", "job-29", "job-00"]);
        // The next answer has them in another order.
        checks.reverse();
        assert_eq!(shown(checks), first);
        let hidden = Readiness { are_checks_hidden: true, ..Readiness::default() };
        assert_eq!(reported(&hidden, str::to_string), None);
    }

    #[test]
    fn names_are_short_and_clean_and_have_no_secret() {
        for (name, expected) in [
            ("ci/build", "ci/build"),
            ("a\u{1b}[31mred\u{202e}\nb", "ared b"),
            ("hun\u{1b}[0mter2", "***"),
            ("\u{200b}\u{7}", "a check without a name"),
            (&"x".repeat(600), &format!("{}…", "x".repeat(MAX_NAME_CHARS))),
        ] {
            assert_eq!(shown(vec![check(name, CheckState::Failed, false, "")]).shown[0].name, expected);
        }
    }

    #[test]
    fn only_plain_https_addresses_are_links() {
        for (url, expected) in [
            ("https://ci.example.com/jobs/7?a=b#c", Some("https://ci.example.com/jobs/7?a=b#c")),
            (
                "https://ci.example.com/a b\u{202e}\"><",
                Some("https://ci.example.com/a%20b%E2%80%AE%22%3E%3C"),
            ),
            ("http://ci.example.com/", None),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("/jobs/7", None),
            ("https://github.com@ci.example.com/", None),
            ("https://ci.example.com/?token=hunter2", None),
            (&format!("https://ci.example.com/{}", "a".repeat(MAX_URL_BYTES)), None),
            ("", None),
        ] {
            let found = shown(vec![check("ci", CheckState::Failed, false, url)]).shown.remove(0).url;
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }
}
