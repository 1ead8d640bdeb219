//! The change of files that a person requests: by change request, once, and only for the texts that the person has seen.

use jiff::Timestamp;
use sluice_delivery::{Delivered, FileChange, Order, RequestedChange};

use crate::any_forge::ForgeFixture;
use crate::change_request::proposed;
use crate::fixture::{FILE, bench, git};

const PATH: &str = "apps/pipelines/podinfo.yaml";

fn file(path: &str, before: Option<&str>, after: &str) -> FileChange {
    FileChange { path: path.into(), before: before.map(String::from), after: after.into() }
}

fn change(path: &str, before: Option<&str>, after: &str) -> RequestedChange {
    RequestedChange { files: vec![file(path, before, after)], person: "anna".into() }
}

/// The order of a person for the repository of a fixture. Each one has another time, as after another click.
fn order(fixture: &ForgeFixture, change: RequestedChange, second: i64) -> Order {
    let of = fixture.order("6.1.8");
    let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
    let order = Order::of_files(("apps", "podinfo"), of.strategy, change, at);
    Order { credentials: of.credentials, ..order }
}

async fn a_file_is_proposed_once(fixture: ForgeFixture) {
    let new = change(PATH, None, "a: 1\n");
    let one = order(&fixture, new.clone(), 1);
    assert_eq!(bench().delivery.files(&one).await.unwrap(), [None]);
    let request = proposed(&bench().delivery, &one).await;
    assert!(request.branch.starts_with("sluice/apps/podinfo/@"), "{}", request.branch);
    assert_eq!(fixture.repo().read(&request.branch, PATH).unwrap(), "a: 1\n");
    let [pull] = &fixture.pulls().await[..] else { panic!("one change request") };
    assert_eq!(pull.title, "Add pipeline apps/podinfo");
    assert!(pull.body.contains("anna") && pull.body.contains(PATH), "{}", pull.body);

    // The second click, at another process, after a commit of somebody else to another file.
    fixture.commit("other", &[("other.yaml", "a: 1\n")]);
    let (again, other) = (order(&fixture, new.clone(), 2), bench());
    assert_eq!(proposed(&other.delivery, &again).await, request);
    assert_eq!(other.delivery.stats().git_pushes, 0);
    // The next promotion has a branch of its own.
    let promotion = proposed(&bench().delivery, &fixture.order("6.1.8")).await;
    assert_ne!(promotion.number, request.number);
    assert_eq!(proposed(&bench().delivery, &again).await, request);
    assert_eq!(fixture.pulls().await.len(), 2);

    // Closed: the person asks again.
    fixture.close(request.number).await;
    let second = proposed(&bench().delivery, &order(&fixture, new.clone(), 3)).await;
    assert_eq!(second.branch, request.branch);
    fixture.merge(second.number).await;
    assert_eq!(fixture.repo().read("main", PATH).unwrap(), "a: 1\n");
    let done = bench().delivery.deliver(&order(&fixture, new, 4)).await.unwrap();
    assert!(matches!(done, Delivered::AlreadySet { .. }), "{done:?}");

    // An edit, for the text that the person has seen.
    let edit = order(&fixture, change(PATH, Some("a: 1\n"), "a: 2\n"), 5);
    assert_eq!(bench().delivery.files(&edit).await.unwrap(), [Some("a: 1\n".into())]);
    let edited = proposed(&bench().delivery, &edit).await;
    assert_eq!(fixture.repo().read(&edited.branch, PATH).unwrap(), "a: 2\n");
    let unseen = order(&fixture, change(PATH, Some("a: 0\n"), "a: 3\n"), 6);
    let pulls = fixture.pulls().await.len();
    let error = bench().delivery.deliver(&unseen).await.unwrap_err();
    assert_eq!(error.reason(), "FileChanged", "{error}");
    assert_eq!(fixture.pulls().await.len(), pulls);
}

#[tokio::test]
async fn a_file_is_proposed_once_at_gitea() {
    a_file_is_proposed_once(ForgeFixture::gitea("file-change").await).await;
}

#[tokio::test]
async fn a_file_is_proposed_once_at_github() {
    a_file_is_proposed_once(ForgeFixture::github().await).await;
}

async fn several_files_are_one_change_request(fixture: ForgeFixture) {
    let files =
        [file(PATH, None, "a: 1\n"), file("dev/b.yaml", None, "b: 1\n"), file("prod/b.yaml", None, "b: 2\n")];
    let change = RequestedChange { files: files.to_vec(), person: "anna".into() };
    let one = order(&fixture, change.clone(), 1);
    assert_eq!(bench().delivery.files(&one).await.unwrap(), [None, None, None]);
    let request = proposed(&bench().delivery, &one).await;
    for file in &files {
        assert_eq!(fixture.repo().read(&request.branch, &file.path).unwrap(), file.after);
    }
    assert_eq!(fixture.repo().files(&request.branch).unwrap().len(), 4);
    let [pull] = &fixture.pulls().await[..] else { panic!("one change request") };
    assert_eq!(pull.title, "Add pipeline apps/podinfo and 2 manifests");
    assert!(files.iter().all(|file| pull.body.contains(&file.path)), "{}", pull.body);
    assert_eq!(proposed(&bench().delivery, &order(&fixture, change.clone(), 2)).await, request);

    // Somebody adds one of the files: it is not overwritten, and no other file is proposed either.
    fixture.commit("other", &[("prod/b.yaml", "b: 3\n")]);
    let texts = bench().delivery.files(&one).await.unwrap();
    assert_eq!(texts, [None, None, Some("b: 3\n".into())]);
    let error = bench().delivery.deliver(&order(&fixture, change.clone(), 3)).await.unwrap_err();
    assert_eq!(error.reason(), "FileChanged", "{error}");
    assert!(error.to_string().contains("prod/b.yaml"), "{error}");
    // The same text is no change.
    fixture.commit("same", &[("prod/b.yaml", "b: 2\n")]);
    let again = proposed(&bench().delivery, &order(&fixture, change, 4)).await;
    let changed = fixture.repo().log(&again.branch).unwrap().remove(0);
    assert!(changed.body.contains("dev/b.yaml"), "{}", changed.body);
}

#[tokio::test]
async fn several_files_are_one_change_request_at_gitea() {
    several_files_are_one_change_request(ForgeFixture::gitea("file-changes").await).await;
}

#[tokio::test]
async fn several_files_are_one_change_request_at_github() {
    several_files_are_one_change_request(ForgeFixture::github().await).await;
}

#[tokio::test]
async fn a_head_of_others_is_replaced() {
    let fixture = ForgeFixture::github().await;
    let one = order(&fixture, change(PATH, None, "a: 1\n"), 1);
    let request = proposed(&bench().delivery, &one).await;
    let own = fixture.repo().log(&request.branch).unwrap().remove(0);
    let message = format!("{}\n\n{}", own.subject, own.body);
    fixture.repo().commit(&request.branch, &message, &[("evil.sh", "rm"), (PATH, "a: 1\n")]).unwrap();
    let again = proposed(&bench().delivery, &order(&fixture, change(PATH, None, "a: 1\n"), 2)).await;
    assert_eq!(again.number, request.number);
    assert_eq!(fixture.repo().files(&again.branch).unwrap(), [PATH, FILE]);
}

#[tokio::test]
async fn no_link_submodule_or_setting_of_a_repository_is_replaced() {
    let fixture = ForgeFixture::github().await;
    let repo = fixture.repo();
    let head = fixture.commit("more", &[("real/a.yaml", "a: 1\n"), ("is-file", "x")]);
    let import = format!(
        "commit refs/heads/main\ncommitter a <a@b> 0 +0000\ndata 1\nx\nfrom {head}\n\
         M 120000 inline link\ndata 4\nreal\nM 120000 inline real/link.yaml\ndata 6\na.yaml\nM 160000 {head} module\ndone\n"
    );
    git(repo.folder(), &["fast-import", "--quiet", "--done"], &import);
    let bench = bench();
    let before = repo.branches().unwrap();
    for (path, words) in [
        ("link/a.yaml", "link is a link: choose another path"),
        ("real/link.yaml", "real/link.yaml is a link"),
        ("module/a.yaml", "module is a submodule"),
        ("is-file/a.yaml", "is-file is a file"),
        (".github/workflows/a.yaml", "no folder and no file may begin with a dot"),
        ("real/../a.yaml", "no folder and no file may begin with a dot"),
    ] {
        let order = order(&fixture, change(path, None, "a: 1\n"), 1);
        let error = bench.delivery.files(&order).await.unwrap_err();
        assert!(error.to_string().contains(words), "{path}: {error}");
        let error = bench.delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "FileNotWritable", "{path}: {error}");
    }
    // One bad path is enough.
    let files = vec![file("b.yaml", None, "b: 1\n"), file("link/a.yaml", None, "a: 1\n")];
    let order_of_both = order(&fixture, RequestedChange { files, person: "anna".into() }, 1);
    let error = bench.delivery.deliver(&order_of_both).await.unwrap_err();
    assert_eq!(error.reason(), "FileNotWritable", "{error}");
    assert_eq!(repo.branches().unwrap(), before);
    let plain = order(&fixture, change("real/a.yaml", None, ""), 1);
    assert_eq!(bench.delivery.files(&plain).await.unwrap(), [Some("a: 1\n".into())]);
}
