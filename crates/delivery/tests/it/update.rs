//! Values of a list, in repositories without markers: with real git, and with as few calls.

use sluice_core::setters::{Update, UpdateTarget};
use sluice_delivery::{Delivered, Order, Retry, Values};
use sluice_testkit::Repo;

use crate::commit::{server, to_main};
use crate::fixture::{again, bench, git};

const RELEASE: &str =
    "kind: HelmRelease\r\nmetadata: {name: podinfo}\r\nspec: {chart: {version: '6.1.5'}} # c\r\n";

fn order(repo: &Repo, version: &str, path: &str, kind: &str) -> Order {
    let update = Update {
        path: path.into(),
        kind: Some(kind.into()),
        field: "spec.chart.version".into(),
        ..Update::default()
    };
    let place = |target: &str| UpdateTarget {
        environment: "prod".into(),
        target: target.into(),
        ..UpdateTarget::default()
    };
    let values = Values::Listed { updates: vec![update], places: vec![place("eu"), place("us")] };
    Order { values, ..to_main(repo, version) }
}

#[tokio::test]
async fn the_values_of_each_target_are_set_and_nothing_else() {
    let marker = "v: 6.1.5 # {\"$promotion\": \"apps:podinfo:prod\"}\n";
    let large = "# padding\n".repeat(20_000);
    let other = format!("{large}{RELEASE}");
    let files = [
        ("prod/eu.yaml", RELEASE),
        ("prod/us.yaml", &other),
        ("x/large.yaml", &large),
        ("marked.yaml", marker),
    ];
    let (_server, repo) = server(&files);
    git(repo.folder(), &["config", "uploadpack.allowFilter", "true"], "");
    let bench = bench();
    let order = order(&repo, "6.1.8", "{environment}/{target}.yaml", "HelmRelease");
    let done = bench.delivery.deliver(&order).await.unwrap();
    assert_eq!(done, Delivered::Committed { commit: repo.head("main").unwrap() });
    assert_eq!(repo.read("main", "prod/eu.yaml").unwrap(), RELEASE.replace("6.1.5", "6.1.8"));
    assert_eq!(repo.read("main", "prod/us.yaml").unwrap(), other.replace("6.1.5", "6.1.8"));
    assert_eq!(repo.read("main", "marked.yaml").unwrap(), marker, "with a list, markers are not looked for");
    assert_eq!(git(repo.folder(), &["diff", "--name-only", "main^", "main"], "").lines().count(), 2);
    // One fetch of the commit, and one of the one large file that is meant.
    assert_eq!((bench.delivery.stats().git_fetches, bench.delivery.stats().git_pushes), (2, 1));
    assert_eq!(bench.delivery.deliver(&again(&order)).await.unwrap(), done);
    let same = Order { promotion: "apps/other".into(), ..order };
    let head = repo.head("main").unwrap();
    assert_eq!(bench.delivery.deliver(&same).await.unwrap(), Delivered::AlreadySet { commit: head });
}

#[tokio::test]
async fn a_missing_value_fails_the_delivery_and_names_the_existing_ones() {
    let (_server, repo) =
        server(&[("prod/podinfo.yaml", RELEASE), ("twice.yaml", &format!("{RELEASE}---\n{RELEASE}"))]);
    let bench = bench();
    for (path, kind, reason, words) in [
        (
            "prod/{target}.yaml",
            "HelmRelease",
            "NoFile",
            ["fleet.git at main: update[0]", "prod/podinfo.yaml"],
        ),
        (
            "prod/*.yaml",
            "Kustomization",
            "NoObject",
            ["Kustomization", "prod/podinfo.yaml:1 (HelmRelease/podinfo)"],
        ),
        ("twice.yaml", "HelmRelease", "AmbiguousObject", ["twice.yaml:1", "twice.yaml:5"]),
    ] {
        let error = bench.delivery.deliver(&order(&repo, "6.1.8", path, kind)).await.unwrap_err();
        assert_eq!((error.reason(), error.retry()), (reason, Retry::OnChange), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    assert_eq!(repo.log("main").unwrap().len(), 1);
}
