//! The marker at the end of a change request's body, by which Sluice finds the change request. Everybody who may edit the
//! body can write a marker: it names the promotion, and does not prove that the commits are good.

use crate::order::Order;

/// The most characters of a name in a marker: names of Kubernetes have at most 253, each of which may be encoded.
const MAX_NAME: usize = 3 * 253;

/// The marker of an order: a comment in HTML, or the definition of a link if the forge shows comments.
pub(crate) fn marker(order: &Order, hides_comments: bool) -> String {
    let says = match order.requested() {
        Some((change, base)) => format!("{} {}", percent_encoded(&order.owner()), change.marker(base)),
        None => format!("{} {}", percent_encoded(&order.subject()), promotion_key(&order.known_by())),
    };
    if hides_comments { format!("<!-- sluice: {says} -->") } else { format!("[sluice]: # ({says})") }
}

fn promotion_key(promotion: &str) -> String {
    format!("promotion={}", percent_encoded(promotion))
}

/// The round of this promotion whose marker a body has.
pub(crate) fn round_marked(body: &str, promotion: &str) -> Option<u32> {
    let wanted = promotion_key(promotion);
    last_marker(body)?.split_whitespace().find_map(|word| match word.strip_prefix(&wanted)? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok(),
    })
}

/// The environment whose marker a body has: its namespace, pipeline and environment, as the marker spells them; `None` for
/// a marker that Sluice does not write.
pub(crate) fn environment_marked(body: &str) -> Option<[&str; 3]> {
    let subject = last_marker(body)?.split_whitespace().next()?;
    let is_name = |part: &&str| {
        (1..=MAX_NAME).contains(&part.len())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-:@%".contains(c))
    };
    let mut parts = subject.split('/');
    let environment = [parts.next()?, parts.next()?, parts.next()?];
    environment.iter().all(is_name).then_some(environment)
}

/// The environment of an order, as its marker spells it.
pub(crate) fn environment_of(order: &Order) -> [String; 3] {
    [&order.namespace, &order.pipeline, &order.environment].map(|name| percent_encoded(name))
}

/// Whether a body has any marker.
pub(crate) fn is_marked(body: &str) -> bool {
    last_marker(body).is_some()
}

/// The last marker of a body, in either form, that is a line of its own and not in a code block. Others may have
/// written the text above it.
fn last_marker(body: &str) -> Option<&str> {
    let (mut fence, mut last) = (None, None);
    for line in body.lines() {
        fence = fence_after(fence, line);
        let mark = parse_marker(line).filter(|_| fence.is_none());
        last = mark.or(last);
    }
    last
}

fn parse_marker(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let comment = line.strip_prefix("<!-- sluice: ").and_then(|rest| rest.strip_suffix(" -->"));
    comment.or_else(|| line.strip_prefix("[sluice]: # (")?.strip_suffix(')'))
}

/// An open code block: its character, and how many of them begin it.
type Fence = Option<(char, usize)>;

/// The code block that is open after a line (spec.commonmark.org/0.31.2, "Fenced code blocks").
fn fence_after(fence: Fence, line: &str) -> Fence {
    let inner = line.trim_start_matches(' ');
    let Some(char) = inner.chars().next().filter(|c| matches!(c, '`' | '~')) else { return fence };
    let rest = inner.trim_start_matches(char);
    let count = inner.len() - rest.len();
    let is_fence = count >= 3 && line.len() - inner.len() <= 3;
    match fence {
        None if is_fence && !(char == '`' && rest.contains('`')) => Some((char, count)),
        Some((open, least)) if is_fence && open == char && count >= least && rest.trim().is_empty() => None,
        open => open,
    }
}

/// The line that closes a code block which a text leaves open, so that the marker below the text counts.
pub(crate) fn closing_fence(text: &str) -> String {
    match text.lines().fold(None, fence_after) {
        Some((char, count)) => format!("\n{}", char.to_string().repeat(count)),
        None => String::new(),
    }
}

/// Text without the characters that have a meaning in a comment.
fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | ':' | '@') {
            out.push(c);
        } else if c == '-' && !out.ends_with('-') {
            out.push('-');
        } else {
            out.push_str(&format!("%{:x}", u32::from(c)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_marker_counts_and_none_in_code() {
        let marks = ["<!-- sluice: promotion=a/b -->", "[sluice]: # (promotion=a/b)"];
        for mark in marks {
            for (body, is) in [
                (mark.to_string(), true),
                (format!("text\r\n\r\n{mark}\r\n"), true),
                // A robot that summarizes changes adds its text at the end.
                (format!("{mark}\n\nSummary"), true),
                (format!("- `{mark}`"), false),
                (format!("as {mark}"), false),
                (format!("{mark} is a mark"), false),
                (format!("    {mark}"), false),
                (format!("```\n{mark}\n```"), false),
                (format!("~~~~ yaml\n```\n~~~\n{mark}"), false),
                (format!("~~~\na\n~~~~\n{mark}"), true),
                (format!("``` a ```\n{mark}"), true),
            ] {
                assert_eq!(round_marked(&body, "a/b") == Some(0), is, "{body}");
                assert_eq!(is_marked(&body), is, "{body}");
                let body = format!("{body}\n<!-- sluice: promotion=a/c -->\n");
                assert!(round_marked(&body, "a/b").is_none(), "{body}");
            }
        }
    }

    #[test]
    fn a_marker_names_its_environment() {
        for (says, names) in [
            ("apps/podinfo/prod promotion=apps/x", Some(["apps", "podinfo", "prod"])),
            ("apps/podinfo/prod/eu promotion=apps/x", Some(["apps", "podinfo", "prod"])),
            ("apps/a-%2db/prod promotion=apps/x", Some(["apps", "a-%2db", "prod"])),
            ("promotion=apps/x", None),
            ("apps/podinfo promotion=apps/x", None),
            ("apps//podinfo/prod promotion=apps/x", None),
            ("apps/[podinfo](http://h)/prod/eu/x", None),
        ] {
            assert_eq!(environment_marked(&format!("text\n<!-- sluice: {says} -->\n")), names, "{says}");
        }
        assert_eq!(environment_marked("apps/podinfo/prod"), None);
    }

    #[test]
    fn names_do_not_end_a_comment() {
        assert_eq!(percent_encoded("a-->b"), "a-%2d%3eb");
    }
}
