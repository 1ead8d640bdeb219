//! The wildcards in the file paths of an `update` list.

use globset::{Glob, GlobBuilder, GlobSet};

/// The characters that make a path a pattern.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// A pattern of paths: `*` and `?` match no `/`, `**/` matches folders. Matching takes time in proportion to the
/// length of the path, whatever the pattern is.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    pub text: String,
    /// `None` for a plain path, as most are.
    glob: Option<Glob>,
}

/// The most bytes of a pattern, with its placeholders replaced.
const MAX_BYTES: usize = 1024;

impl PathPattern {
    pub(super) fn new(text: String) -> Result<PathPattern, String> {
        if text.len() > MAX_BYTES {
            let bytes = text.len();
            return Err(format!(
                "it has {bytes} bytes after its placeholders are replaced: at most {MAX_BYTES} are allowed"
            ));
        }
        if !text.contains(WILDCARDS) {
            return Ok(PathPattern { text, glob: None });
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(false).build();
        let glob = Some(glob.map_err(|wrong| wrong.kind().to_string())?);
        Ok(PathPattern { text, glob })
    }

    /// Returns what tells whether a path matches. It is not kept with the pattern: a list of `update` has thousands of patterns,
    /// and each matcher takes up to a hundred thousand bytes.
    pub(super) fn matcher(&self) -> impl Fn(&str) -> bool {
        // A set of one: a single matcher panics if its regular expression is too large.
        let of = |glob: &Glob| GlobSet::builder().add(glob.clone()).build().ok();
        let set = self.glob.as_ref().map(of);
        move |path| {
            set.as_ref().map_or(self.text == path, |set| set.as_ref().is_some_and(|set| set.is_match(path)))
        }
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &PathPattern) -> bool {
        self.text == other.text
    }
}

impl Eq for PathPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_a_limited_length() {
        let longest = format!("{}*.yaml", "a".repeat(MAX_BYTES - 6));
        assert!(PathPattern::new(longest.clone()).unwrap().matcher()(&longest.replace('*', "x")));
        let error = PathPattern::new(format!("a{longest}")).unwrap_err();
        assert_eq!(error, "it has 1025 bytes after its placeholders are replaced: at most 1024 are allowed");
    }
}
