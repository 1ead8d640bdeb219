//! The chart of a HelmRelease, and the one Deployment that the stand-in applies instead of the chart's objects.

use super::context::StandInContext;
use super::digest::digest;
use anyhow::{Context, Result, anyhow, bail};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A chart with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chart {
    pub name: String,
    pub version: String,
    pub app_version: String,
    /// The digest of the OCI artifact, for a chart from an OCIRepository.
    pub digest: Option<String>,
}

/// The fields of a HelmRelease's `spec` that the stand-in does not support.
const UNSUPPORTED: [&str; 3] = ["releaseName", "targetNamespace", "storageNamespace"];

impl Chart {
    /// Returns the chart of a release.
    pub async fn of(release: &DynamicObject, context: &StandInContext) -> Result<Chart> {
        if let Some(field) = UNSUPPORTED.iter().find(|field| !release.data["spec"][**field].is_null()) {
            bail!("the stand-in for Flux does not support spec.{field}");
        }
        let namespace = release.namespace().unwrap_or_default();
        let (template, reference) =
            (&release.data["spec"]["chart"]["spec"], &release.data["spec"]["chartRef"]);
        if !reference.is_null() {
            return Chart::from_oci(reference, &namespace, context).await;
        }
        let path = template["chart"].as_str().context("spec.chart.spec.chart is missing")?;
        let name = last_part(path);
        if template["sourceRef"]["kind"] == "GitRepository" {
            return Chart::from_git(&name, path, &template["sourceRef"], &namespace, context).await;
        }
        let version = template["version"].as_str().unwrap_or("*");
        if !version.starts_with(|c: char| c.is_ascii_digit()) || version.contains([' ', '*', 'x', '|']) {
            bail!("the stand-in for Flux supports exact versions only, not '{version}'");
        }
        let app_version = without_build(version);
        Ok(Chart { name, version: version.to_owned(), app_version, digest: None })
    }

    async fn from_oci(reference: &Value, namespace: &str, context: &StandInContext) -> Result<Chart> {
        let source =
            context.source(reference, namespace).await?.context("the chart's source does not exist")?;
        let revision = source.data["status"]["artifact"]["revision"].as_str();
        let revision = revision.context("the chart's source has no artifact")?;
        let (tag, digest) = revision.split_once('@').context("the chart's source has no tag")?;
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
        context: &StandInContext,
    ) -> Result<Chart> {
        let source =
            context.source(reference, namespace).await?.context("the chart's source does not exist")?;
        let revision = source.data["status"]["artifact"]["revision"].as_str();
        let sha =
            revision.and_then(|r| r.rsplit_once("sha1:")).context("the chart's source has no artifact")?;
        let url = source.data["spec"]["url"].as_str().unwrap_or_default().to_owned();
        let credentials = context.credentials(&source).await?;
        let (checkouts, sha) = (context.checkouts.clone(), sha.1.to_owned());
        let file = format!("{}/Chart.yaml", path.trim_start_matches("./").trim_end_matches('/'));
        let path = file.clone();
        let read = move || anyhow::Ok(checkouts.tree(&url, &sha, credentials.as_ref())?.read(&path));
        let text = tokio::task::spawn_blocking(read).await??;
        let text = text.ok_or_else(|| anyhow!("{file}: no such file or directory"))?;
        let chart = crate::parse_yaml(&text)?.into_iter().next().unwrap_or_default();
        let version = chart["version"].as_str().context("Chart.yaml has no version")?.to_owned();
        let app_version = chart["appVersion"].as_str().unwrap_or(&version).to_owned();
        let name = chart["name"].as_str().unwrap_or(name).to_owned();
        Ok(Chart { name, version, app_version, digest: None })
    }
}

/// Returns a version without its build metadata, which begins with a plus.
pub(crate) fn without_build(version: &str) -> String {
    version.split('+').next().unwrap_or(version).to_owned()
}

fn last_part(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned()
}

/// Returns the digest of a release's values, in Flux's format.
pub(crate) fn config_digest(release: &DynamicObject) -> String {
    let values = &release.data["spec"]["values"];
    digest(if values.is_null() { String::new() } else { values.to_string() }.as_bytes())
}

/// Returns the Deployment of a release. Its tag is the value `image.tag`, by default the chart's `appVersion`.
pub(crate) fn workload(release: &DynamicObject, chart: &Chart) -> Value {
    let values = &release.data["spec"]["values"];
    let name = release.name_any();
    let tag = values["image"]["tag"].as_str().unwrap_or(&chart.app_version);
    let selector = json!({"app.kubernetes.io/name": name});
    let containers = json!([{"name": chart.name, "image": format!("ghcr.io/stefanprodan/podinfo:{tag}")}]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": release.namespace(),
            "labels": {
                "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/name": name,
                "helm.toolkit.fluxcd.io/name": release.name_any(),
                "helm.toolkit.fluxcd.io/namespace": release.namespace(),
            },
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": {"containers": containers}},
        },
    })
}
