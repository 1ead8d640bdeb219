//! Which chart a HelmRelease asks for, and the one Deployment that stands for all it would make.

use super::history::digest;
use super::world::World;
use anyhow::{Context, Result, anyhow, bail};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A chart at a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chart {
    pub name: String,
    pub version: String,
    pub app_version: String,
    /// The digest of the OCI artifact that it comes from.
    pub digest: Option<String>,
}

impl Chart {
    /// The chart that a release asks for now.
    pub async fn of(release: &DynamicObject, world: &World) -> Result<Chart> {
        let namespace = release.namespace().unwrap_or_default();
        let (template, reference) =
            (&release.data["spec"]["chart"]["spec"], &release.data["spec"]["chartRef"]);
        if !reference.is_null() {
            return Chart::from_oci(reference, &namespace, world).await;
        }
        let path = template["chart"].as_str().context("spec.chart.spec.chart is missing")?;
        let name = last_part(path);
        if template["sourceRef"]["kind"] == "GitRepository" {
            return Chart::from_git(&name, path, &template["sourceRef"], &namespace, world).await;
        }
        let version = template["version"].as_str().unwrap_or("*");
        if !version.starts_with(|c: char| c.is_ascii_digit()) || version.contains([' ', '*', 'x', '|']) {
            bail!("the stand-in for Flux needs an exact version, not '{version}'");
        }
        let app_version = without_build(version);
        Ok(Chart { name, version: version.to_owned(), app_version, digest: None })
    }

    async fn from_oci(reference: &Value, namespace: &str, world: &World) -> Result<Chart> {
        let source = world.source(reference, namespace).await?.context("the chart's source is not there")?;
        let revision = source.data["status"]["artifact"]["revision"].as_str();
        let revision = revision.context("the chart's source has no artifact")?;
        let (tag, digest) = revision.split_once('@').context("the chart's source has a digest and no tag")?;
        let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
        let url = source.data["spec"]["url"].as_str().unwrap_or_default();
        Ok(Chart {
            name: last_part(url),
            version: format!("{tag}+{short}"),
            app_version: tag.to_owned(),
            digest: Some(digest.to_owned()),
        })
    }

    async fn from_git(
        name: &str,
        path: &str,
        reference: &Value,
        namespace: &str,
        world: &World,
    ) -> Result<Chart> {
        let source = world.source(reference, namespace).await?.context("the chart's source is not there")?;
        let revision = source.data["status"]["artifact"]["revision"].as_str();
        let sha =
            revision.and_then(|r| r.rsplit_once("sha1:")).context("the chart's source has no artifact")?;
        let url = source.data["spec"]["url"].as_str().unwrap_or_default().to_owned();
        let who = world.credentials(&source).await?;
        let (checkouts, sha) = (world.checkouts.clone(), sha.1.to_owned());
        let file = format!("{}/Chart.yaml", path.trim_start_matches("./").trim_end_matches('/'));
        let wanted = file.clone();
        let read = move || anyhow::Ok(checkouts.tree(&url, &sha, who.as_ref())?.read(&wanted));
        let text = tokio::task::spawn_blocking(read).await??;
        let text = text.ok_or_else(|| anyhow!("{file}: no such file or directory"))?;
        let chart = crate::parse_yaml(&text)?.into_iter().next().unwrap_or_default();
        let version = chart["version"].as_str().context("Chart.yaml has no version")?.to_owned();
        let app_version = chart["appVersion"].as_str().unwrap_or(&version).to_owned();
        let name = chart["name"].as_str().unwrap_or(name).to_owned();
        Ok(Chart { name, version, app_version, digest: None })
    }
}

/// A version without what comes after the plus.
pub(crate) fn without_build(version: &str) -> String {
    version.split('+').next().unwrap_or(version).to_owned()
}

fn last_part(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned()
}

/// The digest of a release's values, as Flux prints it.
pub(crate) fn config_digest(release: &DynamicObject) -> String {
    let values = &release.data["spec"]["values"];
    digest(if values.is_null() { String::new() } else { values.to_string() }.as_bytes())
}

/// The name that Helm knows a release by.
pub(crate) fn release_name(release: &DynamicObject) -> String {
    let spec = &release.data["spec"];
    match (spec["releaseName"].as_str(), spec["targetNamespace"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(target)) => format!("{target}-{}", release.name_any()),
        (None, None) => release.name_any(),
    }
}

/// Where a release's objects go.
pub(crate) fn release_namespace(release: &DynamicObject) -> String {
    let target = release.data["spec"]["targetNamespace"].as_str().map(str::to_owned);
    target.or_else(|| release.namespace()).unwrap_or_default()
}

/// The Deployment that a release makes. Its image follows the values that charts usually have.
pub(crate) fn workload(release: &DynamicObject, chart: &Chart) -> Value {
    let values = &release.data["spec"]["values"];
    let name = release_name(release);
    let repository = values["image"]["repository"].as_str().unwrap_or("ghcr.io/stefanprodan/podinfo");
    let tag = match &values["image"]["tag"] {
        Value::String(tag) => tag.clone(),
        Value::Null => chart.app_version.clone(),
        other => other.to_string(),
    };
    let selector = json!({"app.kubernetes.io/name": name});
    let containers = json!([{"name": chart.name, "image": format!("{repository}:{tag}")}]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": release_namespace(release),
            "labels": {
                "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/name": name,
                "helm.toolkit.fluxcd.io/name": release.name_any(),
                "helm.toolkit.fluxcd.io/namespace": release.namespace(),
            },
        },
        "spec": {
            "replicas": values["replicaCount"].as_i64().unwrap_or(1),
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {"containers": containers}},
        },
    })
}
