//! `sluice get` with all output formats.

use anyhow::Result;
use serde_json::{Value, json};
use sluice_cli::Exit;
use sluice_testkit::{ControlPlane, WAIT_TIMEOUT, eventually, install_crds};

use crate::hub::{place, run, running, sluice_as};

#[tokio::test]
async fn pipelines_are_listed_in_every_form() -> Result<()> {
    let place = place("get-pipelines").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    place.pipeline("shop", json!({})).await?;
    place.sluice(&["suspend", "shop"]).await;

    let table = place.sluice(&["get", "pipelines"]).await;
    insta::assert_snapshot!(table.steady(), @"
    NAME APPLICATION ENVIRONMENTS READY PROMOTING AGE
    podinfo podinfo dev:6.1.8 prod:6.1.6 True - AGE
    shop shop - Unknown suspended AGE
    ");
    let one = place.sluice(&["get", "pl", "podinfo", "--no-headers"]).await;
    insta::assert_snapshot!(one.steady(), @"podinfo podinfo dev:6.1.8 prod:6.1.6 True - AGE");
    let wide = place.sluice(&["get", "pipelines", "-o", "wide"]).await;
    insta::assert_snapshot!(wide.steady(), @"
    NAME APPLICATION ENVIRONMENTS READY PROMOTING AGE SUSPENDED MESSAGE
    podinfo podinfo dev:6.1.8 prod:6.1.6 True - AGE False all targets were read
    shop shop - Unknown suspended AGE True not looked at yet: is sluice controller running?
    ");
    let names = place.sluice(&["get", "pipelines", "-o", "name"]).await;
    insta::assert_snapshot!(names.out, @"
    pipeline.pipelines.weave.works/podinfo
    pipeline.pipelines.weave.works/shop
    ");
    // A name of another namespace is of no use without it: `sluice get pipelines -A -o name | xargs -L1 sluice status`.
    let names = place.sluice(&["get", "pipelines", "-A", "-o", "name"]).await;
    assert!(names.out.contains("pipeline.pipelines.weave.works/shop -n get-pipelines\n"), "{}", names.out);
    let all = place.sluice(&["get", "pipelines", "-A"]).await;
    assert!(
        all.steady().contains("\nget-pipelines podinfo podinfo dev:6.1.8 prod:6.1.6 True - AGE"),
        "{}",
        all.out
    );
    Ok(())
}

#[tokio::test]
async fn labels_select_pipelines() -> Result<()> {
    let place = place("get-labels").await?;
    for (name, team) in [("podinfo", "web"), ("shop", "sales")] {
        place.pipeline(name, running("6.1.8", "6.1.6")).await?;
        place.label(name, team).await?;
    }
    for form in ["table", "wide", "name", "json", "yaml"] {
        let some = place.sluice(&["get", "pipelines", "-l", "team=web", "-o", form]).await;
        assert!(some.out.contains("podinfo") && !some.out.contains("shop"), "{form}: {some:?}");
    }
    let targets = place.sluice(&["get", "targets", "-l", "team!=web", "--no-headers"]).await;
    assert!(
        targets.out.lines().count() == 4 && targets.out.lines().all(|l| l.starts_with("shop")),
        "{targets:?}"
    );
    let none = place.sluice(&["get", "pipelines", "--selector", "team=x"]).await;
    insta::assert_snapshot!(none.err, @"no pipelines with labels team=x found in namespace get-labels; -A looks in all of them");
    let odd = place.sluice(&["get", "pipelines", "-l", "team=a=b"]).await;
    assert_eq!(odd.exit, Exit::Usage);
    insta::assert_snapshot!(odd.err, @"
    ✗ the labels cannot be read: found '=', expected: ',' or 'end of string'
      write them as app=podinfo,team!=web or 'team in (web, sales)'
    ");
    let both = place.sluice(&["get", "pipeline", "podinfo", "-l", "team=web"]).await;
    assert_eq!(both.exit, Exit::Usage);
    insta::assert_snapshot!(both.err, @"
    ✗ podinfo is one by its name, and --selector picks many
      leave one of them out
    ");
    Ok(())
}

#[tokio::test]
async fn data_is_the_stored_object_without_managed_fields() -> Result<()> {
    let place = place("get-data").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let one = place.sluice(&["get", "pipeline", "podinfo", "-o", "json"]).await;
    let one: Value = serde_json::from_str(&one.out)?;
    assert_eq!(one["kind"], "Pipeline");
    assert_eq!(one["status"], running("6.1.8", "6.1.6"));
    assert_eq!(one["metadata"]["managedFields"], Value::Null);
    let list = place.sluice(&["get", "pipelines", "-o", "yaml"]).await;
    let list: Value = serde_saphyr::from_str(&list.out)?;
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0], one);
    Ok(())
}

#[tokio::test]
async fn targets_show_what_runs_where() -> Result<()> {
    let place = place("get-targets").await?;
    let mut status = running("6.1.8", "6.1.6");
    let prod = &mut status["environments"]["prod"]["targets"][0];
    prod["health"] = "Unknown".into();
    prod["error"] = "cluster prod cannot be reached: connection refused".into();
    place.pipeline("podinfo", status).await?;
    let table = place.sluice(&["get", "targets", "podinfo"]).await;
    insta::assert_snapshot!(table.steady(), @"
    ENVIRONMENT TARGET CLUSTER NAMESPACE WORKLOAD VERSION HEALTH SINCE ERROR
    dev dev-podinfo dev podinfo HelmRelease/podinfo 6.1.8 Ready AGE
    dev dev-podinfo dev podinfo Deployment/podinfo 6.1.8 Ready AGE
    prod prod-podinfo prod podinfo HelmRelease/podinfo 6.1.6 Unknown AGE cluster prod cannot be reached: connection refused
    prod prod-podinfo prod podinfo Deployment/podinfo 6.1.6 Unknown AGE cluster prod cannot be reached: connection refused
    ");
    insta::assert_snapshot!(table.err, @"✗ look at prod/prod-podinfo Unknown");
    let data = place.sluice(&["get", "targets", "podinfo", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&data.out)?;
    assert_eq!(data["items"][1]["images"], json!(["ghcr.io/stefanprodan/podinfo:6.1.8"]));
    Ok(())
}

#[tokio::test]
async fn promotions_are_filtered() -> Result<()> {
    let place = place("get-promotions").await?;
    let at = "2026-11-21T10:00:00Z";
    let by_key = json!({"secret": "hook", "key": "3fa2b1", "signedAt": at, "at": at});
    place.promotion("one", "dev", json!({"phase": "Succeeded", "keyApproval": by_key})).await?;
    place.promotion("two", "prod", json!({"phase": "Pending", "message": "waits for approval"})).await?;
    // A list may be a moment older than the last write.
    eventually(WAIT_TIMEOUT, || async {
        let names = place.sluice(&["get", "promotions", "-o", "name"]).await.out;
        anyhow::ensure!(names.lines().count() == 2, "{names}");
        Ok(())
    })
    .await?;
    let all = place.sluice(&["get", "promotions", "--pipeline", "podinfo"]).await;
    insta::assert_snapshot!(all.steady(), @"
    NAME PIPELINE ENVIRONMENT REVISION PHASE AGE
    one podinfo dev 6.1.8 Succeeded AGE
    two podinfo prod 6.1.8 Pending AGE
    ");
    // From the table of the API server, and from the object.
    for arguments in [&["get", "promotions"][..], &["get", "promotion", "one"]] {
        let wide = place.sluice(&[arguments, &["-o", "wide", "--no-headers"]].concat()).await.steady();
        assert!(wide.contains("one podinfo dev 6.1.8 Succeeded AGE 0 key 3fa2b1 of Secret hook"), "{wide}");
    }
    let prod = place.sluice(&["get", "promo", "-e", "prod", "-o", "wide", "--no-headers"]).await;
    insta::assert_snapshot!(prod.steady(), @"two podinfo prod 6.1.8 Pending AGE 0 - - waits for approval");
    place.pipeline("podinfo", json!({})).await?;
    place.pipeline("other", json!({})).await?;
    let none = place.sluice(&["get", "promotions", "--pipeline", "other"]).await;
    assert_eq!((none.exit, none.out.as_str()), (Exit::Ok, ""));
    assert_eq!(
        none.err,
        "no promotions of pipeline other found in namespace get-promotions; -A looks in all of them\n"
    );
    for (arguments, says) in [
        (
            &["--pipeline", "podinof"][..],
            "there is no pipeline podinof in namespace get-promotions; did you mean podinfo?",
        ),
        (
            &["--pipeline", "podinfo", "-e", "prd"],
            "pipeline podinfo has no environment prd; did you mean prod?",
        ),
        (&["--pipeline", "podinfo", "-e", "prd", "-o", "name"], "has no environment prd"),
    ] {
        let ran = place.sluice(&[&["get", "promotions"], arguments].concat()).await;
        assert_eq!(ran.exit, Exit::NotFound, "{ran:?}");
        assert!(ran.err.contains(says), "{arguments:?}: {ran:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_name_is_answered_with_similar_ones() -> Result<()> {
    let there = place("get-there").await?;
    there.pipeline("payments", json!({})).await?;
    let ran = there.sluice(&["get", "targets", "paymants"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    insta::assert_snapshot!(ran.err, @"✗ there is no pipeline paymants in namespace get-there; did you mean payments?");
    let elsewhere = place("get-elsewhere").await?;
    let ran = elsewhere.sluice(&["get", "pipeline", "payments"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    insta::assert_snapshot!(ran.err, @"✗ there is no pipeline payments in namespace get-elsewhere; there is one in namespace get-there: add -n get-there");
    let ran = elsewhere.sluice(&["get", "pipeline", "zzz"]).await;
    insta::assert_snapshot!(ran.err, @"✗ there is no pipeline zzz in namespace get-elsewhere; namespace get-elsewhere has no pipelines");
    let ran = elsewhere.sluice(&["get", "pipeline", "paymants", "-A"]).await;
    insta::assert_snapshot!(ran.err, @"✗ there is no pipeline paymants in the cluster; did you mean payments?");
    Ok(())
}

#[tokio::test]
async fn printed_names_are_accepted_by_other_commands() -> Result<()> {
    let place = place("get-names").await?;
    place.pipeline("podinfo", json!({})).await?;
    place.promotion("podinfo-prod-1", "prod", json!({"phase": "Failed"})).await?;
    for kind in ["pipeline", "promotion"] {
        let name = place.sluice(&["get", kind, "-o", "name"]).await.out;
        let name = name.trim_end();
        assert!(name.starts_with(&format!("{kind}.pipelines.weave.works/podinfo")), "{name}");
        let ran = place.sluice(&["get", kind, name]).await;
        assert_eq!((ran.exit, ran.out.lines().count()), (Exit::Ok, 2), "{ran:?}");
    }
    let target =
        place.sluice(&["get", "targets", "pipeline.pipelines.weave.works/podinfo", "-o", "name"]).await;
    assert_eq!(target.out, "dev/dev-podinfo\nprod/prod-podinfo\n", "{target:?}");
    let ran = place.sluice(&["approve", "promotion.pipelines.weave.works/podinfo-prod-1"]).await;
    assert_eq!(ran.exit, Exit::Refused, "found, and not one that waits: {ran:?}");
    for command in [
        &["get", "promotions", "--pipeline", "podinfo"][..],
        &["retry", "podinfo"],
        &["retry", "--failed", "--pipeline", "podinfo"],
    ] {
        let ran = place.sluice(&[command, &["-e", "prod/prod-podinfo"]].concat()).await;
        let said = format!("{}{}", ran.out, ran.err);
        let is_found =
            ran.exit == Exit::Ok && (said.contains("podinfo-prod-1") || said.contains("into prod"));
        assert!(is_found, "{command:?}: {ran:?}");
    }
    let ran = place.sluice(&["retry", "podinfo", "-e", "prod/eu"]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    assert!(ran.err.contains("environment prod has no target eu"), "{ran:?}");
    let ran = place.sluice(&["get", "promotion", "pipeline.pipelines.weave.works/podinfo"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("is not the kind of a promotion"), "{ran:?}");
    Ok(())
}

/// A hub whose definitions accept all values, as older definitions may.
#[tokio::test]
async fn the_other_pipelines_are_shown_beside_an_unreadable_one() -> Result<()> {
    let hub = ControlPlane::start().await?.cluster("lenient").await?;
    let mut crds = sluice_api::all_crds();
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let anything =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        (version.schema, version.subresources) = (serde_json::from_value(anything)?, None);
    }
    install_crds(&hub.client().await?, crds).await?;
    let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
    let mut level: Value = serde_json::from_str(text)?;
    level["metadata"] = json!({"name": "level", "namespace": "default"});
    let broken = json!({"apiVersion": level["apiVersion"], "kind": "Pipeline",
        "metadata": {"name": "broken", "namespace": "default"}, "spec": {"environments": 7}});
    hub.apply_yaml(&format!("{level}\n---\n{broken}")).await?;
    let path = hub.kubeconfig_path();
    let targets = sluice_as(&path, &["get", "targets", "-n", "default"]).await;
    assert!(targets.exit == Exit::Ok && targets.out.contains("6.1.8"), "{targets:?}");
    assert!(targets.out.contains("cannot be read: invalid type"), "{targets:?}");
    let pipelines = sluice_as(&path, &["get", "pipelines", "-n", "default"]).await;
    assert!(pipelines.exit == Exit::Ok && pipelines.out.contains("\nlevel "), "{pipelines:?}");
    Ok(())
}

#[tokio::test]
async fn a_narrow_terminal_drops_columns_before_it_cuts_texts() -> Result<()> {
    let place = place("get-narrow").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    let kubeconfig = place.kubeconfig.to_string_lossy().into_owned();
    let arguments =
        ["get", "targets", "podinfo", "-n", &place.namespace, "--kubeconfig", kubeconfig.as_str()];
    let shown = async |width: usize| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let terminal = Some(sluice_cli::Size { width, height: 24 });
        let mut io = sluice_cli::Io { out: &mut out, err: &mut err, color: false, terminal, err_width: None };
        assert_eq!(run(&arguments, &mut io).await, Exit::Ok);
        String::from_utf8_lossy(&out).into_owned()
    };
    insta::assert_snapshot!(shown(80).await, @"
    ENVIRONMENT   TARGET         CLUSTER   WORKLOAD              VERSION   HEALTH
    dev           dev-podinfo    dev       HelmRelease/podinfo   6.1.8     Ready
    dev           dev-podinfo    dev       Deployment/podinfo    6.1.8     Ready
    prod          prod-podinfo   prod      HelmRelease/podinfo   6.1.6     Ready
    prod          prod-podinfo   prod      Deployment/podinfo    6.1.6     Ready
    ");
    insta::assert_snapshot!(shown(40).await, @"
    ENVIRONM…   TARGET      VERSION   HEALTH
    dev         dev-podi…   6.1.8     Ready
    prod        prod-pod…   6.1.6     Ready
    ");
    Ok(())
}
