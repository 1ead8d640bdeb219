//! The permissions to approve, reject and retry: users and a group with the roles of `deploy/` on a real API server, with
//! requests as of `kubectl` and by `sluice`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_cli::Exit;
use sluice_testkit::{WAIT_TIMEOUT, connect, eventually};

use crate::hub::{Ran, TestNamespace, place, running, servers, sluice_as};

/// A user with their own certificate.
struct User {
    namespace: String,
    kubeconfig: PathBuf,
    client: kube::Client,
}

impl User {
    async fn new(place: &TestNamespace, name: &str, group: Option<&str>) -> Result<User> {
        User::with(place, name, &servers().await?.hub.user(name, group)?).await
    }

    async fn with(place: &TestNamespace, name: &str, kubeconfig: &str) -> Result<User> {
        let folder = place.kubeconfig.parent().context("a folder")?;
        let path = folder.join(format!("{}-{name}.kubeconfig", place.namespace));
        std::fs::write(&path, kubeconfig)?;
        let client = connect(kubeconfig).await?;
        Ok(User { namespace: place.namespace.clone(), kubeconfig: path, client })
    }

    fn promotions(&self) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Merges into a promotion, as `kubectl patch --type merge` does.
    async fn patch(&self, name: &str, patch: Value) -> Result<(), String> {
        message_of(self.promotions().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    async fn refused(&self, name: &str, patch: Value, sentence: &str) {
        match self.patch(name, patch.clone()).await {
            Ok(()) => panic!("{patch} was accepted"),
            Err(error) => assert!(error.contains(sentence), "{patch} was refused with: {error}"),
        }
    }

    async fn sluice(&self, arguments: &[&str]) -> Ran {
        sluice_as(&self.kubeconfig, &[arguments, &["-n", &self.namespace]].concat()).await
    }
}

fn message_of<T>(result: kube::Result<T>) -> Result<(), String> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(other) => panic!("the API server did not answer: {other}"),
    }
}

fn deployed(file: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Binds a role to a user or group in the namespace.
async fn bind(place: &TestNamespace, role: &str, kind: &str, name: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("{role}-{name}"), "namespace": place.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}],
    });
    servers().await?.hub.apply_yaml(&binding.to_string()).await.map(drop)
}

/// jane may approve, and so may joe because of his group. eve may edit pipelines, vic may only read.
struct People {
    place: TestNamespace,
    jane: User,
    joe: User,
    eve: User,
    vic: User,
}

fn approval(by: &str) -> Value {
    json!({"spec": {"approval": {"by": by, "revision": "6.1.8"}}})
}

fn rejection(by: &str) -> Value {
    json!({"spec": {"rejection": {"by": by, "revision": "6.1.8", "reason": "no"}}})
}

/// A namespace with a pipeline whose promotion `p` waits for an approval.
async fn people(name: &str) -> Result<People> {
    let place = place(name).await?;
    servers().await?.hub.apply_yaml(&deployed("people.yaml")?).await?;
    bind(&place, "sluice-approver", "User", "jane").await?;
    bind(&place, "sluice-approver", "Group", "release-managers").await?;
    bind(&place, "sluice-editor", "User", "eve").await?;
    bind(&place, "sluice-viewer", "User", "vic").await?;
    let waits = json!({"phase": "Pending", "gates": [{"name": "Approval", "open": false}]});
    place.pipeline("podinfo", running("6.1.8", "6.1.6")).await?;
    place.promotion("p", "prod", waits).await?;
    let people = People {
        jane: User::new(&place, "jane", None).await?,
        joe: User::new(&place, "joe", Some("release-managers")).await?,
        eve: User::new(&place, "eve", None).await?,
        vic: User::new(&place, "vic", None).await?,
        place,
    };
    // The API server observes roles and policies by watches, a moment later.
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually(WAIT_TIMEOUT, || async {
        let (eve, api) = (&people.eve, people.eve.promotions());
        let error = message_of(api.patch("p", &dry, &Patch::Merge(approval("eve"))).await);
        ensure!(
            error.as_ref().is_err_and(|error| error.contains("may not approve")),
            "{}: {error:?}",
            eve.namespace
        );
        for user in [&people.jane, &people.joe] {
            user.promotions().get("p").await?;
        }
        people.vic.promotions().get("p").await?;
        Ok(())
    })
    .await?;
    Ok(people)
}

#[tokio::test]
async fn only_approvers_approve_and_only_in_their_own_name() -> Result<()> {
    let People { place, jane, joe, eve, vic } = people("rights-approve").await?;
    let verb = "eve may not approve promotions rights-approve/p: it needs the verb approve on \
                promotions.pipelines.weave.works (ClusterRole sluice-approver)";
    eve.refused("p", approval("eve"), verb).await;
    // The missing permission is reported first, whichever name is written.
    eve.refused("p", approval("jane"), verb).await;
    eve.refused("p", rejection("eve"), "eve may not reject promotions rights-approve/p").await;
    eve.refused("p", rejection("jane"), "eve may not reject promotions rights-approve/p").await;
    jane.refused("p", approval("joe"), "spec.approval.by must be your own name, jane").await;
    jane.refused("p", rejection("joe"), "spec.rejection.by must be your own name, jane").await;
    let mut other = approval("jane");
    other["spec"]["approval"]["revision"] = "6.1.9".into();
    jane.refused("p", other, "spec.approval.revision must be spec.revision").await;
    let forged = json!({"spec": {"facets": {"HelmRelease/podinfo:chart": "6.6.6"}, "revision": "6.6.6",
        "arrival": 999_999, "approval": {"by": "jane", "revision": "6.6.6"}}});
    jane.refused("p", forged, "a Promotion records what Sluice decided").await;
    vic.refused("p", approval("vic"), "cannot patch resource \"promotions\"").await;

    let ran = vic.sluice(&["approve", "p"]).await;
    assert_eq!(ran.exit, Exit::Cluster, "{ran:?}");
    insta::assert_snapshot!(ran.err, @r#"
    ✗ not allowed: promotions.pipelines.weave.works "p" is forbidden: User "vic" cannot patch resource "promotions" in API group "pipelines.weave.works" in the namespace "rights-approve"
      ask the cluster's administrator to allow it; kubectl auth can-i --list shows what you may do
    "#);
    let ran = eve.sluice(&["approve", "podinfo", "-e", "prod"]).await;
    assert_eq!((ran.exit, ran.err.lines().next()), (Exit::Refused, Some(format!("✗ {verb}").as_str())));
    let ran = eve.sluice(&["reject", "p", "--reason", "no"]).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("eve may not reject"), "{ran:?}");

    let ran = jane.sluice(&["approve", "podinfo", "--revision", "6.1.9"]).await;
    assert_eq!(ran.exit, Exit::Refused);
    insta::assert_snapshot!(ran.err, @"
    ✗ 6.1.9 is not what waits here: podinfo 6.1.8 into prod is Pending
      see what waits now: sluice get promotions --pipeline podinfo
    ");
    let ran = jane.sluice(&["approve", "podinfo", "--revision", "6.1.8"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, "✔ approved podinfo 6.1.8 into prod (as jane)\n"));
    let again = joe.sluice(&["approve", "p"]).await;
    assert_eq!(
        (again.exit, again.err.as_str()),
        (Exit::Ok, "✔ podinfo 6.1.8 into prod is approved already, by jane\n")
    );
    joe.refused("p", approval("joe"), "an approval is given once").await;
    jane.refused("p", json!({"spec": {"approval": null}}), "an approval is given once").await;

    // A member of the group may approve.
    place.promotion("q", "prod", json!({"phase": "Pending"})).await?;
    joe.patch("q", approval("joe")).await.map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Binds a new role of the namespace to a user.
async fn bind_rules(place: &TestNamespace, user: &str, rules: Value) -> Result<()> {
    let api_version = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": user, "namespace": place.namespace});
    let role = json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules});
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]});
    for object in [role, binding] {
        servers().await?.hub.apply_yaml(&object.to_string()).await?;
    }
    Ok(())
}

/// ann may read and change both promotions, and approve `p`. ben may read, change and approve `p`.
#[tokio::test]
async fn an_approver_of_one_promotion_approves_no_other() -> Result<()> {
    let People { place, .. } = people("rights-named").await?;
    place.promotion("q", "prod", json!({"phase": "Pending"})).await?;
    let may = |verbs: &[&str]| json!({"apiGroups": [sluice_api::GROUP], "resources": ["promotions"], "verbs": verbs});
    let mut on_p = may(&["approve"]);
    on_p["resourceNames"] = json!(["p"]);
    bind_rules(&place, "ann", json!([may(&["get", "patch"]), on_p])).await?;
    on_p["verbs"] = json!(["get", "patch", "approve"]);
    bind_rules(&place, "ben", json!([on_p])).await?;
    let (ann, ben) = (User::new(&place, "ann", None).await?, User::new(&place, "ben", None).await?);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually(WAIT_TIMEOUT, || async {
        for (user, name) in [(&ann, "ann"), (&ben, "ben")] {
            user.promotions().patch("p", &dry, &Patch::Merge(approval(name))).await?;
        }
        Ok(())
    })
    .await?;
    ann.refused("q", approval("ann"), "ann may not approve promotions rights-named/q").await;
    ann.refused("q", rejection("ann"), "ann may not reject promotions rights-named/q").await;
    ben.refused("q", approval("ben"), "cannot patch resource \"promotions\"").await;
    ann.patch("p", approval("ann")).await.map_err(anyhow::Error::msg)?;
    assert_eq!(place.promotions().get("q").await?.spec.approval, None);
    Ok(())
}

#[tokio::test]
async fn one_of_two_simultaneous_approvals_counts() -> Result<()> {
    let People { jane, joe, .. } = people("rights-twice").await?;
    let (first, second) = tokio::join!(jane.sluice(&["approve", "p"]), joe.sluice(&["approve", "p"]));
    let error = [first.err, second.err].concat();
    assert_eq!((first.exit, second.exit), (Exit::Ok, Exit::Ok), "{error}");
    assert_eq!(error.matches("✔ approved").count(), 1, "{error}");
    assert_eq!(error.matches("approved already").count(), 1, "{error}");
    Ok(())
}

#[tokio::test]
async fn a_rejection_names_user_and_reason_and_only_an_approver_can_retry() -> Result<()> {
    let People { place, jane, joe, eve, vic } = people("rights-reject").await?;
    let ran = jane.sluice(&["reject", "podinfo", "-e", "prod", "--reason", "not before Monday"]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, "✔ rejected podinfo 6.1.8 into prod (as jane)\n"));
    let stored = place.promotions().get("p").await?.spec.rejection.context("a rejection")?;
    assert_eq!((stored.by.as_str(), stored.reason.as_str()), ("jane", "not before Monday"));
    joe.refused("p", rejection("joe"), "a rejection is given once").await;
    let ended = Patch::Merge(json!({"status": {"phase": "Rejected", "message": "rejected by jane"}}));
    place.promotions().patch_status("p", &PatchParams::default(), &ended).await?;

    let retry = json!({"spec": {"retry": "2026-11-21T10:00:00Z"}});
    eve.refused(
        "p",
        retry.clone(),
        "jane rejected promotions rights-reject/p: to retry it, eve needs the verb approve",
    )
    .await;
    vic.refused("p", retry, "cannot patch resource \"promotions\"").await;
    let ran = eve.sluice(&["retry", "p"]).await;
    assert!(ran.exit == Exit::Refused && ran.err.contains("jane rejected"), "{ran:?}");
    let ran = joe.sluice(&["retry", "p"]).await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (Exit::Ok, "✔ requested another try of podinfo 6.1.8 into prod\n")
    );

    // An editor may retry a promotion that failed without a rejection.
    place.promotion("q", "prod", json!({"phase": "Failed"})).await?;
    let ran = eve.sluice(&["retry", "q"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    let patcher = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "patches-promotions"},
        "rules": [{"apiGroups": ["pipelines.weave.works"], "resources": ["promotions"], "verbs": ["get", "list", "patch"]}],
    });
    servers().await?.hub.apply_yaml(&patcher.to_string()).await?;
    bind(&place, "patches-promotions", "User", "vic").await?;
    let later = json!({"spec": {"retry": "2099-11-21T10:00:00Z"}});
    eventually(WAIT_TIMEOUT, || async {
        match vic.patch("q", later.clone()).await {
            Err(error)
                if error
                    .contains("vic may not retry promotions rights-reject/q: it needs the verb retry") =>
            {
                Ok(())
            }
            other => bail!("{other:?}"),
        }
    })
    .await?;
    place.promotion("r", "prod", json!({"phase": "Failed"})).await?;
    let ran = vic.sluice(&["retry", "r"]).await;
    assert_eq!(ran.exit, Exit::Refused, "{ran:?}");
    insta::assert_snapshot!(ran.err, @"
    ✗ vic may not retry promotions rights-reject/r: it needs the verb retry on promotions.pipelines.weave.works (ClusterRole sluice-editor)
      kubectl auth whoami shows who you are; ask the cluster's administrator for the permission
    ");
    Ok(())
}

#[tokio::test]
async fn an_update_and_a_server_side_apply_need_the_same_rights_as_a_patch() -> Result<()> {
    let People { place, jane, eve, vic, .. } = people("rights-put").await?;
    let updater = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "updates-promotions"},
        "rules": [{"apiGroups": ["pipelines.weave.works"], "resources": ["promotions"], "verbs": ["get", "update"]}],
    });
    servers().await?.hub.apply_yaml(&updater.to_string()).await?;
    bind(&place, "updates-promotions", "User", "jane").await?;
    bind(&place, "updates-promotions", "User", "vic").await?;
    let sentence = |result: Result<(), String>| result.err().unwrap_or_else(|| "it was accepted".into());
    let put = async |user: &User, fields: Value| -> Result<String> {
        let mut object = serde_json::to_value(user.promotions().get("p").await?)?;
        object["spec"]
            .as_object_mut()
            .context("a spec")?
            .extend(fields.as_object().context("fields")?.clone());
        let object: Promotion = serde_json::from_value(object)?;
        Ok(sentence(message_of(user.promotions().replace("p", &PostParams::default(), &object).await)))
    };
    let verb = "may not approve promotions rights-put/p: it needs the verb approve";
    // The API server observes a new role by a watch, a moment later.
    eventually(WAIT_TIMEOUT, || async {
        let error = put(&vic, approval("vic")["spec"].clone()).await?;
        ensure!(error.contains(&format!("vic {verb}")), "{error}");
        Ok(())
    })
    .await?;
    for (fields, part) in [
        (approval("joe")["spec"].clone(), "spec.approval.by must be your own name, jane"),
        (rejection("joe")["spec"].clone(), "spec.rejection.by must be your own name, jane"),
        (json!({"revision": "6.6.6"}), "a Promotion records what Sluice decided"),
    ] {
        let error = put(&jane, fields.clone()).await?;
        assert!(error.contains(part), "{fields}: {error}");
    }

    let apply = async |user: &User, fields: Value| {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "p"}, "spec": fields});
        let params = PatchParams::apply("kubectl").force();
        sentence(message_of(user.promotions().patch("p", &params, &Patch::Apply(object)).await))
    };
    for (user, fields, part) in [
        (&eve, approval("eve")["spec"].clone(), format!("eve {verb}")),
        (&jane, approval("joe")["spec"].clone(), "spec.approval.by must be your own name, jane".into()),
        (&jane, json!({"revision": "6.6.6"}), "a Promotion records what Sluice decided".into()),
    ] {
        let error = apply(user, fields.clone()).await;
        assert!(error.contains(&part), "{fields}: {error}");
    }
    assert_eq!(place.promotions().get("p").await?.spec.approval, None);
    assert_eq!(apply(&jane, approval("jane")["spec"].clone()).await, "it was accepted");
    Ok(())
}

#[tokio::test]
async fn only_the_controller_creates_promotions_and_writes_statuses() -> Result<()> {
    let People { place, jane, .. } = people("rights-record").await?;
    let hub = &servers().await?.hub;
    // The usual permissions of a namespace's owner: all verbs of Kubernetes.
    let owner = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "owns-namespace"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}],
    });
    hub.apply_yaml(&owner.to_string()).await?;
    bind(&place, "owns-namespace", "User", "ted").await?;
    let ted = User::new(&place, "ted", None).await?;
    let new = |name: &str| -> Promotion {
        serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": name},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.6.6", "facets": {"a": "6.6.6"}},
        }))
        .unwrap()
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually(WAIT_TIMEOUT, || async {
        let error = message_of(ted.promotions().create(&dry, &new("forged")).await);
        let wanted = "ted may not create promotions rights-record/forged: only the controller does, with the verb record";
        ensure!(error.as_ref().is_err_and(|error| error.contains(wanted)), "{error:?}");
        Ok(())
    })
    .await?;
    let params = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let error = message_of(ted.promotions().patch_status("p", &params, &status).await);
    assert!(
        error
            .as_ref()
            .is_err_and(|error| error.contains("ted may not write the status of promotions rights-record/p")),
        "{error:?}"
    );
    let pipelines: Api<Pipeline> = Api::namespaced(ted.client.clone(), &ted.namespace);
    let evidence = Patch::Merge(json!({"status": {"environments": {}}}));
    let error = message_of(pipelines.patch_status("podinfo", &params, &evidence).await);
    assert!(error.as_ref().is_err_and(|error| error.contains("only the controller does")), "{error:?}");

    // A patch cannot remove the promotion's owner or delete the promotion either.
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}]);
    let place_of = "jane may not change ownerReferences, finalizers or the labels of Sluice on promotions rights-record/p";
    for metadata in [
        json!({"ownerReferences": owner}),
        json!({"finalizers": ["example.com/never"]}),
        json!({"labels": {"pipelines.weave.works/pipeline": "other"}}),
        json!({"labels": {"pipelines.weave.works/environment": "dev"}}),
    ] {
        jane.refused("p", json!({"metadata": metadata}), place_of).await;
    }
    jane.patch("p", json!({"metadata": {"labels": {"team": "web"}}})).await.map_err(anyhow::Error::msg)?;

    // The controller's service account may.
    hub.namespace("sluice-system").await?;
    hub.apply_yaml(&deployed("reader/every-cluster.yaml")?).await?;
    hub.apply_yaml(&deployed("reader/hub.yaml")?).await?;
    hub.apply_yaml(&deployed("rbac.yaml")?).await?;
    let sluice = User::with(&place, "sluice", &hub.service_account("sluice-system", "sluice").await?).await?;
    eventually(WAIT_TIMEOUT, || async {
        message_of(sluice.promotions().create(&dry, &new("recorded")).await).map_err(anyhow::Error::msg)
    })
    .await?;
    message_of(sluice.promotions().patch_status("p", &params, &status).await).map_err(anyhow::Error::msg)
}

/// An object that is larger than etcd stores could not be approved, and its status not be written.
#[tokio::test]
async fn nobody_fills_a_promotion_with_labels_annotations_or_managers() -> Result<()> {
    let People { place: _place, jane, eve, .. } = people("rights-size").await?;
    let keys = |field: &str, from: u32, to: u32, value: Option<&str>| {
        let all: BTreeMap<String, Option<&str>> = (from..to).map(|n| (format!("k{n}"), value)).collect();
        json!({"metadata": {field: all}})
    };
    let wanted =
        "eve may not give promotions rights-size/p more than 32 labels, 32 annotations or 16 managers";
    let admin: Api<Promotion> = Api::namespaced(servers().await?.hub.client().await?, &eve.namespace);
    for field in ["labels", "annotations"] {
        eve.patch("p", keys(field, 0, 32, Some("x"))).await.map_err(anyhow::Error::msg)?;
        eve.refused("p", keys(field, 32, 200, Some("x")), wanted).await;
        // What an administrator has added may stay, and may be removed.
        admin.patch("p", &PatchParams::default(), &Patch::Merge(keys(field, 32, 200, Some("x")))).await?;
        eve.refused("p", keys(field, 200, 201, Some("x")), wanted).await;
        eve.patch("p", keys(field, 100, 101, None)).await.map_err(anyhow::Error::msg)?;
    }

    let mut refused = None;
    for n in 0..20 {
        let applied = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "p", "labels": {"team": "web"}}});
        let params = PatchParams::apply(&format!("manager-{n}"));
        let done = message_of(eve.promotions().patch("p", &params, &Patch::Apply(applied)).await);
        if let Err(error) = done {
            refused = Some(error);
            break;
        }
    }
    assert!(refused.as_ref().is_some_and(|error| error.contains(wanted)), "{refused:?}");
    let approved = jane.sluice(&["approve", "podinfo", "--revision", "6.1.8"]).await;
    assert_eq!(approved.exit, Exit::Ok, "{}", approved.err);
    let rejected = jane.sluice(&["reject", "p", "--reason", "no"]).await;
    assert_eq!(rejected.exit, Exit::Ok, "{}", rejected.err);
    Ok(())
}

#[tokio::test]
async fn another_users_name_is_refused_with_what_to_do() -> Result<()> {
    let place = place("rights-by").await?;
    let ran = place.sluice(&["approve", "podinfo", "-e", "prod", "--by", "joe"]).await;
    assert_eq!(ran.exit, Exit::Usage);
    insta::assert_snapshot!(ran.err, @"
    ✗ --by was removed: an approval is in the name of the user who gives it
      leave --by out; a bot approves as its own user, or as another with --as, if RBAC allows it
    ");
    Ok(())
}
