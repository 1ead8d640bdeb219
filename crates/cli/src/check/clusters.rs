//! Reads the GitopsClusters that pipelines name, those of the checked namespaces, and their kubeconfigs.

use std::collections::BTreeMap;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::config::{Config, KubeConfigOptions, Kubeconfig as KubeKubeconfig};
use kube::{Api, Client, ResourceExt};
use sluice_api::GitopsCluster;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_api::kubeconfig_key::{MAX_KUBECONFIG_BYTES, kubeconfig_value};
use sluice_api::pipeline::Pipeline;
use sluice_view::check::Reading;
use sluice_view::check::clusters::{Kubeconfig, NamedCluster, named};
use sluice_view::object_name::ObjectName;

use super::read::{each, fact, get};

/// Reads the clusters. `namespace` is the checked one; `None` for all.
pub(super) async fn read(
    client: &Client,
    namespace: Option<&str>,
    pipelines: &[Pipeline],
) -> kube::Result<Vec<NamedCluster>> {
    let mut wanted = named(pipelines);
    let mut found = BTreeMap::new();
    let resource = gitops_cluster_resource();
    let all: Api<GitopsCluster> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    // Without the right to list them, each cluster that a pipeline names is read.
    let listed = fact(all.list(&ListParams::default()).await, String::new)?;
    for cluster in listed.known().into_iter().flat_map(|list| &list.items) {
        let key = ObjectName { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() };
        found.insert(key.clone(), cluster.spec.kubeconfig_secret());
        wanted.entry(key).or_default();
    }
    each(wanted, |(key, pipelines)| one(client, key.clone(), pipelines, found.get(&key).cloned())).await
}

async fn one(
    client: &Client,
    ObjectName { namespace, name }: ObjectName,
    pipelines: Vec<String>,
    listed: Option<Option<String>>,
) -> kube::Result<NamedCluster> {
    let secret = match listed {
        Some(secret) => Reading::Known(secret),
        None => {
            let resource = gitops_cluster_resource();
            let api: Api<GitopsCluster> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let right = format!("get on gitopsclusters.gitops.weave.works in namespace {namespace}");
            get(&api, &name, &right).await?.map(|cluster| cluster.spec.kubeconfig_secret())
        }
    };
    let kubeconfig = match secret.known().cloned().flatten() {
        None => Reading::Absent,
        Some(secret) => {
            let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
            let right = format!("get on secrets in namespace {namespace}");
            get(&api, &secret, &right).await?.map(kubeconfig)
        }
    };
    Ok(NamedCluster { namespace, name, pipelines, secret: Some(secret), kubeconfig })
}

/// Returns what matters about the kubeconfig in a Secret. Errors of the parser are not shown: they quote the text.
fn kubeconfig(secret: Secret) -> Kubeconfig {
    let data = secret.data.unwrap_or_default();
    let value = kubeconfig_value(|key| data.get(key).map(|value| value.0.as_slice()));
    let Some(value) = value else { return Kubeconfig::NoKey };
    if value.len() > MAX_KUBECONFIG_BYTES {
        return Kubeconfig::Unreadable(format!("it has more than {} KiB", MAX_KUBECONFIG_BYTES >> 10));
    }
    let text = std::str::from_utf8(value).ok();
    let Some(read) = text.and_then(|text| KubeKubeconfig::from_yaml(text).ok()) else {
        return Kubeconfig::Unreadable("it is not the YAML of a kubeconfig".into());
    };
    let refused = refused(&read);
    let program = program(&read);
    // Files that the kubeconfig names are not read.
    if refused.is_some() {
        return Kubeconfig::Read { server: String::new(), refused, program };
    }
    match Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).now_or_never() {
        Some(Ok(config)) => Kubeconfig::Read { server: config.cluster_url.to_string(), refused, program },
        Some(Err(error)) => Kubeconfig::Unreadable(error.to_string()),
        None => Kubeconfig::Unreadable("its current context cannot be read".into()),
    }
}

/// Returns the first thing that the controller refuses, whatever its flags.
fn refused(kubeconfig: &KubeKubeconfig) -> Option<String> {
    let file = |path: &Option<String>| path.as_ref().map(|path| format!("names the file {path}"));
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    let of_cluster = clusters.filter_map(|cluster| {
        let is_https = cluster.server.as_ref().is_none_or(|s| s.to_ascii_lowercase().starts_with("https://"));
        let has_proxy = cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty());
        file(&cluster.certificate_authority)
            .or_else(|| (!is_https).then(|| "has a server that is not https".into()))
            .or_else(|| {
                let is_unverified = cluster.insecure_skip_tls_verify == Some(true);
                is_unverified.then(|| "has insecure-skip-tls-verify".into())
            })
            .or_else(|| has_proxy.then(|| "has a proxy-url".into()))
    });
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let of_user = users.filter_map(|user| {
        file(&user.client_certificate).or_else(|| file(&user.client_key)).or_else(|| file(&user.token_file))
    });
    of_cluster.chain(of_user).next()
}

/// Returns the program that a kubeconfig runs for its credentials.
fn program(kubeconfig: &KubeKubeconfig) -> Option<String> {
    let mut users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    users.find_map(|user| {
        let exec = user.exec.as_ref().map(|exec| exec.command.clone().unwrap_or_default());
        exec.or_else(|| user.auth_provider.as_ref().map(|provider| provider.name.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cluster: &str, user: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        );
        secret("value", &text)
    }

    fn secret(key: &str, text: &str) -> Kubeconfig {
        let value = k8s_openapi::ByteString(text.as_bytes().to_vec());
        kubeconfig(Secret { data: Some([(key.to_owned(), value)].into()), ..Secret::default() })
    }

    #[test]
    fn kubeconfigs_that_the_controller_refuses_are_found() {
        let https = "server: 'https://eu.example.com:6443'";
        let Kubeconfig::Read { server, refused: None, program: None } = of(https, "token: t") else {
            panic!()
        };
        assert_eq!(server, "https://eu.example.com:6443/");
        for (cluster, user, expected) in [
            ("server: 'http://eu.example.com'", "token: t", "has a server that is not https"),
            ("server: 'https://e', certificate-authority: /ca.crt", "token: t", "names the file /ca.crt"),
            (
                "server: 'https://e', insecure-skip-tls-verify: true",
                "token: t",
                "has insecure-skip-tls-verify",
            ),
            ("server: 'https://e', proxy-url: 'http://p'", "token: t", "has a proxy-url"),
            (https, "tokenFile: /token", "names the file /token"),
        ] {
            let Kubeconfig::Read { refused, .. } = of(cluster, user) else { panic!("{cluster} {user}") };
            assert_eq!(refused.as_deref(), Some(expected));
        }
        let exec = of(
            https,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}",
        );
        assert!(matches!(exec, Kubeconfig::Read { program: Some(program), .. } if program == "aws"));
    }

    #[test]
    fn an_unreadable_kubeconfig_is_not_quoted() {
        assert_eq!(secret("other", "x"), Kubeconfig::NoKey);
        assert_eq!(secret("value", "  \n"), Kubeconfig::NoKey);
        let large = format!("token: secret # {}", "x".repeat(MAX_KUBECONFIG_BYTES));
        assert_eq!(secret("value", &large), Kubeconfig::Unreadable("it has more than 64 KiB".into()));
        for text in ["token: [secret", "current-context: nowhere\nusers: []\nclusters: []\ncontexts: []\n"] {
            let Kubeconfig::Unreadable(why) = secret("value", text) else { panic!("{text}") };
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
