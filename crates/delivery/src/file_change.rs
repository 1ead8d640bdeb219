//! The change of files that a person requests, and its words in branches, commits and change requests.

use sluice_core::hex::sha256_hex;

use crate::foreign_text::{clean, cut, one_line};
use crate::markdown::{code, plain};

/// The longest name of a person, in characters.
const MAX_PERSON: usize = 200;

/// The change of files that a person requests: it counts only if each file has the text that the person has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedChange {
    /// The file of the Pipeline, then those of its applications.
    pub files: Vec<FileChange>,
    /// Who requests it.
    pub person: String,
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The path of the file.
    pub path: String,
    /// Its text now; `None` if there is no file.
    pub before: Option<String>,
    /// Its new text.
    pub after: String,
}

impl RequestedChange {
    /// A hash of what is written.
    pub(crate) fn content_hash(&self) -> String {
        hash(self.files.iter().flat_map(|file| [file.path.as_str(), &file.after]))
    }

    /// A hash of what is written, and for whom. Each person has a branch and change request of their own.
    pub(crate) fn identity(&self, base: &str) -> String {
        hash([base, &self.content_hash(), &self.person])[..20].into()
    }

    /// What the marker in the body of a change request says.
    pub(crate) fn marker(&self, base: &str) -> String {
        format!("file={}", self.identity(base))
    }

    fn verb(&self) -> &'static str {
        if self.files.first().is_some_and(|file| file.before.is_some()) { "Change" } else { "Add" }
    }

    /// The files of applications.
    fn others(&self) -> &[FileChange] {
        self.files.get(1..).unwrap_or_default()
    }

    /// The headline of the commit and the title of the change request.
    pub(crate) fn headline(&self, pipeline: &str) -> String {
        let others = match self.others().len() {
            0 => String::new(),
            1 => " and 1 manifest".into(),
            count => format!(" and {count} manifests"),
        };
        one_line(&format!("{} pipeline {pipeline}{others}", self.verb()))
    }

    /// The message of the commit. `onto` is a hash of the files before.
    pub(crate) fn message(&self, namespace: &str, pipeline: &str, onto: &str) -> String {
        let person = clean(&self.person, MAX_PERSON);
        let paths = self.files.iter().map(|file| format!("- {}\n", cut(&one_line(&file.path), 300)));
        let trailers = format!(
            "Sluice-Pipeline: {}\nSluice-Person: {person}\nSluice-Onto: {onto}\n",
            one_line(&format!("{namespace}/{pipeline}"))
        );
        format!("{}\n\n{}\n{trailers}", self.headline(pipeline), paths.collect::<String>())
    }

    /// The body of the change request, in Markdown, without its marker.
    pub(crate) fn body(&self, namespace: &str, pipeline: &str) -> RequestedBody {
        let (path, others) = (self.files.first().map_or("", |file| &file.path), self.others());
        let begin = format!(
            "{}s pipeline {} in the file {}, as requested by {} with the form for pipelines.\n\n",
            self.verb(),
            code(&format!("{namespace}/{pipeline}")),
            code(path),
            plain(&clean(&self.person, MAX_PERSON)),
        );
        if others.is_empty() {
            let end = "Sluice does not merge it. Who merges it lets Flux apply the pipeline.";
            return RequestedBody { begin, files: Vec::new(), end };
        }
        RequestedBody {
            begin: begin + "Adds manifests of its application, each with the marker that Sluice sets:\n\n",
            files: others.iter().map(|file| format!("- {}\n", code(&file.path))).collect(),
            end: "\nIt is a draft, and Sluice does not merge it: a person must mark it as ready. Who merges it lets Flux apply \
                  the manifests with the rights that it has on each cluster. Look at where each chart or source comes \
                  from, and at the values.",
        }
    }
}

/// The parts of a body. Only the list of files can be long.
pub(crate) struct RequestedBody {
    pub begin: String,
    /// A line for each file.
    pub files: Vec<String>,
    pub end: &'static str,
}

/// A hash of a list of texts.
fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let parts: String = texts.into_iter().map(|text| format!("{}:{text}", text.len())).collect();
    sha256_hex(parts.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, after: &str) -> FileChange {
        FileChange { path: path.into(), before: None, after: after.into() }
    }

    fn change(person: &str, files: &[FileChange]) -> RequestedChange {
        RequestedChange { files: files.to_vec(), person: person.into() }
    }

    #[test]
    fn a_branch_is_of_one_person_base_and_list_of_files() {
        let one = change("anna", &[file("a.yaml", "b")]);
        let others = [
            (change("ben", &one.files), "main"),
            (change("anna", &[file("b.yaml", "b")]), "main"),
            (change("anna", &[file("a.yaml", "c")]), "main"),
            (change("anna", &[file("a.yam", "lb")]), "main"),
            (change("anna", &[file("a.yaml", "b"), file("b.yaml", "b")]), "main"),
            (change("anna", &[]), "main"),
            (one.clone(), "live"),
        ];
        for (other, base) in others {
            assert_ne!(one.identity("main"), other.identity(base), "{other:?}");
        }
        let seen = change("anna", &[FileChange { before: Some("x".into()), ..file("a.yaml", "b") }]);
        assert_eq!(one.identity("main"), seen.identity("main"));
    }

    #[test]
    fn the_texts_name_each_file() {
        let change = change("anna", &[file("a.yaml", ""), file("dev/b.yaml", ""), file("prod/b.yaml", "")]);
        assert_eq!(change.headline("shop"), "Add pipeline shop and 2 manifests");
        let text = change.message("apps", "shop", "0");
        assert!(change.files.iter().all(|file| text.contains(&file.path)), "{text}");
        let body = change.body("apps", "shop");
        assert!(body.begin.contains("a.yaml"), "{}", body.begin);
        assert_eq!(body.files, ["- `dev/b.yaml`\n", "- `prod/b.yaml`\n"]);
    }

    #[test]
    fn the_name_of_a_person_is_no_markup_mention_or_trailer() {
        let person = "@anna <b>\nSluice-Promotion: apps/a\n<!-- sluice: promotion=a/b -->";
        let evil = change(person, &[file("a.yaml", "b")]);
        let message = evil.message("apps", "podinfo", "0");
        assert!(!crate::read_trailers::names_any_promotion(&message), "{message}");
        assert_eq!(message.lines().filter(|line| line.starts_with("Sluice-")).count(), 3, "{message}");
        let body = evil.body("apps", "podinfo").begin;
        assert!(!body.contains("@anna") && !body.contains('<'), "{body}");
    }
}
