//! Patterns of required checks, as Gitea and Forgejo match them: `glob.Compile(context)` of
//! github.com/gobwas/glob without separators, and of Gitea's own `modules/glob` since 1.26
//! (`MergeRequiredContextsCommitStatus` in services/pull/commit_status.go). `*` and `**` are any text,
//! `?` is any character, `[a-z]` and `[!a]` are classes, `{a,b}` alternatives, and `\` takes what follows as it is.

use globset::{GlobBuilder, GlobSet};

/// The longest pattern, in bytes. A longer one matches only the same name. Gitea shows names of checks up to 255.
const MAX_PATTERN_BYTES: usize = 1024;

/// One pattern. Matching takes time in proportion to the length of the name.
pub(super) struct CheckPattern {
    pub(super) text: String,
    /// `None` for a pattern that cannot be parsed. It matches only the same name.
    matcher: Option<GlobSet>,
}

impl CheckPattern {
    pub(super) fn new(text: String) -> Self {
        // Before it is parsed: the parser calls itself for alternatives in alternatives.
        let matcher = if text.len() <= MAX_PATTERN_BYTES { matcher(&text) } else { None };
        CheckPattern { text, matcher }
    }

    pub(super) fn fits(&self, name: &str) -> bool {
        self.matcher.as_ref().map_or(self.text == name, |matcher| matcher.is_match(name))
    }
}

/// A set of one pattern: a single one panics if its regular expression is nested too deeply.
fn matcher(text: &str) -> Option<GlobSet> {
    let simple = one_star(text);
    let glob = GlobBuilder::new(&simple)
        .literal_separator(false)
        .backslash_escape(true)
        .empty_alternates(true)
        .build();
    GlobSet::builder().add(glob.ok()?).build().ok()
}

/// The pattern with one star instead of several: `**/` is the same as `*/` without separators.
fn one_star(text: &str) -> String {
    let mut simple = String::new();
    let (mut is_class, mut was_star) = (false, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '*' && was_star && !is_class {
            continue;
        }
        was_star = c == '*' && !is_class;
        simple.push(c);
        match c {
            '\\' => simple.extend(chars.next()),
            '[' => is_class = true,
            ']' => is_class = false,
            _ => {}
        }
    }
    simple
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn patterns_match_as_at_gitea() {
        // Those of gobwas/glob's own tests and documentation, and of Gitea's modules/glob/glob_test.go.
        let cases = [
            ("ci/build", "ci/build", true),
            ("ci/build", "ci/build2", false),
            ("*", "", true),
            ("*", "ci/build", true),
            ("ci/*", "ci/a/b", true),
            ("**/build", "build", false),
            ("**/build", "a/b/build", true),
            ("ci/**", "ci/", true),
            ("a/**/b", "a/b", false),
            ("ci/?", "ci/a", true),
            ("ci/?", "ci/", false),
            ("a?c", "a/c", true),
            ("ci/[ab]", "ci/b", true),
            ("ci/[!ab]", "ci/b", false),
            ("ci/[a-c]x", "ci/cx", true),
            ("{ci,cd}/build", "cd/build", true),
            ("{ci,cd}/build", "ce/build", false),
            ("ci{,/x}", "ci", true),
            (r"ci/\*", "ci/*", true),
            (r"ci/\*", "ci/a", false),
            (r"\**", "*a", true),
            ("CI/*", "ci/a", false),
            ("ci / test (pull_request)", "ci / test (pull_request)", true),
            ("[", "[", true),
            ("[", "a", false),
            ("a{b", "a{b", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(CheckPattern::new(pattern.into()).fits(name), expected, "{pattern} {name}");
        }
    }

    /// The threads of the controller have as much stack.
    #[test]
    fn no_pattern_overflows_the_stack() {
        let nested = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        let patterns = [nested(511), nested(100_000), "{a,".repeat(100) + &"}".repeat(100), "{".repeat(1000)];
        let builder = std::thread::Builder::new().stack_size(2 << 20);
        let thread = builder.spawn(move || patterns.map(|pattern| CheckPattern::new(pattern).fits("a")));
        assert_eq!(thread.unwrap().join().unwrap(), [false, false, true, false]);
    }

    #[test]
    fn no_pattern_takes_long() {
        let patterns =
            ["*a".repeat(500), "{a,b}*".repeat(160), "*".repeat(1000), "[".repeat(1000), "{".repeat(5000)];
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            for pattern in patterns {
                let pattern = CheckPattern::new(pattern);
                std::hint::black_box(pattern.fits(&format!("{}c", "ab".repeat(5000))));
            }
            let _ = done.send(());
        });
        finished.recv_timeout(Duration::from_secs(20)).expect("it takes longer than 20 s");
    }
}
