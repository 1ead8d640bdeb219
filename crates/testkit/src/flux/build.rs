//! Builds the objects of a commit's files like kustomize-controller in simple cases: a folder of manifests, or a
//! kustomization file with `resources`, `namespace` and `images`. An unsupported field is an error: a test must not pass
//! by accident.

use super::checkout::CommitTree;
use serde_json::{Value, json};

/// An error with the reason and message of Flux.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BuildError {
    pub reason: &'static str,
    pub message: String,
}

fn build_failed(message: impl Into<String>) -> BuildError {
    BuildError { reason: "BuildFailed", message: message.into() }
}

/// The fields of a kustomization file that the stand-in ignores.
const IGNORED: [&str; 4] = ["apiVersion", "kind", "metadata", "sortOptions"];

/// The files of a commit, for [`build`].
pub(crate) trait Files {
    fn paths(&self) -> &[String];
    /// Returns the content of a text file.
    fn text(&self, path: &str) -> Option<String>;
}

impl Files for CommitTree {
    fn paths(&self) -> &[String] {
        &self.paths
    }

    fn text(&self, path: &str) -> Option<String> {
        self.read(path)
    }
}

/// Builds the objects of a Kustomization's `spec` from a commit's files.
pub(crate) fn build(files: &dyn Files, spec: &Value) -> Result<Vec<Value>, BuildError> {
    let path = join("", spec["path"].as_str().unwrap_or("./"));
    let inside = |p: &String| path.is_empty() || p.starts_with(&format!("{path}/"));
    if !files.paths().iter().any(inside) {
        let message = format!(
            "kustomization path not found: stat /tmp/kustomization/{path}: no such file or directory"
        );
        return Err(BuildError { reason: "ArtifactFailed", message });
    }
    let mut objects = build_folder(files, &path, &spec["postBuild"]["substitute"], 0)?;
    if let Some(namespace) = spec["targetNamespace"].as_str() {
        set_namespace(&mut objects, namespace);
    }
    set_images(&mut objects, &spec["images"]);
    Ok(objects)
}

fn build_folder(
    files: &dyn Files,
    path: &str,
    variables: &Value,
    depth: u8,
) -> Result<Vec<Value>, BuildError> {
    if depth > 16 {
        return Err(build_failed(format!(
            "the kustomization files of {path} refer to each other in a circle"
        )));
    }
    let names = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    let found = names.iter().find_map(|name| files.text(&join(path, name)));
    let Some(text) = found else { return all_manifests(files, path, variables) };
    let file = parse(&text, &join(path, "kustomization.yaml"))?.into_iter().next().unwrap_or_default();
    let mut objects = Vec::new();
    for (field, value) in file.as_object().into_iter().flatten() {
        match field.as_str() {
            "resources" => {
                for resource in value.as_array().into_iter().flatten() {
                    let target = join(path, resource.as_str().unwrap_or_default());
                    objects.extend(build_resource(files, &target, variables, depth)?);
                }
            }
            "namespace" | "images" => {}
            ignored if IGNORED.contains(&ignored) => {}
            other => {
                return Err(build_failed(format!(
                    "the stand-in for Flux does not support `{other}` in {path}"
                )));
            }
        }
    }
    if let Some(namespace) = file["namespace"].as_str() {
        set_namespace(&mut objects, namespace);
    }
    set_images(&mut objects, &file["images"]);
    Ok(objects)
}

fn build_resource(
    files: &dyn Files,
    target: &str,
    variables: &Value,
    depth: u8,
) -> Result<Vec<Value>, BuildError> {
    if let Some(text) = files.text(target) {
        return parse(&substitute(text, variables), target);
    }
    if files.paths().iter().any(|p| p.starts_with(&format!("{target}/"))) {
        return build_folder(files, target, variables, depth + 1);
    }
    Err(build_failed(format!("accumulating resources from '{target}': no such file or directory")))
}

fn all_manifests(files: &dyn Files, path: &str, variables: &Value) -> Result<Vec<Value>, BuildError> {
    let inside = |p: &&String| path.is_empty() || p.starts_with(&format!("{path}/"));
    let manifest = |p: &&String| p.ends_with(".yaml") || p.ends_with(".yml");
    let mut objects = Vec::new();
    for file in files.paths().iter().filter(inside).filter(manifest) {
        let text = files.text(file).unwrap_or_default();
        objects.extend(parse(&substitute(text, variables), file)?);
    }
    Ok(objects)
}

fn parse(text: &str, path: &str) -> Result<Vec<Value>, BuildError> {
    let prefix = format!("failed to decode Kubernetes YAML from /tmp/kustomization/{path}");
    let objects = crate::parse_yaml(text).map_err(|e| {
        let first = e.to_string().lines().next().unwrap_or_default().to_owned();
        build_failed(format!("{prefix}: MalformedYAMLError: yaml: {first}"))
    })?;
    let has_no_kind = objects.iter().any(|o| o["kind"].is_null());
    if has_no_kind && !path.ends_with("kustomization.yaml") {
        return Err(build_failed(format!("{prefix}: missing Resource metadata")));
    }
    Ok(objects)
}

fn substitute(mut text: String, variables: &Value) -> String {
    for (name, value) in variables.as_object().into_iter().flatten() {
        text = text.replace(&format!("${{{name}}}"), value.as_str().unwrap_or_default());
    }
    text
}

/// Joins a folder and a path, and resolves `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

fn set_namespace(objects: &mut [Value], namespace: &str) {
    let cluster_scoped = ["Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"];
    for object in objects {
        if !cluster_scoped.iter().any(|kind| object["kind"] == *kind) {
            object["metadata"]["namespace"] = json!(namespace);
        }
    }
}

fn set_images(objects: &mut [Value], images: &Value) {
    for image in images.as_array().into_iter().flatten() {
        objects.iter_mut().for_each(|object| set_image(object, image));
    }
}

fn set_image(value: &mut Value, image: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| set_image(item, image)),
        Value::Object(fields) => {
            for (key, field) in fields {
                match field.as_str() {
                    Some(old) if key == "image" => {
                        if let Some(new) = replacement(old, image) {
                            *field = json!(new);
                        }
                    }
                    _ => set_image(field, image),
                }
            }
        }
        _ => {}
    }
}

/// Returns the new image, if the entry of `images` is for this image.
fn replacement(old: &str, image: &Value) -> Option<String> {
    let bare = old.split('@').next().unwrap_or(old);
    let (name, tag) = match bare.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (bare, None),
    };
    if image["name"] != name {
        return None;
    }
    let name = image["newName"].as_str().unwrap_or(name);
    Some(match (image["digest"].as_str(), image["newTag"].as_str().or(tag)) {
        (Some(digest), _) => format!("{name}@{digest}"),
        (None, Some(tag)) => format!("{name}:{tag}"),
        (None, None) => name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct TextFiles(Vec<String>, BTreeMap<String, String>);

    impl Files for TextFiles {
        fn paths(&self) -> &[String] {
            &self.0
        }

        fn text(&self, path: &str) -> Option<String> {
            self.1.get(path).cloned()
        }
    }

    fn texts(files: &[(&str, &str)]) -> TextFiles {
        let map: BTreeMap<String, String> = files.iter().map(|(p, t)| ((*p).into(), (*t).into())).collect();
        TextFiles(map.keys().cloned().collect(), map)
    }

    const POD: &str = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{image: 'r.io:5000/a:1'}]}\n";

    #[test]
    fn all_manifests_of_a_folder_are_built() {
        let files =
            texts(&[("apps/a/x.yaml", POD), ("apps/a/b/y.yml", "kind: A\n---\nkind: B\n"), ("z.yaml", "}")]);
        let kinds = |path| -> Vec<_> {
            let objects = build(&files, &json!({"path": path})).unwrap();
            objects.iter().map(|o| o["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds("./apps/a"), ["A", "B", "Pod"]);
        assert_eq!(kinds("apps/"), ["A", "B", "Pod"]);
    }

    #[test]
    fn a_kustomization_file_names_the_resources() {
        let overlay = "resources: [../base]\nnamespace: team\nimages: [{name: 'r.io:5000/a', newTag: '2'}]\n";
        let files = texts(&[
            ("base/kustomization.yaml", "resources: [pod.yaml]"),
            ("base/pod.yaml", POD),
            ("base/other.yaml", "kind: Other"),
            ("prod/kustomization.yaml", overlay),
        ]);
        let objects = build(&files, &json!({"path": "./prod"})).unwrap();
        assert_eq!(objects.len(), 1);
        assert_eq!(objects[0]["metadata"]["namespace"], "team");
        assert_eq!(objects[0]["spec"]["containers"][0]["image"], "r.io:5000/a:2");
    }

    #[test]
    fn the_kustomization_sets_images_namespace_and_variables() {
        let files = texts(&[("a/x.yaml", &POD.replace("a:1", "a:${v}"))]);
        let spec = json!({"path": "a", "targetNamespace": "t", "postBuild": {"substitute": {"v": "7"}},
            "images": [{"name": "r.io:5000/a", "newName": "b"}]});
        let objects = build(&files, &spec).unwrap();
        assert_eq!(objects[0]["spec"]["containers"][0]["image"], "b:7");
        assert_eq!(objects[0]["metadata"]["namespace"], "t");
    }

    #[test]
    fn build_errors_have_the_reason_and_message_of_flux() {
        let files = texts(&[("a/x.yaml", "a: [b\n"), ("p/kustomization.yaml", "patches: []")]);
        let error = |path| build(&files, &json!({"path": path})).unwrap_err();
        assert_eq!(error("none").reason, "ArtifactFailed");
        assert!(error("a").message.contains("a/x.yaml: MalformedYAMLError"), "{:?}", error("a"));
        assert!(error("p").message.contains("does not support `patches`"));
    }
}
