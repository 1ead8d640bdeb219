//! The settings of change requests that each forge supports. The API server refuses the others with a message that says
//! what to write.

use serde_json::{Value, json};

use crate::hub::validate;

/// Returns a pipeline with change requests on a forge, with these settings.
fn pipeline(forge: &str, settings: &Value) -> Value {
    let environment = |name: &str| json!({"name": name, "targets": [{"namespace": "apps"}]});
    let mut request = json!({"type": forge, "url": "https://host/a/b", "secretRef": {"name": "s"}});
    request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {
            "environments": [environment("dev"), environment("prod")],
            "promotion": {"strategy": {"pull-request": request}},
        },
    })
}

/// Asserts that each row is refused with its message, or accepted if the message is empty.
async fn judged(rows: &[(&str, Value, &str)]) {
    for (forge, settings, sentence) in rows {
        match validate(&pipeline(forge, settings)).await {
            Ok(_) => assert!(sentence.is_empty(), "{forge}: {settings} was let through"),
            Err(error) => {
                assert!(!sentence.is_empty() && error.contains(sentence), "{forge}: {settings}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn labels_and_people_are_allowed_only_for_forges_that_have_them() {
    let no_labels = "Bitbucket has no labels on pull requests: remove labels";
    let no_assignees = "have no assignees on pull requests: remove assignees, and name reviewers";
    let (uuid, guid) = ("{504c3b62-8120-4f0c-a7bc-87800b9d6f70}", "d6245f20-2af8-44f4-9451-8107cb2767db");
    let mut rows = vec![
        ("bitbucket", json!({"labels": ["a"]}), no_labels),
        ("bitbucket-server", json!({"labels": ["a"]}), no_labels),
        ("bitbucket", json!({"assignees": [uuid]}), no_assignees),
        ("bitbucket-server", json!({"assignees": ["jane"]}), no_assignees),
        ("azure-devops", json!({"assignees": [guid]}), no_assignees),
        ("azure-devops", json!({"labels": ["a"], "reviewers": [guid]}), ""),
        (
            "azure-devops",
            json!({"reviewers": ["jane"]}),
            "the id of their identity: write one such as d6245f20",
        ),
        ("bitbucket", json!({"reviewers": [uuid, "557058:ba8948b2-49da-43a9-9e8b-e7249b8e324a"]}), ""),
        (
            "bitbucket",
            json!({"reviewers": ["jane"]}),
            "Bitbucket Cloud identifies reviewers by uuid or account id",
        ),
        ("bitbucket-server", json!({"reviewers": ["jane"], "draft": true}), ""),
        ("github", json!({"labels": ["a, b"]}), "a label is one line without a comma"),
        ("github", json!({"labels": [""]}), "should be at least 1 chars long"),
        ("github", json!({"reviewers": ["@jane"]}), "reviewers are names of accounts, without @ and blanks"),
        (
            "github",
            json!({"assignees": ["jane doe"]}),
            "assignees are names of accounts, without @ and blanks",
        ),
        ("github", json!({"reviewers": ["acme/platform", "jane"]}), ""),
    ];
    for forge in ["github", "gitlab", "gitea", "forgejo"] {
        rows.push((forge, json!({"labels": ["a b"], "assignees": ["jane"], "draft": true}), ""));
    }
    judged(&rows).await;
}

#[tokio::test]
async fn texts_may_have_only_known_placeholders() {
    let apart = "write for example deploy/{namespace}/{pipeline}/{environment}";
    judged(&[
        (
            "github",
            json!({"title": "{pipeline} {revision} {{x}}", "body": "{usual}\n{changes} {evidence}"}),
            "",
        ),
        ("github", json!({"title": "{version}"}), "title may have {namespace}, {pipeline}"),
        ("github", json!({"title": "{changes}"}), "title may have {namespace}, {pipeline}"),
        ("github", json!({"title": ""}), "should be at least 1 chars long"),
        ("github", json!({"body": "{% for %}"}), "body may have {namespace}, {pipeline}"),
        ("github", json!({"branch": "{namespace}/{pipeline}/{environment}"}), ""),
        ("github", json!({"branch": "a/b-c/{namespace}/{pipeline}/{environment}"}), ""),
        ("github", json!({"branch": "promotion-{namespace}-{pipeline}-{environment}"}), ""),
        ("github", json!({"branch": "deploy/{environment}"}), apart),
        ("github", json!({"branch": "a/{namespace}/{pipeline}/{environment}/b"}), apart),
        ("github", json!({"branch": "../{namespace}/{pipeline}/{environment}"}), apart),
        ("github", json!({"branch": "a.lock/{namespace}/{pipeline}/{environment}"}), apart),
    ])
    .await;
}

#[tokio::test]
async fn the_address_of_an_api_is_a_plain_web_address() {
    let wrong = "apiURL is the address of the forge's API, without user, query and fragment";
    let mut rows = vec![
        ("gitea", json!({"apiURL": "https://git.example.com:8443/api/v1"}), ""),
        ("github", json!({"apiURL": "http://[::1]:3000/api/v3/"}), ""),
    ];
    for text in [
        "ssh://git.example.com/api",
        "git.example.com/api",
        "https://",
        "https://me:secret@git.example.com/api",
        "https://git.example.com/api?x=1",
        "https://git.example.com/api#x",
        "https://git.example.com/a b",
    ] {
        rows.push(("gitea", json!({"apiURL": text}), wrong));
    }
    judged(&rows).await;
}

#[tokio::test]
async fn drafts_are_not_merged_and_queues_need_a_forge_with_one() {
    let no_queue = "only GitHub, GitLab and Bitbucket Cloud have a merge queue: write merge: WhenGreen";
    let mut rows = vec![
        ("github", json!({"merge": "Always"}), "supported values: \"Never\", \"WhenGreen\", \"Queue\""),
        ("github", json!({"merge": "WhenGreen", "draft": true}), "a draft is not merged: remove draft"),
        ("gitlab", json!({"merge": "Queue", "draft": true}), "a draft is not merged: remove draft"),
        ("github", json!({"merge": "Never", "draft": true, "deleteBranch": true}), ""),
    ];
    for forge in ["github", "gitlab", "gitea", "forgejo", "bitbucket", "bitbucket-server", "azure-devops"] {
        let queue = if matches!(forge, "github" | "gitlab" | "bitbucket") { "" } else { no_queue };
        rows.push((forge, json!({"merge": "Queue"}), queue));
        rows.push((forge, json!({"merge": "WhenGreen", "draft": false, "deleteBranch": true}), ""));
    }
    judged(&rows).await;
}
