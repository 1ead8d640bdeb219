//! Finds circles of files in a crate or a binary of tests: files that import each other, directly or through others.
//!
//! The imports of a file are the paths of its `use` declarations and the paths in its code that begin with `crate::`,
//! `super::` or `self::`, without its tests. A path leads to the file that defines the item: re-exports are followed.
//! The declaration `mod x;` is no import.

use std::collections::{BTreeMap, BTreeSet};

/// The imports of one file: the imported files, each with the names of the items.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// A circle of files, with the imports that close it.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle {
    /// The files, sorted.
    pub files: Vec<String>,
    /// The imports between them, as `from -> to (names)`.
    pub edges: Vec<String>,
}

/// Returns the circles of a crate. `files` are the paths below its `src` folder, with their texts.
pub fn circles(files: &[(String, String)]) -> Vec<Circle> {
    let sources = Sources::new(files);
    let imports: BTreeMap<&str, Imports> =
        sources.files.iter().map(|file| (file.path.as_str(), sources.imports_of(file))).collect();
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|path| (*path, reachable_from(path, &imports))).collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, reached) in &reachable {
        if !reached.contains(path) || !seen.insert(*path) {
            continue;
        }
        let files: Vec<&str> =
            reached.iter().copied().filter(|other| reachable[other].contains(path)).collect();
        seen.extend(&files);
        found.push(circle(&files, &imports));
    }
    found
}

fn circle(files: &[&str], imports: &BTreeMap<&str, Imports>) -> Circle {
    let mut edges = Vec::new();
    for from in files {
        for (to, names) in imports[from].iter().filter(|(to, _)| files.contains(&to.as_str())) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            edges.push(format!("{from} -> {to} ({})", names.join(", ")));
        }
    }
    Circle { files: files.iter().map(|file| (*file).to_owned()).collect(), edges }
}

fn reachable_from<'a>(start: &str, imports: &'a BTreeMap<&str, Imports>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut to_visit = vec![start];
    while let Some(path) = to_visit.pop() {
        for next in imports[path].keys() {
            if reached.insert(next.as_str()) {
                to_visit.push(next);
            }
        }
    }
    reached
}

/// A source file, with the parts from which its imports are computed.
struct File {
    path: String,
    /// The path of the file's module. The first part names the root: `crate`, or `bin` and the name of a binary.
    module: Vec<String>,
    /// The code without comments, string literals and tests.
    code: String,
    uses: Vec<Use>,
}

/// One imported path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    path: Vec<String>,
    /// The name that the import gives to the item.
    name: String,
}

struct Sources {
    files: Vec<File>,
    by_module: BTreeMap<Vec<String>, usize>,
}

impl Sources {
    fn new(files: &[(String, String)]) -> Sources {
        let mut test_modules = BTreeSet::new();
        let mut parsed = Vec::new();
        for (path, text) in files {
            let module = module_of(path);
            let (code, tests) = without_tests(&without_comments_and_literals(text));
            let test_module = |name: String| module.iter().cloned().chain([name]).collect::<Vec<_>>();
            test_modules.extend(tests.into_iter().map(test_module));
            let uses = uses_in(&code);
            parsed.push(File { path: path.clone(), module, code, uses });
        }
        let is_in_test = |module: &[String]| (1..=module.len()).any(|n| test_modules.contains(&module[..n]));
        parsed.retain(|file| !is_in_test(&file.module));
        let by_module = parsed.iter().enumerate().map(|(at, file)| (file.module.clone(), at)).collect();
        Sources { files: parsed, by_module }
    }

    fn imports_of(&self, file: &File) -> Imports {
        let mut imports = Imports::new();
        for path in file.uses.iter().map(|one| one.path.clone()).chain(inline_paths(&file.code)) {
            let Some(target) = self.resolve(&file.module, &path, 0) else { continue };
            if self.files[target].path != file.path {
                let name = path.last().cloned().unwrap_or_default();
                imports.entry(self.files[target].path.clone()).or_default().insert(name);
            }
        }
        imports
    }

    /// Returns the index of the file that defines the item of a path, which is used in the module `from`. Returns
    /// `None` for an item of another crate.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<usize> {
        let mut module = from.to_vec();
        let mut rest = path.iter().peekable();
        match path.first()?.as_str() {
            "crate" => module.truncate(1),
            "self" => {}
            "super" => drop(module.pop()),
            child => {
                module.push(child.to_owned());
                if !self.by_module.contains_key(&module) {
                    return None;
                }
            }
        }
        rest.next();
        while rest.next_if(|part| *part == "super").is_some() {
            module.pop();
        }
        while let Some(part) = rest.peek() {
            module.push((*part).clone());
            if !self.by_module.contains_key(&module) {
                module.pop();
                break;
            }
            rest.next();
        }
        let at = *self.by_module.get(&module)?;
        match rest.next() {
            // A module in another folder, which `#[path]` names.
            Some(item) if declares_module(&self.files[at].code, item) => None,
            Some(item) if depth < 8 => Some(self.definition(at, item, depth).unwrap_or(at)),
            _ => Some(at),
        }
    }

    /// Returns the index of the file that defines an item of a module: the file of the module, or the file to which a
    /// re-export leads.
    fn definition(&self, at: usize, item: &str, depth: usize) -> Option<usize> {
        let file = &self.files[at];
        if defines(&file.code, item) {
            return Some(at);
        }
        if let Some(one) = file.uses.iter().find(|one| one.name == item) {
            return self.resolve(&file.module, &one.path, depth + 1);
        }
        let globs = file.uses.iter().filter(|one| one.name == "*");
        let mut modules =
            globs.filter_map(|one| self.resolve(&file.module, &one.path[..one.path.len() - 1], depth + 1));
        modules.find_map(|module| (depth < 8).then(|| self.definition(module, item, depth + 1)).flatten())
    }
}

/// Returns the path of a file's module.
fn module_of(path: &str) -> Vec<String> {
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let mut module = vec!["crate".to_owned()];
    if parts.first() == Some(&"bin") && parts.len() > 1 {
        module = vec![format!("bin {}", parts[1])];
        parts.drain(..2);
    }
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    module.extend(parts.into_iter().map(str::to_owned));
    module
}

/// Returns the code with one space in place of each comment, string literal and character literal.
fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !code.ends_with(is_word) => raw_string_length(rest).unwrap_or(0),
            '"' => literal_length(rest, '"'),
            '\'' if is_character_literal(rest) => literal_length(rest, '\''),
            _ => 0,
        };
        if length == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[length..];
        }
    }
    code
}

/// Returns the length of a raw string literal, such as `r#"…"#`.
fn raw_string_length(rest: &str) -> Option<usize> {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    let begin = 1 + hashes;
    rest[begin..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(begin + 1 + rest[begin + 1..].find(&end)? + end.len())
}

/// Returns the length of a literal that begins and ends with `quote`.
fn literal_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns true for a character literal, and false for a lifetime.
fn is_character_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

/// Returns the code without the items that `#[cfg(test)]` marks, and the names of the test modules in other files.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut rest = code;
    while let Some((before, marked)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let (item, after) = marked.split_at(item_length(marked));
        if let Some(name) = item.trim().trim_start_matches("pub ").strip_prefix("mod ") {
            modules.extend(name.strip_suffix(';').map(|name| name.trim().to_owned()));
        }
        rest = after;
    }
    kept.push_str(rest);
    (kept, modules)
}

/// Returns the length of the item at the beginning of the code: to its first `;` or to the end of its block.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns true if the code declares a module of this name that is in another file.
fn declares_module(code: &str, name: &str) -> bool {
    let end = format!("mod {name};");
    code.match_indices(&end).any(|(at, _)| !code[..at].ends_with(is_word))
}

/// Returns true if the code defines an item of this name.
fn defines(code: &str, item: &str) -> bool {
    const KINDS: [&str; 10] =
        ["struct", "enum", "fn", "trait", "const", "static", "type", "union", "mod", "macro_rules!"];
    code.match_indices(item).any(|(at, _)| {
        let before = &code[..at];
        let after = code[at + item.len()..].chars().next();
        let keyword = before.trim_end().rsplit(|c: char| c.is_whitespace() || c == '(').next();
        before.ends_with(char::is_whitespace)
            && !after.is_some_and(is_word)
            && keyword.is_some_and(|word| KINDS.contains(&word))
    })
}

/// Returns the imports of all `use` declarations.
fn uses_in(code: &str) -> Vec<Use> {
    let mut uses = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let is_declaration = !code[..at].ends_with(is_word);
        let Some(end) = code[at..].find(';').filter(|_| is_declaration) else { continue };
        expand(&code[at + 4..at + end], &[], &mut uses);
    }
    uses
}

/// Adds the imports of a tree such as `a::{b, c::{self, d as e}}`.
fn expand(tree: &str, prefix: &[String], uses: &mut Vec<Use>) {
    let tree = tree.trim();
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, Some(group.trim_end().trim_end_matches('}'))),
        None => (tree, None),
    };
    let (path, alias) =
        path.split_once(" as ").map_or((path, None), |(path, name)| (path, Some(name.trim())));
    let parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned);
    let mut full_path: Vec<String> = prefix.iter().cloned().chain(parts).collect();
    if let Some(group) = group {
        return split_group(group).into_iter().for_each(|tree| expand(tree, &full_path, uses));
    }
    if full_path.len() > 1 && full_path.last().is_some_and(|last| last == "self") {
        full_path.pop();
    }
    if let Some(last) = full_path.last() {
        let name = alias.unwrap_or(last).to_owned();
        uses.push(Use { path: full_path, name });
    }
}

/// Splits a group at the commas that are not in an inner group.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Returns the paths in code that begin with `crate::`, `super::` or `self::`. Paths directly after `use` are left
/// out.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root).filter(|(at, _)| !code[..*at].ends_with([':', '_'])) {
            let is_use = code[..at].trim_end().ends_with("use");
            let is_word_before = code[..at].ends_with(is_word);
            let end = code[at..].find(|c: char| !is_word(c) && c != ':').unwrap_or(code.len() - at);
            let path: Vec<String> =
                code[at..at + end].split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect();
            if !is_use && !is_word_before && path.len() > 1 {
                paths.push(path);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Circle> {
        let files: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        circles(&files)
    }

    #[test]
    fn a_circle_is_found_with_its_edges() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("a.rs", "use crate::b::{self, B};\npub struct A;"),
            ("b.rs", "pub struct B;\nfn f() { crate::c::g(); }"),
            ("c.rs", "use super::A;\npub fn g() {}"),
        ];
        let circle = Circle {
            files: ["a.rs", "b.rs", "c.rs"].map(String::from).to_vec(),
            edges: ["a.rs -> b.rs (B, b)", "b.rs -> c.rs (g)", "c.rs -> a.rs (A)"].map(String::from).to_vec(),
        };
        assert_eq!(found(&files), [circle]);
    }

    #[test]
    fn a_parent_and_a_child_that_import_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\nuse self::b::B;\npub struct A;"),
            ("a/b.rs", "use super::A;\npub struct B;"),
        ];
        let circles = found(&files);
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].files, ["a/b.rs", "a/mod.rs"]);
    }

    #[test]
    fn reexports_module_declarations_comments_and_tests_close_no_circle() {
        let files = [
            ("lib.rs", "pub mod a;\npub mod b;\n#[cfg(test)]\nmod tests;\npub use b::*;"),
            ("a/mod.rs", "mod x;\nmod y;\npub use x::X as Renamed;\npub(crate) use y::Y;"),
            ("a/x.rs", "pub struct X;"),
            (
                "a/y.rs",
                "use super::Renamed;\n// use crate::b::B;\nconst T: &str = \"crate::b::B\";\npub struct Y;",
            ),
            (
                "b.rs",
                "use crate::a::{Y, Renamed};\npub struct B;\n#[cfg(test)]\nmod t { use crate::tests::T; }",
            ),
            ("tests/mod.rs", "mod t;\nuse crate::B;\npub struct T;"),
            ("tests/t.rs", "use super::T;\nuse crate::a::Y;"),
            ("c.rs", "use crate::B;\nuse std::fmt::{self, Write};"),
        ];
        assert_eq!(found(&files), []);
    }

    #[test]
    fn a_module_in_another_folder_closes_no_circle() {
        let files = [
            ("main.rs", "#[path = \"../support/place.rs\"]\nmod place;\nmod a;\nuse a::A;"),
            ("a.rs", "use crate::place::Place;\npub struct A;"),
        ];
        assert_eq!(found(&files), []);
    }

    #[test]
    fn a_binary_has_its_own_root() {
        let files = [
            ("lib.rs", "pub mod x;"),
            ("x.rs", "pub struct X;"),
            ("bin/demo/main.rs", "mod x;\nuse x::X;"),
            ("bin/demo/x.rs", "use crate::X;\npub struct X;"),
        ];
        assert_eq!(found(&files), []);
    }
}
