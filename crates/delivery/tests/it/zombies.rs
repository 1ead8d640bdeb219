//! As the first process of a container, Sluice inherits what a killed git has started.

use std::process::{Command, Stdio};
use std::time::Duration;

use sluice_testkit::eventually;

use crate::commit::{server, to_main};
use crate::fixture::{FILE, bench, yaml};

/// A process of some parent.
#[derive(Debug)]
struct Child {
    pid: u32,
    name: String,
    is_zombie: bool,
}

fn children(parent: u32) -> Vec<Child> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        let Some((pid, name)) = name.split_once(" (") else { continue };
        let mut fields = rest.split(' ');
        let (state, of) = (fields.next().unwrap(), fields.next().unwrap());
        if of == parent.to_string() {
            children.push(Child { pid: pid.parse().unwrap(), name: name.into(), is_zombie: state == "Z" });
        }
    }
    children
}

/// Whether a process has started the program that talks to a server, itself or by others.
fn talks(pid: u32) -> bool {
    children(pid).iter().any(|child| child.name.starts_with("git-remote-") || talks(child.pid))
}

#[tokio::test]
#[ignore = "run by the other test, in a process of its own"]
async fn process_with_cancelled_fetches() {
    if std::env::var_os("TEST_FIRST").is_none() {
        return;
    }
    // Orphans below this process are its children from now on, as they are of process 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
    repo.tap().hang(true);
    let bench = bench();
    for n in 0..3 {
        let order = to_main(&repo, &format!("6.1.{n}"));
        let fetches = async {
            // git has started another program, which talks to the server.
            eventually(Duration::from_secs(20), async || {
                let all = children(std::process::id());
                anyhow::ensure!(all.iter().any(|child| talks(child.pid)), "{all:?}");
                Ok(())
            })
            .await
            .unwrap();
        };
        tokio::select! {
            done = bench.delivery.deliver(&order) => panic!("it was to hang: {done:?}"),
            () = fetches => {}
        }
    }
    repo.tap().hang(false);
    eventually(Duration::from_secs(20), async || {
        let mut left = children(std::process::id());
        // The git server of the test is in this process, too.
        left.retain(|child| child.is_zombie && !child.name.starts_with("git-http-backe"));
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
    bench.delivery.deliver(&to_main(&repo, "6.2.0")).await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_fetches_that_were_cancelled() {
    let status = tokio::task::spawn_blocking(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "zombies::process_with_cancelled_fetches", "--nocapture"])
            .env("TEST_FIRST", "1")
            .stdout(Stdio::null())
            .status()
            .unwrap()
    });
    assert!(status.await.unwrap().success());
}
