//! Completion of names from the cluster, by the protocol of each shell's script, and in bash.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::Pipeline;

use sluice_testkit::{ControlPlane, Scratch, WAIT_TIMEOUT, eventually};

/// How long names may be missing. Completion gives up after 2 s without a message, and the API server of a busy
/// machine may need longer.
const COMPLETION_WAIT: Duration = WAIT_TIMEOUT;

/// Runs the program as the completion script of a shell does, with the words of a command line. The last word is
/// completed.
fn complete(shell: &str, kubeconfig: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command
        .env("SLUICE_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .env("KUBECONFIG", kubeconfig)
        .arg("--")
        .args(words);
    Ok(command.output()?)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const PIPELINE: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: apps}
spec:
  environments:
  - {name: dev, targets: [{namespace: a}]}
  - {name: prod, targets: [{namespace: b}]}
";

const CLUSTER: &str = "
apiVersion: gitops.weave.works/v1alpha1
kind: GitopsCluster
metadata: {name: eu, namespace: fleet}
spec: {secretRef: {name: eu-kubeconfig}}
";

/// Reports what runs in dev, as the controller does.
async fn report_dev(client: &kube::Client) -> Result<()> {
    let workload = |kind: &str| json!({"kind": kind, "name": "podinfo", "health": "Ready"});
    let target = json!({"name": "a", "namespace": "a", "health": "Ready", "ready": true,
        "workloads": [workload("HelmRelease"), workload("Deployment")]});
    let status = json!({"status": {"environments": {"dev": {"health": "Ready", "targets": [target]}}}});
    let api: Api<Pipeline> = Api::namespaced(client.clone(), "apps");
    api.patch_status("podinfo", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test]
async fn names_are_completed_from_the_cluster() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let hub = plane.cluster("hub").await?;
    hub.install_sluice_crds().await?;
    hub.namespace("apps").await?;
    hub.apply_yaml(PIPELINE).await?;
    hub.apply_yaml(&PIPELINE.replace("name: podinfo", "name: payments").replace("prod", "live")).await?;
    report_dev(&hub.client().await?).await?;
    hub.install_flux_crds().await?;
    hub.namespace("fleet").await?;
    hub.apply_yaml(CLUSTER).await?;
    let kubeconfig = hub.kubeconfig_path();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        for (words, expected, not) in [
            (&["sluice", "get", "targets", "-n", "apps", "p"][..], &["payments", "podinfo"][..], "apps"),
            (&["sluice", "get", "pipeline", "-A", "po"], &["podinfo"], "payments"),
            (&["sluice", "approve", "--namespace=apps", "pod"], &["podinfo"], "payments"),
            (&["sluice", "explain", "-n", "apps", "po"], &["podinfo"], "payments"),
            (&["sluice", "history", "-n", "apps", "pa"], &["payments"], "podinfo"),
            (&["sluice", "suspend", "-n", "apps", "po"], &["podinfo"], "payments"),
            (&["sluice", "retry", "podinfo", "-n", "apps", "-e", ""], &["dev", "prod"], "live"),
            (&["sluice", "get", "promotions", "-n", "apps", "--pipeline", "pay"], &["payments"], "podinfo"),
            (&["sluice", "get", "pipelines", "-n", "ap"], &["apps"], "default"),
            (&["sluice", "get", "targets", "-n", "default", "p"], &[], "podinfo"),
            (&["sluice", "trace", "-n", "a", "dep"], &["deployment/podinfo"], "helmrelease"),
            (&["sluice", "trace", "deployment/podinfo", "--on", "fl"], &["fleet/eu"], "hub"),
            (&["sluice", "charts", "--fleet", "--on", "h"], &["hub"], "fleet"),
            (&["sluice", "get", "pipelines", "--context", "h"], &["hub"], "podinfo"),
            (&["sluice", "appr"], &["approve"], "retry"),
        ] {
            eventually(COMPLETION_WAIT, || async {
                let output = complete(shell, &kubeconfig, words)?;
                let found = text(&output);
                ensure!(output.status.success() && output.stderr.is_empty(), "{shell} {words:?}: {output:?}");
                for name in expected {
                    ensure!(found.contains(name), "{shell} {words:?}: {found:?} lacks {name}");
                }
                ensure!(!found.contains(not), "{shell} {words:?}: {found:?} has {not}");
                Ok(())
            })
            .await?;
        }
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_sluice")).parent().context("no folder")?;
    let script = "source <(sluice completion bash); COMP_WORDS=(sluice get targets -n apps pod); COMP_CWORD=5; \
                  COMP_TYPE=9; _clap_complete_sluice sluice pod apps; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    eventually(COMPLETION_WAIT, || async {
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", script]).env("PATH", &path).env("KUBECONFIG", &kubeconfig).output()?;
        ensure!(text(&output).trim() == "podinfo", "{output:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn flux_runs_it_as_a_plugin_and_completes_names() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let hub = plane.cluster("hub").await?;
    hub.install_sluice_crds().await?;
    hub.namespace("apps").await?;
    hub.apply_yaml(PIPELINE).await?;
    let plugins = Scratch::new("plugins")?;
    let plugin = plugins.path().join("flux-pipelines");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), &plugin)?;
    let run = |arguments: &[&str]| -> Result<String> {
        let output =
            Command::new(&plugin).args(arguments).env("KUBECONFIG", hub.kubeconfig_path()).output()?;
        ensure!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
        Ok(text(&output))
    };
    for (arguments, expected) in [
        (&["get", "targets", "-n", "apps", "po"][..], "podinfo\tpipeline\n:4\n"),
        (&["appr"], "approve\tApprove a pending promotion\n:4\n"),
        (&["retry", "podinfo", "-n", "apps", "-e", "p"], "prod\n:4\n"),
        (&["get", "targets", "-n", "apps", "x"], ":4\n"),
    ] {
        eventually(COMPLETION_WAIT, || async {
            let found = run(&[&["__complete"], arguments].concat())?;
            ensure!(found == expected, "{arguments:?}: {found:?}");
            Ok(())
        })
        .await?;
    }
    let all = run(&["__complete", ""])?;
    ensure!(all.contains("explain\t") && !all.contains("__complete"), "{all}");
    let names = run(&["get", "pipelines", "-n", "apps", "-o", "name"])?;
    ensure!(names == "pipeline.pipelines.weave.works/podinfo\n", "{names:?}");
    Ok(())
}

#[test]
fn completion_ends_soon_and_without_output_if_the_cluster_does_not_answer() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let scratch = Scratch::new("completion")?;
    let kubeconfig = scratch.path().join("config");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], users: [{{name: u, user: {{token: t}}}}]}}",
        silent.local_addr()?
    );
    std::fs::write(&kubeconfig, config)?;
    for place in [&kubeconfig, Path::new("/nowhere/config")] {
        let begun = Instant::now();
        let output = complete("bash", place, &["sluice", "get", "targets", ""])?;
        // Completion waits 2 s for an answer. The rest is for a busy machine.
        ensure!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        ensure!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        ensure!(!text(&output).contains("error"), "{output:?}");
    }
    Ok(())
}
