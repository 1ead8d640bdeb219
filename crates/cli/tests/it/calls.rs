//! How many calls of the API server a question costs.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use sluice_cli::Exit;
use sluice_testkit::fault_injection::ApiServerProxy;

use crate::hub::{place, running, servers, sluice_as};
use crate::reconcile::objects;

/// The questions, each with the calls for its kinds of objects.
fn calls_of_questions() -> Vec<(&'static [&'static str], Vec<String>)> {
    let group = "/apis/pipelines.weave.works/v1alpha1";
    let pipelines = format!("GET {group}/namespaces/calls/pipelines");
    let promotions = format!("GET {group}/namespaces/calls/promotions");
    let leases = "GET /apis/coordination.k8s.io/v1/namespaces/sluice-system/leases".to_string();
    let one = format!("{pipelines}/p-0");
    let [all_pipelines, all_promotions] =
        ["pipelines", "promotions"].map(|kind| format!("GET {group}/{kind}"));
    let events = "GET /api/v1/namespaces/calls/events".to_string();
    let clusters = "GET /apis/gitops.weave.works/v1alpha1/namespaces/calls/gitopsclusters".to_string();
    let pods = "GET /api/v1/namespaces/sluice-system/pods".to_string();
    // Whether the definitions are installed, and which groups of Flux are.
    let (definitions, groups) = (format!("GET {group}"), "GET /apis".to_string());
    let everywhere = |call: &str| call.replace("/namespaces/calls", "");
    let (all_events, all_clusters) = (everywhere(&events), everywhere(&clusters));
    let promotion = format!("{promotions}/p-0-1");
    let table: [(&[&str], Vec<&String>); 21] = [
        (&["get", "pipelines"], vec![&pipelines]),
        (&["get", "promotions"], vec![&promotions]),
        (&["get", "targets"], vec![&pipelines]),
        (&["charts"], vec![&pipelines]),
        (&["images"], vec![&pipelines]),
        (&["status", "p-0"], vec![&one, &promotions, &leases]),
        (&["tree", "p-0"], vec![&one]),
        (&["explain", "p-0", "-e", "prod"], vec![&one, &promotions, &leases]),
        (&["explain", "p-0-1"], vec![&promotion]),
        (&["history", "p-0"], vec![&one, &promotions]),
        (&["triggers", "p-0"], vec![&one, &promotions, &pods, &groups]),
        (&["events", "p-0"], vec![&one, &promotions, &events, &definitions]),
        (&["events"], vec![&events, &definitions]),
        (&["clusters"], vec![&pipelines, &clusters]),
        (&["get", "pipelines", "-A"], vec![&all_pipelines]),
        (&["get", "promotions", "-A"], vec![&all_promotions]),
        (&["get", "targets", "-A"], vec![&all_pipelines]),
        (&["charts", "-A"], vec![&all_pipelines]),
        (&["images", "-A"], vec![&all_pipelines]),
        (&["events", "-A"], vec![&all_events, &definitions]),
        (&["clusters", "-A"], vec![&all_pipelines, &all_clusters]),
    ];
    table.into_iter().map(|(question, calls)| (question, calls.into_iter().cloned().collect())).collect()
}

/// Each question needs one call for each kind of object that it is about, whatever the number of pipelines, environments,
/// targets and clusters.
#[tokio::test]
async fn a_question_costs_one_call_for_each_kind() -> Result<()> {
    let place = place("calls").await?;
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    let proxy = ApiServerProxy::in_front_of(hub, &[])?;
    for added in [0..1, 1..12] {
        let many = added.end;
        for n in added {
            place.pipeline(&format!("p-{n}"), running("6.1.8", "6.1.6")).await?;
            place.promotion(&format!("p-{n}-1"), "prod", json!({"phase": "Succeeded"})).await?;
        }
        for (question, mut expected) in calls_of_questions() {
            let are_all = question.contains(&"-A");
            let place = if are_all { &[][..] } else { &["-n", "calls"] };
            let ran = sluice_as(&proxy.kubeconfig_path(), &[question, place].concat()).await;
            ensure!(ran.exit == Exit::Ok, "{question:?}: {ran:?}");
            let mut calls = proxy.take_calls();
            // Some are made at the same time.
            calls.sort();
            expected.sort();
            // Each group of Flux, and each of its kinds, is asked about once.
            let (of_flux, mut calls): (Vec<_>, Vec<_>) =
                calls.into_iter().partition(|call| call.contains(".toolkit.fluxcd.io"));
            let are_different = of_flux.windows(2).all(|two| two[0] != two[1]);
            ensure!(
                are_different && of_flux.is_empty() != (question[0] == "triggers"),
                "{question:?}: {of_flux:?}"
            );
            if are_all {
                // Other tests have more pipelines than one page has.
                calls.dedup();
            }
            ensure!(calls == expected, "{question:?} with {many} pipelines: {calls:?}");
        }
    }
    Ok(())
}

/// Each action costs calls for the objects that it is about, and a check of the installation a certain number, whatever the
/// number of other pipelines.
#[tokio::test]
async fn an_action_costs_calls_for_its_own_objects_only() -> Result<()> {
    let place = objects("calls-of-actions").await?;
    let proxy = ApiServerProxy::in_front_of(&servers().await?.hub, &[])?;
    let of = |group: &str, object: &str| format!("/apis/{group}/namespaces/calls-of-actions/{object}");
    let ours = |object: &str| of("pipelines.weave.works/v1alpha1", object);
    let [get, patch] = ["GET", "PATCH"].map(|verb| move |path: String| format!("{verb} {path}"));
    let release = of("helm.toolkit.fluxcd.io/v2", "helmreleases/podinfo");
    let source = of("source.toolkit.fluxcd.io/v1", "helmrepositories/charts");
    // For each of the two kinds of Flux: its version, and the object.
    let reconciled = vec![
        get(ours("pipelines/podinfo")),
        get("/apis".into()),
        get("/apis/helm.toolkit.fluxcd.io/v2".into()),
        get(release.clone()),
        get("/apis".into()),
        get("/apis/source.toolkit.fluxcd.io/v1".into()),
        get(source.clone()),
        patch(source),
        patch(release),
    ];
    let mut of_checks = Vec::new();
    for added in [0..1, 1..12] {
        let last = added.end - 1;
        for n in added {
            place.pipeline(&format!("p-{n}"), running("6.1.8", "6.1.6")).await?;
            let gate = json!({"name": "Approval", "open": false});
            place
                .promotion(&format!("p-{n}-1"), "prod", json!({"phase": "Pending", "gates": [gate]}))
                .await?;
        }
        let (pipeline, promotion) = (format!("p-{last}"), format!("p-{last}-1"));
        let one = ours(&format!("pipelines/{pipeline}"));
        let pending = ours(&format!("promotions/{promotion}"));
        let asked = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews".to_string();
        let approved = vec![asked, get(pending.clone()), get(ours("pipelines/podinfo")), patch(pending)];
        let actions: [(&[&str], Vec<String>); 4] = [
            (&["approve", &promotion], approved),
            (&["suspend", &pipeline], vec![get(one.clone()), patch(one.clone())]),
            (&["resume", &pipeline], vec![get(one.clone()), patch(one)]),
            (&["reconcile", "podinfo"], reconciled.clone()),
        ];
        for (action, expected) in actions {
            let ran =
                sluice_as(&proxy.kubeconfig_path(), &[action, &["-n", &place.namespace]].concat()).await;
            ensure!(ran.exit == Exit::Ok, "{action:?}: {ran:?}");
            assert_eq!(proxy.take_calls(), expected, "{action:?}");
        }
        let ran = sluice_as(&proxy.kubeconfig_path(), &["check", "-n", &place.namespace]).await;
        let mut calls = proxy.take_calls();
        ensure!(matches!(ran.exit, Exit::Ok | Exit::Faulty), "{ran:?}");
        calls.sort();
        of_checks.push(calls);
    }
    assert_eq!(of_checks[0], of_checks[1]);
    ensure!((20..=50).contains(&of_checks[0].len()), "{:#?}", of_checks[0]);
    Ok(())
}

#[tokio::test]
async fn a_long_list_is_read_in_pages_and_in_full() -> Result<()> {
    let place = place("pages").await?;
    let proxy = ApiServerProxy::in_front_of(&servers().await?.hub, &[])?;
    const ALL: usize = 501;
    let names: Vec<String> = (0..ALL).map(|n| format!("p-{n:03}")).collect();
    let created = names.iter().map(async |name| place.pipeline(name, running("6.1.8", "6.1.6")).await);
    futures::stream::iter(created).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    let question = ["charts", "-n", "pages", "-e", "dev", "-o", "json"];
    let ran = sluice_as(&proxy.kubeconfig_path(), &question).await;
    ensure!(ran.exit == Exit::Ok, "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out)?;
    let shown = answer["view"].as_array().into_iter().flatten();
    let shown: Vec<&str> = shown.filter_map(|row| row["pipeline"].as_str()).collect();
    let expected: Vec<String> = names.iter().map(|name| format!("pages/{name}")).collect();
    assert_eq!(shown, expected);
    let list = "GET /apis/pipelines.weave.works/v1alpha1/namespaces/pages/pipelines";
    assert_eq!(proxy.take_calls(), [list, list]);
    Ok(())
}
