//! Reads one file of a commit by its path, and finds what else is on that path: a link would lead elsewhere, and a commit
//! would replace it with a folder.

use super::error::GitResult;
use super::files::{ReadFile, UnreadReason};
use super::read_files::{TreeEntry, YamlFiles};
use super::repository::LockedRepository;

/// The most entries of a tree that are on one path.
const MAX_ENTRIES: usize = 200;

impl LockedRepository<'_> {
    /// Lists the entry at the end of a path, and the folders above it.
    async fn list_path(&self, commit: &str, path: &str) -> GitResult<Vec<u8>> {
        self.git.run(self.local(["ls-tree", "-t", "-z", "--full-tree", commit, "--", path])).await
    }

    /// Reads a plain file of a commit; `None` if there is no file. The inner error says why the path cannot be used.
    /// The path must be one of characters that mean themselves.
    pub(crate) async fn read_plain_file(
        &self,
        commit: &str,
        path: &str,
    ) -> GitResult<Result<Option<ReadFile>, String>> {
        let mut listed = self.list_path(commit, path).await?;
        // What is not a folder is listed only if the path ends there.
        if let Some(end) = end_of_folders(&listed, path) {
            listed.extend(self.list_path(commit, end).await?);
        }
        let file = match file_on(&listed, path) {
            Ok(Some(file)) => file,
            other => return Ok(other.map(|_| None)),
        };
        let (mut found, unread) = self.read_files(YamlFiles(vec![file])).await?;
        Ok(match (found.pop(), unread.first().map(|file| file.reason)) {
            (_, Some(UnreadReason::LfsPointer)) => Err("its content is in Git LFS".into()),
            (_, Some(UnreadReason::TooLarge(bytes))) => Err(format!("it has {} MiB", bytes >> 20)),
            (found, None) => Ok(found),
        })
    }
}

/// Returns the part of a path that ends with the first name that is not a listed folder; `None` if that is the whole path.
fn end_of_folders<'a>(listed: &[u8], path: &'a str) -> Option<&'a str> {
    let is_folder = |name: &str| {
        listed
            .split(|byte| *byte == 0)
            .any(|line| line.starts_with(b"040000 ") && line.ends_with(format!("\t{name}").as_bytes()))
    };
    path.match_indices('/').map(|(at, _)| &path[..at]).find(|name| !is_folder(name))
}

/// Returns the entry of the file at a path in a list of entries, if everything above it is a folder.
fn file_on(listed: &[u8], path: &str) -> Result<Option<TreeEntry>, String> {
    let mut file = None;
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()).take(MAX_ENTRIES) {
        let line = String::from_utf8_lossy(line);
        let (head, name) = line.split_once('\t').unwrap_or_default();
        let (mode, id) = (head.split(' ').next().unwrap_or_default(), head.rsplit(' ').next());
        let is_above = path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let kind = match mode {
            "040000" => "a folder",
            "120000" => "a link",
            "160000" => "a submodule",
            _ => "a file",
        };
        match (mode, id) {
            ("040000", _) if is_above => {}
            ("100644" | "100755", Some(id)) if name == path => {
                let mode = if mode == "100755" { "100755" } else { "100644" };
                file = Some(TreeEntry { id: id.into(), mode, path: path.into() });
            }
            _ if is_above || name == path => return Err(format!("{name} is {kind}: choose another path")),
            _ => {}
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_that_is_no_folder_is_found() {
        let listed = b"040000 tree 1\ta\x00100644 blob 2\ta/b\0";
        for (path, expected) in
            [("a", None), ("a/c.yaml", None), ("a/b/c", Some("a/b")), ("x/y/z", Some("x"))]
        {
            assert_eq!(end_of_folders(listed, path), expected, "{path}");
        }
    }

    #[test]
    fn only_a_plain_file_below_folders_is_read() {
        let id = "1".repeat(40);
        let tree = |entries: &[(&str, &str)]| -> Vec<u8> {
            let line = |(mode, name): &(&str, &str)| format!("{mode} x {id}\t{name}\0");
            entries.iter().map(line).collect::<String>().into_bytes()
        };
        let folder = ("040000", "a");
        for (entries, expected) in [
            (vec![], Ok(None)),
            (vec![folder], Ok(None)),
            (vec![folder, ("100644", "a/b.yaml")], Ok(Some("100644"))),
            (vec![folder, ("100755", "a/b.yaml")], Ok(Some("100755"))),
            (vec![folder, ("120000", "a/b.yaml")], Err("a/b.yaml is a link: choose another path")),
            (vec![folder, ("160000", "a/b.yaml")], Err("a/b.yaml is a submodule: choose another path")),
            (vec![folder, ("040000", "a/b.yaml")], Err("a/b.yaml is a folder: choose another path")),
            (vec![("120000", "a")], Err("a is a link: choose another path")),
            (vec![("160000", "a")], Err("a is a submodule: choose another path")),
            (vec![("100644", "a")], Err("a is a file: choose another path")),
        ] {
            let found = file_on(&tree(&entries), "a/b.yaml");
            let found = found.as_ref().map(|file| file.as_ref().map(|file| file.mode));
            assert_eq!(found.map_err(String::as_str), expected, "{entries:?}");
        }
    }
}
