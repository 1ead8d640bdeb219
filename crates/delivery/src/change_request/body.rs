//! Titles and bodies of change requests. Names, values and evidence come from elsewhere, so none of them can be markup,
//! a marker or a mention of a person.

use std::borrow::Cow;

use sluice_core::setters::SetValue;

use super::body_mark::{closing_fence, marker};
use crate::commit_message::{MAX_HEADLINE, headline};
use crate::foreign_text::{cut, one_line};
use crate::forge_kind::ForgeKind;
use crate::markdown::{code, plain};
use crate::order::{Order, Settings};
use crate::template::{self, TemplateError};

/// The most entries of a list in a body.
const MAX_LISTED: usize = 50;

/// The title of a change request, in one line.
pub(crate) fn title(order: &Order, settings: &Settings) -> Result<String, TemplateError> {
    let Some(text) = &settings.title else {
        return Ok(headline(order, &format!("{}/{}", order.namespace, order.pipeline)));
    };
    let title = template::title(text, |name| of_promotion(order, name).to_string())?;
    Ok(cut(&one_line(&title), MAX_HEADLINE))
}

/// The value of a placeholder.
fn of_promotion<'a>(order: &'a Order, name: &str) -> Cow<'a, str> {
    match name {
        "namespace" => order.namespace.as_str().into(),
        "pipeline" => order.pipeline.as_str().into(),
        "environment" => order.environment.as_str().into(),
        "target" => order.target.as_deref().unwrap_or_default().into(),
        "replaces" => order.replaces.as_str().into(),
        "promotion" => order.promotion.as_str().into(),
        _ => order.revision.to_string().into(),
    }
}

/// How a forge treats bodies.
struct BodyRules {
    /// The longest body, in UTF-16 units: what .NET and Java count, and never less than characters.
    max_length: usize,
    /// Whether comments in HTML are hidden.
    hides_comments: bool,
}

/// GitHub takes 65,536 characters, GitLab 1,048,576 (docs.gitlab.com/administration/instance_limits), Azure
/// DevOps 4,000 (learn.microsoft.com, "Pull Requests - Update"), Bitbucket Data Center 32,768 (Renovate, which
/// opens change requests at each of these, stays below 30,000 there and below 50,000 at Bitbucket Cloud).
/// Both Bitbuckets escape HTML, so that a comment would be visible. The definition of a link that nothing refers to is
/// hidden (github.com/terraform-docs/terraform-docs/issues/463).
fn rules(forge: ForgeKind) -> BodyRules {
    let (max_length, hides_comments) = match forge {
        ForgeKind::GitHub | ForgeKind::Gitea | ForgeKind::Forgejo => (65_000, true),
        ForgeKind::GitLab => (1_000_000, true),
        ForgeKind::AzureDevOps => (4_000, true),
        ForgeKind::Bitbucket | ForgeKind::BitbucketServer => (30_000, false),
    };
    BodyRules { max_length, hides_comments }
}

fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Adds lines while they fit into `room`, and then the number of the lines that are left out.
fn add_lines(text: &mut String, room: usize, lines: impl ExactSizeIterator<Item = String>) {
    let (mut left, mut room) = (lines.len(), room.saturating_sub(40));
    for line in lines.take(MAX_LISTED) {
        if length(&line) > room {
            break;
        }
        room -= length(&line);
        text.push_str(&line);
        left -= 1;
    }
    if left > 0 {
        text.push_str(&format!("- and {left} more\n"));
    }
}

/// Returns the body of a change request, in Markdown. The body always ends with the mark by which Sluice finds the
/// change request: if the rest is too long, the rest is cut.
pub(crate) fn body(
    order: &Order,
    settings: &Settings,
    values: &[(String, SetValue)],
    forge: ForgeKind,
) -> Result<String, TemplateError> {
    let rules = rules(forge);
    let marker = format!("\n\n{}\n", marker(order, rules.hides_comments));
    let most = rules.max_length.saturating_sub(length(&marker));
    let Some(text) = &settings.body else { return Ok(default_body(order, values, most) + &marker) };
    // Each list may take a part, so that there is room for the others.
    let listed = |lines: Vec<String>| {
        let mut text = String::new();
        add_lines(&mut text, most / 4, lines.into_iter());
        text.trim_end().to_string()
    };
    let text = template::body(text, |name| match name {
        "evidence" => listed(order.evidence.iter().map(|e| format!("- {}\n", plain(e))).collect()),
        "changes" => listed(changes(values)),
        "usual" => default_body(order, values, most / 2),
        name => value(&of_promotion(order, name)),
    })?;
    let whole = text.trim_end();
    let mut text = begin(whole, most);
    let mut end = closing_fence(text);
    if length(text) + length(&end) > most {
        text = begin(whole, most.saturating_sub(length(&end)));
        end = closing_fence(text);
    }
    Ok(text.to_string() + &end + &marker)
}

/// Returns the beginning of a text, with at most `most` UTF-16 units.
fn begin(text: &str, most: usize) -> &str {
    let mut room = most;
    let fits = |c: &char| {
        let left = room.checked_sub(c.len_utf16());
        room = left.unwrap_or(0);
        left.is_some()
    };
    let bytes: usize = text.chars().take_while(fits).map(char::len_utf8).sum();
    &text[..bytes]
}

/// A value in the text of the pipeline's owner: as code if it could be markup.
fn value(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/' | '+');
    if text.chars().all(harmless) && !text.contains("//") { text.into() } else { code(text) }
}

fn changes(values: &[(String, SetValue)]) -> Vec<String> {
    let change = |(path, value): &(String, SetValue)| {
        let place = code(&format!("{path}:{}", value.line));
        format!("- {place}: {} → {}\n", code(&value.old), code(&value.new))
    };
    values.iter().map(change).collect()
}

/// The default body, with at most this many UTF-16 units.
fn default_body(order: &Order, values: &[(String, SetValue)], most: usize) -> String {
    if let Some((change, _)) = order.requested() {
        let body = change.body(&order.namespace, &order.pipeline);
        let (mut text, end) = (body.begin, body.end);
        let rest = most.saturating_sub(length(&text) + length(end));
        add_lines(&mut text, rest, body.files.into_iter());
        return text + end;
    }
    let end = "\nMerge it to deliver the revision. Closing it without merging rejects this promotion.";
    let pipeline = code(&format!("{}/{}", order.namespace, order.pipeline));
    let mut text = format!(
        "Promotes {pipeline} to {} in {}",
        code(&order.revision.to_string()),
        code(&order.environment)
    );
    if let Some(target) = &order.target {
        text.push_str(&format!(", target {}", code(target)));
    }
    if order.replaces.is_empty() {
        text.push_str(".\n");
    } else {
        text.push_str(&format!(", in place of {}.\n", code(&order.replaces)));
    }
    let changes = changes(values);
    let room = |text: &str| most.saturating_sub(length(text) + length(end) + 100);
    if !order.evidence.is_empty() {
        text.push_str("\n**Why**\n\n");
        // The changes have half of the room, if they need that much.
        let (all, needed) = (room(&text), changes.iter().map(|line| length(line)).sum::<usize>() + 100);
        let why = order.evidence.iter().map(|evidence| format!("- {}\n", plain(evidence)));
        add_lines(&mut text, all.saturating_sub(needed.min(all / 2)), why);
    }
    text.push_str("\n**What changes**\n\n");
    let rest = room(&text);
    add_lines(&mut text, rest, changes.into_iter());
    text + end
}

#[cfg(test)]
mod tests {
    use super::super::body_mark::round_marked;
    use super::*;
    use crate::commit_message::{merge_message, message};
    use crate::forge::MergeMessage;
    use crate::read_trailers;
    use std::collections::BTreeMap;

    fn order(revision: &str) -> Order {
        let facets = BTreeMap::from([("HelmRelease/podinfo:chart".to_string(), revision.to_string())]);
        Order {
            promotion: "apps/podinfo-prod-1".into(),
            namespace: "apps".into(),
            pipeline: "podinfo".into(),
            environment: "prod".into(),
            target: None,
            revision: sluice_core::Revision::from_strings(&facets).unwrap(),
            replaces: "6.1.7".into(),
            evidence: vec!["@everyone <script> `x` [a](http://b) #12".into()],
            created: "2026-01-02T03:04:05Z".parse().unwrap(),
            round: 0,
            retried: false,
            rebuild: None,
            checks_settled: true,
            reads_checks: false,
            open_beside: Vec::new(),
            recorded: Vec::new(),
            recorded_open: Vec::new(),
            withdrawn: Vec::new(),
            fencing_token: crate::fencing::FencingToken::default(),
            strategy: crate::order::DeliveryStrategy::Commit {
                url: "https://h/a/b".into(),
                branch: "main".into(),
            },
            values: crate::order::Values::Marked,
            credentials: crate::Credentials::default(),
        }
    }

    #[test]
    fn a_body_with_many_files_fits_and_says_who_merges_it() {
        let file = |at: usize| {
            let path = format!("{}{at}.yaml", "a".repeat(240));
            crate::FileChange { path, before: None, after: String::new() }
        };
        let change = crate::RequestedChange { files: (0..65).map(file).collect(), person: "a".repeat(300) };
        let strategy = order("1").strategy;
        let order = Order::of_files(("apps", "podinfo"), strategy, change, order("1").created);
        for forge in [ForgeKind::GitHub, ForgeKind::AzureDevOps, ForgeKind::BitbucketServer] {
            let (body, rules) = (body_of(&order, &[], forge), rules(forge));
            assert!(length(&body) <= rules.max_length, "{}", length(&body));
            assert!(body.contains(" more\n") && body.contains("Look at where each chart"), "{body}");
            assert!(body.trim_end().ends_with(&marker(&order, rules.hides_comments)), "{body}");
        }
    }

    fn body_of(order: &Order, values: &[(String, SetValue)], forge: ForgeKind) -> String {
        body(order, &Settings::default(), values, forge).unwrap()
    }

    fn is_marked_for(text: &str, promotion: &str) -> bool {
        round_marked(text, promotion) == Some(0)
    }

    fn changed(old: &str) -> Vec<(String, SetValue)> {
        vec![("a b.yaml".into(), SetValue { line: 3, old: old.into(), new: "6.1.8".into() })]
    }

    #[test]
    fn a_body_has_the_promotion_the_changes_and_the_marker() {
        let text = body_of(&order("6.1.8"), &changed("6.1.7"), ForgeKind::GitHub);
        assert!(
            text.contains("Promotes `apps/podinfo` to `6.1.8` in `prod`, in place of `6.1.7`."),
            "{text}"
        );
        assert!(text.contains("- `a b.yaml:3`: `6.1.7` → `6.1.8`"), "{text}");
        assert!(text.contains("<!-- sluice: apps/podinfo/prod promotion=apps/podinfo-prod-1 -->"), "{text}");
        assert!(is_marked_for(&text, "apps/podinfo-prod-1"));
        assert!(!is_marked_for(&text, "apps/podinfo-prod"));
        assert!(!is_marked_for(&text, "apps/podinfo-prod-11"));
    }

    #[test]
    fn each_round_after_the_first_is_named() {
        for forge in ForgeKind::ALL {
            for round in [0, 1, 12] {
                let order = Order { round, ..order("6.1.8") };
                let text = body_of(&order, &changed("6.1.7"), forge);
                assert_eq!(round_marked(&text, "apps/podinfo-prod-1"), Some(round), "{text}");
                assert_eq!(round_marked(&text, "apps/podinfo-prod"), None);
                let text = message(&order, &changed("6.1.7"), "0");
                assert_eq!(read_trailers::carries(&text, "apps/podinfo-prod-1"), round == 0);
                assert_eq!(read_trailers::carries(&text, "apps/podinfo-prod-1:1"), round == 1);
            }
        }
        assert_eq!(round_marked("<!-- sluice: promotion=a/b:x -->", "a/b"), None);
    }

    #[test]
    fn a_commit_has_trailers_for_the_promotion_and_its_evidence() {
        let mut order = order("6.1.8");
        order.evidence =
            vec!["dev/eu healthy since 2026-01-02T03:04:05Z".into(), "a\nSluice-Target: b".into()];
        let text = message(&order, &changed("6.1.7"), "0");
        let trailers: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("Sluice-")).collect();
        let expected = [
            "Sluice-Promotion: apps/podinfo-prod-1",
            "Sluice-Pipeline: apps/podinfo",
            "Sluice-Environment: prod",
            "Sluice-Revision: 6.1.8",
            "Sluice-Evidence: dev/eu healthy since 2026-01-02T03:04:05Z",
            "Sluice-Evidence: a Sluice-Target: b",
            "Sluice-Onto: 0",
        ];
        assert_eq!(trailers, expected);
    }

    #[test]
    fn a_commit_names_its_environment_and_target() {
        let to = |environment: &str, target: Option<&str>| Order {
            environment: environment.into(),
            target: target.map(String::from),
            ..order("6.1.8")
        };
        for (order, expected) in [
            (to("prod", None), "Sluice-Environment: prod\nSluice-Revision: "),
            (to("prod", Some("eu")), "Sluice-Environment: prod\nSluice-Target: eu\nSluice-Revision: "),
        ] {
            let MergeMessage { title, trailers } = merge_message(&order);
            for text in [message(&order, &[], "0"), format!("{title}\n\n{trailers}")] {
                assert!(text.contains(expected), "{text}");
            }
        }
    }

    #[test]
    fn values_are_never_markup_markers_or_trailers() {
        let text = body_of(
            &order("1 --> <b>` @team"),
            &changed("`x` <!-- sluice: promotion=apps/other -->"),
            ForgeKind::GitHub,
        );
        assert!(!is_marked_for(
            &text.replace(&code("`x` <!-- sluice: promotion=apps/other -->"), ""),
            "apps/other"
        ));
        assert!(text.contains("@\u{200b}everyone &lt;script&gt; \\`x\\`"), "{text}");
        assert!(text.contains("`` 1 --> <b>` @team ``") || text.contains("``1 --> <b>` @team``"), "{text}");
        let text = message(
            &order("1\nSluice-Promotion: apps/other"),
            &changed("a\n\nSluice-Promotion: apps/other"),
            "0",
        );
        assert!(!read_trailers::carries(&text, "apps/other"), "{text}");
        assert!(read_trailers::carries(&text, "apps/podinfo-prod-1"), "{text}");
        let mut evil = order("6.1.8");
        evil.evidence = vec!["<!-- sluice: promotion=apps/other -->".into()];
        let texts = ["<!-- sluice: promotion=apps/other -->", "[sluice]: # (promotion=apps/other)"];
        for forge in ForgeKind::ALL {
            for text in texts {
                evil.replaces = text.into();
                let text = body_of(&evil, &changed(&format!("a\n{text}\r{text}\u{2028}{text}\n")), forge);
                assert_eq!(round_marked(&text, "apps/other"), None, "{text}");
                assert!(is_marked_for(&text, "apps/podinfo-prod-1"), "{text}");
            }
        }
    }

    #[test]
    fn a_long_body_is_shortened_and_keeps_the_marker() {
        for forge in ForgeKind::ALL {
            let mut order = order(&"é".repeat(900));
            order.evidence = (0..90).map(|n| format!("{n} {}", "𝄞".repeat(600))).collect();
            let values: Vec<_> = (0..200).flat_map(|_| changed(&"v".repeat(400))).collect();
            let text = body_of(&order, &values, forge);
            assert!(length(&text) <= rules(forge).max_length, "{forge:?}: {}", length(&text));
            assert!(is_marked_for(&text, "apps/podinfo-prod-1"), "{forge:?}");
            assert!(text.contains("**What changes**") && text.contains("more\n"), "{forge:?}: {text}");
        }
    }

    #[test]
    fn a_commit_message_is_smaller_than_the_limit_for_commits() {
        let mut order = order(&"𝄞".repeat(900));
        order.evidence = (0..90).map(|n| format!("{n} {}", "𝄞".repeat(600))).collect();
        let values: Vec<_> = (0..200).flat_map(|_| changed(&"𝄞".repeat(400))).collect();
        let text = message(&order, &values, "0");
        assert!(text.len() < 48 << 10, "{}", text.len());
        assert!(
            read_trailers::carries(&text, "apps/podinfo-prod-1") && text.ends_with("Sluice-Onto: 0\n"),
            "{text}"
        );
        assert!(text.contains("- and ") && text.contains(" more\n"), "{text}");
    }

    #[test]
    fn the_marker_is_hidden_at_forges_that_show_comments() {
        for forge in [ForgeKind::Bitbucket, ForgeKind::BitbucketServer] {
            let text = body_of(&order("6.1.8"), &changed("6.1.7"), forge);
            let mark = "\n\n[sluice]: # (apps/podinfo/prod promotion=apps/podinfo-prod-1)\n";
            assert!(text.ends_with(mark) && !text.contains("<!--"), "{text}");
            assert!(is_marked_for(&text.replace('\n', "\r\n"), "apps/podinfo-prod-1"));
            assert!(!is_marked_for(&text, "apps/podinfo-prod"));
        }
    }

    #[test]
    fn an_open_code_block_does_not_hide_the_marker() {
        for (text, closed) in [
            ("Run\n```sh\nmake", "make\n```\n\n"),
            ("~~~~~\n```\n", "```\n~~~~~\n\n"),
            ("```\na\n```", "a\n```\n\n"),
        ] {
            let settings = Settings { body: Some(text.into()), ..Settings::default() };
            for forge in ForgeKind::ALL {
                let text = body(&order("6.1.8"), &settings, &[], forge).unwrap();
                assert!(text.contains(closed) && is_marked_for(&text, "apps/podinfo-prod-1"), "{text}");
            }
        }
        let settings = Settings { body: Some("`".repeat(1_000_000)), ..Settings::default() };
        let text = body(&order("6.1.8"), &settings, &[], ForgeKind::AzureDevOps).unwrap();
        assert!(length(&text) <= 4_000 && is_marked_for(&text, "apps/podinfo-prod-1"), "{}", text.len());
    }

    #[test]
    fn titles_are_one_line_and_short() {
        let usual = Settings::default();
        assert_eq!(title(&order("6.1.8"), &usual).unwrap(), "Promote apps/podinfo to 6.1.8 in prod");
        let long = title(&order(&"x\n".repeat(900)), &usual).unwrap();
        assert!(long.chars().count() <= 240 && !long.contains('\n'));
    }

    #[test]
    fn templates_are_filled_safely_and_keep_the_marker() {
        let settings = |title: &str, body: &str| Settings {
            title: Some(title.into()),
            body: Some(body.into()),
            ..Settings::default()
        };
        let own =
            settings("{pipeline} {revision}\n{target}", "{revision} for {replaces}\n\n{changes}\n{evidence}");
        let odd = order("1`<b> @team");
        assert_eq!(title(&odd, &own).unwrap(), "podinfo 1`<b> @team");
        for forge in ForgeKind::ALL {
            let text = body(&odd, &own, &changed("6.1.7"), forge).unwrap();
            assert!(text.starts_with("``1`<b> @team`` for 6.1.7\n\n- `a b.yaml:3`: `6.1.7`"), "{text}");
            assert!(text.contains("\n- @\u{200b}everyone &lt;script&gt;"), "{text}");
            assert!(is_marked_for(&text, "apps/podinfo-prod-1"), "{text}");
            let long = settings("{revision}", &format!("{{usual}}{}{{changes}}", "𝄞".repeat(600_000)));
            let text = body(&odd, &long, &changed("6.1.7"), forge).unwrap();
            assert!(length(&text) <= rules(forge).max_length, "{forge:?}: {}", length(&text));
            assert!(is_marked_for(&text, "apps/podinfo-prod-1"), "{forge:?}");
        }
        assert!(title(&odd, &settings("{target} ", "")).unwrap_err().to_string().contains("nothing is left"));
    }
}
