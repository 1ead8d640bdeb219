//! The answers have the form that `/openapi.json` describes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::http::StatusCode;
use serde_json::Value;
use sluice_testkit::json_schema::differences;

use crate::ask;

/// Returns how an answer differs from the description of its path.
pub fn differs_from_description(
    (method, path): (&str, &str),
    status: StatusCode,
    body: &Value,
) -> Vec<String> {
    let document = sluice_web::document();
    let asked: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
    let is_of = |route: &&String| {
        let parts: Vec<&str> = route.split('/').collect();
        parts.len() == asked.len() && parts.iter().zip(&asked).all(|(a, b)| a.starts_with('{') || a == b)
    };
    let routes = document["paths"].as_object().unwrap();
    let route = routes.keys().filter(|route| routes[*route][method].is_object()).find(is_of);
    let Some(route) = route else { return vec!["the path is not described".into()] };
    let kind = if status == StatusCode::OK { "application/json" } else { "application/problem+json" };
    let described = &document["paths"][route][method]["responses"][status.as_str()];
    if status == StatusCode::NO_CONTENT {
        return if described.is_object() { vec![] } else { vec!["204 is not described".into()] };
    }
    let described = &described["content"][kind];
    let mut found = Vec::new();
    differences(&document, &described["schema"], body, route, &mut found);
    if !described.is_object() {
        found.push(format!("no description of {status}"));
    }
    found
}

#[tokio::test]
async fn every_answer_is_described() {
    assert_eq!(sluice_web::document()["openapi"], "3.1.0");
    for (path, token, status) in [
        ("/api/v1/clusters", "admin", StatusCode::OK),
        ("/api/v1/charts", "admin", StatusCode::OK),
        ("/api/v1/images?limit=1", "admin", StatusCode::OK),
        ("/api/v1/trace?kind=Deployment&namespace=shop&name=shop", "admin", StatusCode::OK),
        ("/api/v1/trace?kind=Deployment&namespace=shop&name=shop", "shop-team", StatusCode::OK),
        ("/api/v1/trace?kind=Pod", "admin", StatusCode::BAD_REQUEST),
        ("/api/v1/charts", "stolen", StatusCode::UNAUTHORIZED),
        ("/api/v1/charts", "down", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (found, body) = ask(token, path).await;
        assert_eq!(found, status, "{path}: {body}");
        let differs = differs_from_description(("get", path), status, &body);
        assert!(differs.is_empty(), "{path}: {differs:?}");
    }
}

/// Returns the paths in the tables of a section of docs/api.md. `…/x` is another last part of the path before it.
fn on_page(page: &str, section: &str) -> BTreeSet<String> {
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let rows = text.split("\n## ").next().unwrap().lines().filter_map(|line| line.strip_prefix("| `/"));
    let mut paths = BTreeSet::new();
    for row in rows {
        let cell = row.split('|').next().unwrap();
        let mut before = String::new();
        for part in format!("`/{cell}").split('`').skip(1).step_by(2) {
            let path = match part.strip_prefix('…') {
                Some(last) => format!("{}{last}", before.rsplit_once('/').unwrap().0),
                None => part.to_string(),
            };
            before.clone_from(&path);
            paths.insert(path);
        }
    }
    paths
}

#[test]
fn the_page_about_the_api_has_each_path_that_is_described_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let (page, document) = (fs::read_to_string(page).unwrap(), sluice_web::document());
    for (section, method) in [("Paths to read", "get"), ("Paths to act", "post")] {
        let paths = document["paths"].as_object().unwrap().iter();
        let described = paths.filter(|(_, route)| route[method].is_object());
        let described: BTreeSet<String> = described.map(|(path, _)| path.clone()).collect();
        assert_eq!(on_page(&page, section), described, "docs/api.md, {section}");
    }
}

#[tokio::test]
async fn every_parameter_that_is_described_is_accepted() {
    let document = sluice_web::document();
    // A stream has no end. Its own tests read it.
    let is_stream = |operations: &Value| {
        operations["get"]["responses"]["200"]["content"]["text/event-stream"].is_object()
    };
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths.iter().filter(|(_, operations)| !is_stream(operations)) {
        let parameters = operations["get"]["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            let is = |kind: &str| {
                schema["type"].as_str() == Some(kind)
                    || schema["type"].as_array().is_some_and(|all| all.contains(&kind.into()))
            };
            let value = if is("boolean") {
                "true"
            } else if is("integer") {
                "1"
            } else {
                "fleet/us"
            };
            let (status, body) =
                ask("admin", &format!("{}?{name}={value}", path.replace(['{', '}'], ""))).await;
            let text = body["detail"].as_str().unwrap_or_default();
            assert!(
                status == StatusCode::OK || !text.contains("there is no parameter"),
                "{path} {name}: {body}"
            );
            assert!(parameter["description"].as_str().is_some_and(|text| !text.is_empty()), "{path} {name}");
        }
    }
}
