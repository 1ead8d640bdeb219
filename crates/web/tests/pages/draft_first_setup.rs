//! The first set-up in the form for a Pipeline: from a pasted manifest or an object of the hub, to the proposed files.

use std::time::Instant;

use axum::http::StatusCode;

use super::draft::{NEW, browser, sent, text, with};
use super::fleet;
use sluice_web::ChangeError;

use super::Browser;
use super::world::{World, every_state};

/// A manifest as a browser sends it.
const RELEASE: &str = "apiVersion: helm.toolkit.fluxcd.io/v2\r\nkind: HelmRelease\r\nmetadata:\r\n  name: podinfo\r\n  \
     namespace: apps\r\n  uid: 0b\r\nspec:\r\n  chart:\r\n    spec:\r\n      chart: podinfo\r\n      version: 6.x\r\n      \
     sourceRef: {kind: HelmRepository, name: podinfo}\r\n  values:\r\n    text: </textarea><script>\r\nstatus:\r\n  \
     history:\r\n  - {chartVersion: 6.1.5, status: deployed}\r\n";

/// What a valid first set-up adds to a valid form. The first environment has its manifest in git.
fn set_up<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [("manifest", RELEASE), ("files", "apps/{environment}/podinfo.yaml"), ("e0.t0.git", "yes")];
    let kept = own.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    with(&kept.chain(changes.iter().copied()).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_pasted_manifest_fills_the_form() {
    let admin = browser("admin").await;
    let fields = |manifest| {
        let empty = [("namespace", "shop"), ("e0.name", "dev"), ("e0.t0.namespace", "")];
        [&[("do", "use-manifest"), ("manifest", manifest)], &empty[..]].concat()
    };
    // It runs on one cluster in its namespace: that is where its manifest is in git.
    let shop = RELEASE.replace("name: podinfo\r\n  namespace: apps", "name: shop\r\n  namespace: shop");
    let page = sent(&admin, NEW, &fields(&shop)).await;
    assert_eq!(page.status, StatusCode::OK);
    for field in [
        r#"name="name" value="shop""#,
        r#"name="app" value="shop""#,
        r#"name="files" value="apps/{environment}/shop.yaml""#,
        r#"name="e0.t0.namespace" value="shop""#,
        r#"name="e0.t0.git" value="yes" checked"#,
    ] {
        assert!(page.text.contains(field), "{field}: {}", page.text);
    }
    // It runs on three clusters: the person chooses.
    let page = sent(&admin, NEW, &fields(RELEASE)).await;
    assert!(page.text.contains(r#"name="e0.t0.namespace" value="""#), "{}", page.text);
    assert!(page.text.contains(r#"value="add-place apps fleet/eu""#), "{}", page.text);
    assert!(
        !page.text.contains("uid: 0b") && page.text.contains("chartVersion: &quot;6.1.5"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("</textarea><script>"), "{}", page.text);
}

#[tokio::test]
async fn an_object_of_the_hub_is_read_with_the_rights_of_the_person() {
    let world = World::new(every_state());
    let over = async |token: &str| Browser::over(fleet::index().fleet(), &world, true, token).await;
    let (admin, viewer) = (over("admin").await, over("viewer").await);
    let fields = [("kind", "HelmRelease"), ("app", "shop"), ("namespace", "shop"), ("e0.t0.namespace", "")];
    let offered = sent(&admin, NEW, &fields).await;
    assert!(offered.text.contains(r#"value="read-application shop""#), "{}", offered.text);
    // Also after it has become the target of an environment.
    let added = sent(&admin, NEW, &[&fields[..], &[("do", "add-place shop ")]].concat()).await;
    assert!(added.text.contains(r#"value="read-application shop""#), "{}", added.text);
    let read = [&fields[..], &[("do", "read-application shop")]].concat();
    let page = sent(&admin, NEW, &read).await;
    assert!(page.text.contains(r#"name="e0.t0.namespace" value="shop""#), "{}", page.text);
    assert!(
        page.text.contains("chartVersion: &quot;6.1.5") && !page.text.contains("</textarea><b>"),
        "{}",
        page.text
    );
    let refused = sent(&viewer, NEW, &read).await;
    assert!(
        refused
            .text
            .contains("Cannot read HelmRelease shop/shop with your rights: helmreleases is forbidden")
    );
    assert!(!refused.text.contains("chartVersion"));
    // Names that would lead elsewhere are not asked for.
    for (name, value) in
        [("do", "read-application ../kube-system"), ("app", "../a"), ("kind", "Secret"), ("kind", "")]
    {
        let other = read.iter().filter(|(known, _)| *known != name).copied().chain([(name, value)]);
        let page = sent(&admin, NEW, &other.collect::<Vec<_>>()).await;
        assert!(page.text.contains("Choose a HelmRelease or Kustomization"), "{value}: {}", page.text);
    }
    // What runs there and has no file in git yet would be taken over: the page says so.
    let again =
        [&read[..1], &[("app", "shop"), ("do", "check"), ("e0.t0.namespace", "shop"), ("manifest", RELEASE)]];
    let page = sent(&admin, NEW, &again.concat()).await;
    assert!(page.text.contains("Sluice makes a new file for it"), "{}", page.text);
    // A cluster that is not the hub has no such button: Sluice observes only some fields there.
    let remote = sent(&admin, NEW, &[("kind", "HelmRelease"), ("app", "podinfo")]).await;
    assert!(remote.text.contains("Add as an environment") && !remote.text.contains("read-application"));
}

#[tokio::test]
async fn the_preview_has_every_file_and_what_to_do() {
    let page = sent(&browser("admin").await, NEW, &set_up(&[])).await;
    assert_eq!(page.status, StatusCode::OK);
    let all = text(&page.text);
    let preview =
        all.split_once("Valid: an API server").unwrap().1.split_once("apiVersion: pipelines").unwrap().0;
    insta::assert_snapshot!(preview, @r##"
     accepts this pipeline.
    Environments
    dev
    fleet/eu / apps
    prod
    after dev
    hub / podinfo
    Files of the application
    The value spec.chart.spec.version was 6.x: the files have 6.1.5, which runs now, because a marker needs one version.
    The files name HelmRepository podinfo: these must exist where each file is applied, as must its namespace.
    apps/prod/podinfo.yaml
    prod / podinfo
    apiVersion: helm.toolkit.fluxcd.io/v2
    kind: HelmRelease
    metadata:
      name: podinfo
      namespace: podinfo
    spec:
      chart:
        spec:
          chart: podinfo
          sourceRef:
            kind: HelmRepository
            name: podinfo
          version: &quot;6.1.5&quot; # {&quot;$promotion&quot;: &quot;shop:podinfo:prod&quot;}
      values:
        text: &lt;/textarea&gt;&lt;script&gt;
    dev / eu-apps
    is in git already. It is the first environment, so Sluice writes nothing there.
    The pipeline
    "##);
}

#[tokio::test]
async fn what_is_wrong_is_next_to_the_manifest_and_nothing_is_proposed() {
    let world = World::new(every_state());
    let admin = Browser::over(fleet::index().fleet(), &world, true, "admin").await;
    for (change, words) in [
        (
            ("manifest", "apiVersion: v1\nkind: Secret\ndata: {}\n"),
            "This is a Secret: remove it from the form",
        ),
        (("manifest", "a: ["), "Not YAML"),
        (("files", "../{environment}.yaml"), "May begin with a dot"),
        (("files", ""), "Write one such as"),
        (("app", "web"), "Use one of them for both"),
    ] {
        for step in ["check", "propose", "download"] {
            let page = sent(
                &admin,
                NEW,
                &set_up(&[change, ("do", step), ("path", "a.yaml"), ("confirmed", "seen")]),
            )
            .await;
            let expected = if step == "check" { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
            assert_eq!(page.status, expected, "{change:?}");
            assert!(page.text.to_lowercase().contains(&words.to_lowercase()), "{words}: {}", page.text);
        }
    }
    assert_eq!(world.proposals(), []);
    // An edit has no first set-up.
    let edit = "/pipelines/apps/podinfo/edit";
    let seen = admin.get(edit).await.field("seen");
    let page = sent(&admin, edit, &set_up(&[("seen", &seen)])).await;
    assert!(
        !page.text.contains("First set-up") && !page.text.contains("apps/prod/podinfo.yaml"),
        "{}",
        page.text
    );
}

#[tokio::test]
async fn all_files_are_shown_proposed_and_downloaded() {
    let world = World::new(every_state());
    let admin = Browser::over(fleet::index().fleet(), &world, true, "admin").await;
    let ask = [("do", "propose"), ("path", "apps/pipeline.yaml")];
    let shown = sent(&admin, NEW, &set_up(&ask)).await;
    for words in ["apps/pipeline.yaml", "apps/prod/podinfo.yaml", "kind: Pipeline", "kind: HelmRelease"] {
        assert!(shown.text.contains(words), "{words}: {}", shown.text);
    }
    assert!(!shown.text.contains("<script>\n"), "{}", shown.text);
    let confirmed = [&ask[..], &[("confirmed", "seen")]].concat();
    let done = sent(&admin, NEW, &set_up(&confirmed)).await;
    assert!(done.text.contains("#7"), "{}", done.text);
    let proposal = world.proposals().pop().unwrap();
    let [manifest] = &proposal.manifests[..] else { panic!("{proposal:?}") };
    assert_eq!((manifest.path.as_str(), manifest.is_on_hub), ("apps/prod/podinfo.yaml", true));
    assert!(
        manifest.yaml.contains(r##"version: "6.1.5" # {"$promotion": "shop:podinfo:prod"}"##),
        "{}",
        manifest.yaml
    );
    assert_eq!(manifest.object["metadata"]["namespace"], "podinfo");

    let file = sent(&admin, NEW, &set_up(&[("do", "download")])).await;
    assert!(file.text.contains("---\n# apps/prod/podinfo.yaml\napiVersion: helm"), "{}", file.text);

    for (answer, status) in [
        (ChangeError::Unusable("the path cannot be used".into()), StatusCode::UNPROCESSABLE_ENTITY),
        (ChangeError::Failed("the forge is slow".into()), StatusCode::SERVICE_UNAVAILABLE),
        (ChangeError::Refused("helmreleases is forbidden".into()), StatusCode::FORBIDDEN),
    ] {
        world.answer(Err(answer));
        assert_eq!(sent(&admin, NEW, &set_up(&ask)).await.status, status);
    }
}

/// The clock stands still, as in the test of a huge form.
#[tokio::test(start_paused = true)]
async fn many_large_files_cost_as_much_as_many_requests() {
    let admin = browser("admin").await;
    let large = RELEASE.replace("text: </textarea><script>", &format!("text: {}", "word ".repeat(3000)));
    let (mut names, mut fields) =
        (Vec::new(), set_up(&[("manifest", &large), ("files", "{environment}/{target}.yaml")]));
    for at in 2..16 {
        for (field, value) in
            [("name", format!("e{at}")), ("t0.namespace", "a".into()), ("t1.namespace", "b".into())]
        {
            names.push((format!("e{at}.{field}"), value));
        }
    }
    fields.extend(names.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let began = Instant::now();
    let page = sent(&admin, NEW, &fields).await;
    eprintln!("29 files of 15 KiB: {} bytes, {:?}", page.text.len(), began.elapsed());
    assert!(page.text.contains("Valid: an API server accepts this pipeline"), "{}", text(&page.text));
    // All are sent before the first is answered.
    let answers = futures::future::join_all((0..20).map(|_| sent(&admin, NEW, &fields))).await;
    let refused = answers.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).count();
    assert!((1..20).contains(&refused), "{refused}");
}
