//! Patterns of required checks, as Gitea and Forgejo match them: `glob.Compile(context)` of
//! github.com/gobwas/glob without separators, and of Gitea's own `modules/glob` since 1.26
//! (`MergeRequiredContextsCommitStatus` in services/pull/commit_status.go). `*` and `**` are any text,
//! `?` is any character, `[a-z]` and `[!a]` are classes, `{a,b}` alternatives, and `\` takes what follows as it is.

use globset::{GlobBuilder, GlobSet};

/// The longest pattern, in bytes. A longer one matches only the same name. Gitea shows names of checks up to 255.
const MAX_PATTERN_BYTES: usize = 1024;

/// The characters that make a name a pattern.
const SPECIAL: [char; 6] = ['*', '?', '[', ']', '{', '\\'];

/// How much may be matched for one look at a change request: the bytes of a pattern, times the bytes of all names, summed up
/// over the patterns. The slowest pattern takes 10 ns for each, and a look with a hundred of checks needs a tenth.
const MAX_WORK: usize = 8_000_000;
/// The work of parsing a pattern, for each of its bytes.
const PARSING_WORK: usize = 2_000;

/// The work that is left for the patterns of a look. A repository chooses its patterns and its names of checks.
pub(super) struct MatchingBudget {
    left: usize,
    names_bytes: usize,
}

impl MatchingBudget {
    /// Returns the budget for patterns that are matched with these names.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        MatchingBudget { left: MAX_WORK, names_bytes: names.map(str::len).sum() }
    }

    /// Counts the work of a pattern. Returns false if too little is left.
    fn spend(&mut self, pattern: &str) -> bool {
        let work = pattern.len().saturating_mul(self.names_bytes.saturating_add(PARSING_WORK));
        let is_left = work <= self.left;
        self.left = self.left.saturating_sub(work);
        is_left
    }
}

/// One pattern. Matching takes time in proportion to the length of the name.
pub(super) struct CheckPattern {
    pub(super) text: String,
    /// `None` for a plain name, and for a pattern that cannot be parsed or takes too much work. It matches only the same name.
    matcher: Option<GlobSet>,
}

impl CheckPattern {
    pub(super) fn new(text: String, budget: &mut MatchingBudget) -> Self {
        // Before it is parsed: the parser calls itself for alternatives in alternatives.
        let is_parsed = text.contains(SPECIAL) && text.len() <= MAX_PATTERN_BYTES && budget.spend(&text);
        let matcher = if is_parsed { matcher(&text) } else { None };
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

    fn parsed(pattern: String, name: &str) -> CheckPattern {
        CheckPattern::new(pattern, &mut MatchingBudget::of([name].into_iter()))
    }

    #[test]
    fn beyond_the_budget_a_pattern_matches_only_the_same_name() {
        let few = || MatchingBudget::of(["ci/build"; 100].into_iter());
        let mut budget = few();
        let patterns: Vec<CheckPattern> =
            (0..20).map(|n| CheckPattern::new(format!("ci/*{}", "?".repeat(n)), &mut budget)).collect();
        assert!(patterns.iter().all(|pattern| pattern.matcher.is_some()), "an ordinary repository");
        let many: Vec<CheckPattern> =
            (0..500).map(|_| CheckPattern::new("{?,*}".repeat(204), &mut budget)).collect();
        assert!(many.iter().filter(|pattern| pattern.matcher.is_some()).count() < 5);
        assert!(many[499].fits(&"{?,*}".repeat(204)) && !many[499].fits("ci/build"));
        // Plain names cost nothing.
        assert!(CheckPattern::new("ci/build".into(), &mut budget).fits("ci/build"));
    }

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
            let fits = parsed(pattern.into(), name).fits(name);
            assert_eq!(fits, expected, "{pattern} {name}");
        }
    }

    /// The threads of the controller have as much stack.
    #[test]
    fn no_pattern_overflows_the_stack() {
        let nested = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        let patterns = [nested(511), nested(100_000), "{a,".repeat(100) + &"}".repeat(100), "{".repeat(1000)];
        let builder = std::thread::Builder::new().stack_size(2 << 20);
        let thread = builder.spawn(move || patterns.map(|pattern| parsed(pattern, "a").fits("a")));
        assert_eq!(thread.unwrap().join().unwrap(), [false, false, true, false]);
    }

    #[test]
    fn no_pattern_takes_long() {
        let patterns =
            ["*a".repeat(500), "{a,b}*".repeat(160), "*".repeat(1000), "[".repeat(1000), "{".repeat(5000)];
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            for pattern in patterns {
                let name = format!("{}c", "ab".repeat(2500));
                std::hint::black_box(parsed(pattern, &name).fits(&name));
            }
            let _ = done.send(());
        });
        finished.recv_timeout(Duration::from_secs(20)).expect("it takes longer than 20 s");
    }
}
