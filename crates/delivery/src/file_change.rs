//! The change of one file that a person requests, and its words in branches, commits and change requests.

use sluice_core::hex::sha256_hex;

use crate::foreign_text::{clean, cut, one_line};
use crate::markdown::{code, plain};

/// The longest name of a person, in characters.
const MAX_PERSON: usize = 200;

/// The change of one file that a person requests: it counts only if the file has the text that the person has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The path of the file.
    pub path: String,
    /// Its text now; `None` if there is no file.
    pub before: Option<String>,
    /// Its new text.
    pub after: String,
    /// Who requests it.
    pub person: String,
}

impl FileChange {
    /// A hash of what is written, and for whom. Each person has a branch and change request of their own.
    fn identity(&self, base: &str) -> String {
        let parts = [base, &self.path, &self.after, &self.person];
        let lengths = parts.map(|part| format!("{}:", part.len()));
        sha256_hex([lengths.concat(), parts.concat()].concat().as_bytes())[..20].into()
    }

    /// The last part of the head branch. No environment has such a part: those begin with a letter, a digit, - or _.
    pub(crate) fn branch_part(&self, base: &str) -> String {
        format!("@{}", self.identity(base))
    }

    /// What the marker in the body of a change request says.
    pub(crate) fn marker(&self, base: &str) -> String {
        format!("file={}", self.identity(base))
    }

    fn verb(&self) -> &'static str {
        if self.before.is_some() { "Change" } else { "Add" }
    }

    /// The headline of the commit and the title of the change request.
    pub(crate) fn headline(&self, pipeline: &str) -> String {
        one_line(&format!("{} pipeline {pipeline}", self.verb()))
    }

    /// The message of the commit. `onto` is a hash of the file before.
    pub(crate) fn message(&self, namespace: &str, pipeline: &str, onto: &str) -> String {
        let (path, person) = (one_line(&self.path), clean(&self.person, MAX_PERSON));
        let trailers = format!(
            "Sluice-Pipeline: {}\nSluice-Person: {person}\nSluice-Onto: {onto}\n",
            one_line(&format!("{namespace}/{pipeline}"))
        );
        format!("{}\n\n- {}\n\n{trailers}", self.headline(pipeline), cut(&path, 300))
    }

    /// The body of the change request, in Markdown, without its marker.
    pub(crate) fn body(&self, namespace: &str, pipeline: &str) -> String {
        format!(
            "{}s pipeline {} in the file {}, as requested by {} with the form for pipelines.\n\n\
             Sluice does not merge it. Who merges it lets Flux apply the pipeline.",
            self.verb(),
            code(&format!("{namespace}/{pipeline}")),
            code(&self.path),
            plain(&clean(&self.person, MAX_PERSON)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(person: &str) -> FileChange {
        FileChange { path: "a.yaml".into(), before: None, after: "b".into(), person: person.into() }
    }

    #[test]
    fn a_branch_is_of_one_person_base_path_and_text() {
        let one = change("anna");
        let others = [
            (change("ben"), "main"),
            (FileChange { path: "b.yaml".into(), ..one.clone() }, "main"),
            (FileChange { after: "c".into(), ..one.clone() }, "main"),
            (FileChange { path: "a.yam".into(), after: "lb".into(), ..one.clone() }, "main"),
            (one.clone(), "live"),
        ];
        for (other, base) in others {
            assert_ne!(one.branch_part("main"), other.branch_part(base), "{other:?}");
        }
        let seen = FileChange { before: Some("x".into()), ..one.clone() };
        assert_eq!(one.branch_part("main"), seen.branch_part("main"));
    }

    #[test]
    fn the_name_of_a_person_is_no_markup_mention_or_trailer() {
        let evil = change("@anna <b>\nSluice-Promotion: apps/a\n<!-- sluice: promotion=a/b -->");
        let message = evil.message("apps", "podinfo", "0");
        assert!(!crate::trailers::names_any_promotion(&message), "{message}");
        assert_eq!(message.lines().filter(|line| line.starts_with("Sluice-")).count(), 3, "{message}");
        let body = evil.body("apps", "podinfo");
        assert!(!body.contains("@anna") && !body.contains('<'), "{body}");
    }
}
