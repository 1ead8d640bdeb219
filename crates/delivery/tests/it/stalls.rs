//! Git servers that stall in the middle of a delivery: nobody else waits, nothing is pushed after the delivery was stopped, and
//! the result exists once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_delivery::{Delivered, DeliveryError, DeliveryStrategy, FencingToken, Order};
use sluice_testkit::eventually;

use crate::commit::{server, to_main};
use crate::fixture::{FILE, again, bench, order, yaml};

/// What a server does last before it stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// It is asked for its references, for a fetch.
    RefsToFetch,
    /// It is asked for objects.
    Objects,
    /// It is asked for its references, for a push.
    RefsToPush,
    /// It reads half of the request of a push, which has the pack.
    Pack,
    /// It has moved the branch, and has not answered.
    Report,
}

impl Stall {
    const ALL: [Stall; 5] =
        [Stall::RefsToFetch, Stall::Objects, Stall::RefsToPush, Stall::Pack, Stall::Report];

    /// The text in the request.
    fn request(self) -> &'static str {
        match self {
            Stall::RefsToFetch => "service=git-upload-pack",
            Stall::Objects => "/git-upload-pack HTTP",
            Stall::RefsToPush => "service=git-receive-pack",
            Stall::Pack | Stall::Report => "/git-receive-pack HTTP",
        }
    }
}

/// A proxy in front of a git server that stalls until it is released.
struct StallingProxy {
    url: String,
    stalled: Arc<AtomicUsize>,
    released: Arc<AtomicBool>,
}

impl StallingProxy {
    fn start(url: &str, stall: Stall) -> Self {
        let server = url.split('/').nth(2).unwrap().to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url.replace(&server, &listener.local_addr().unwrap().to_string());
        let proxy = StallingProxy { url, stalled: Arc::default(), released: Arc::default() };
        let (stalled, released) = (proxy.stalled.clone(), proxy.released.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, stalled, released) = (server.clone(), stalled.clone(), released.clone());
                std::thread::spawn(move || serve(client, &server, stall, &stalled, &released));
            }
        });
        proxy
    }

    async fn has_stalled(&self) {
        let has_stalled = async || {
            anyhow::ensure!(self.stalled.load(Ordering::SeqCst) > 0, "it has not stalled");
            Ok(())
        };
        eventually(Duration::from_secs(60), has_stalled).await.unwrap();
    }

    fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    /// The delivery of a version to this server.
    fn order(&self, version: &str) -> Order {
        order(DeliveryStrategy::Commit { url: self.url.clone(), branch: "main".into() }, version)
    }
}

/// Passes a connection on, and stalls when the request comes. All that came before is passed on.
fn serve(
    mut client: TcpStream,
    server: &str,
    stall: Stall,
    stalled: &AtomicUsize,
    released: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    let mut upstream = TcpStream::connect(server)?;
    let (mut answers, mut to_client) = (upstream.try_clone()?, client.try_clone()?);
    let holds_answers = Arc::new(AtomicBool::new(false));
    let (holds, is_released) = (holds_answers.clone(), released.clone());
    let wait = |released: &AtomicBool| {
        while !released.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = answers.read(&mut buffer)?;
            if holds.load(Ordering::SeqCst) {
                wait(&is_released);
            }
            if count == 0 {
                return to_client.shutdown(Shutdown::Both);
            }
            to_client.write_all(&buffer[..count])?;
        }
    });
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = client.read(&mut buffer)?;
        if count == 0 {
            return upstream.shutdown(Shutdown::Both);
        }
        let request = &buffer[..count];
        let is_it = String::from_utf8_lossy(request).contains(stall.request());
        if !is_it || released.load(Ordering::SeqCst) {
            upstream.write_all(request)?;
            continue;
        }
        let before = match stall {
            Stall::Report => count,
            Stall::Pack => count / 2,
            _ => 0,
        };
        holds_answers.store(stall == Stall::Report, Ordering::SeqCst);
        upstream.write_all(&request[..before])?;
        stalled.fetch_add(1, Ordering::SeqCst);
        if stall != Stall::Report {
            wait(released);
            upstream.write_all(&request[before..])?;
        }
    }
}

/// A person suspends the pipeline while the server stalls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_stalls_does_not_go_on_after_the_fencing_token_is_revoked() {
    for stall in [Stall::RefsToPush, Stall::Pack] {
        let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
        let (bench, proxy) = (bench(), StallingProxy::start(repo.url(), stall));
        let before = repo.head("main").unwrap();
        let (delivery, order) = (bench.delivery.clone(), proxy.order("6.1.8"));
        let token = order.fencing_token.clone();
        let delivering = tokio::spawn(async move { delivery.deliver(&order).await });
        proxy.has_stalled().await;
        token.revoke();
        tokio::time::sleep(Duration::from_secs(4)).await;
        proxy.release();
        let ended = tokio::time::timeout(Duration::from_secs(30), delivering).await.unwrap().unwrap();
        match ended {
            // The proxy has passed the whole push on after its client was gone.
            Ok(Delivered::Committed { commit }) if stall == Stall::Pack => {
                assert_eq!(repo.head("main").unwrap(), commit);
            }
            ended => {
                assert!(matches!(ended, Err(DeliveryError::Revoked)), "{stall:?} {ended:?}");
                assert_eq!(repo.head("main").unwrap(), before, "{stall:?}");
            }
        }
        // The pipeline continues.
        let order = Order { fencing_token: FencingToken::default(), ..again(&proxy.order("6.1.8")) };
        bench.delivery.deliver(&order).await.unwrap();
        assert_eq!(repo.log("main").unwrap().len(), 2, "{stall:?}");
    }
}

/// The server has the commit, and its answer comes too late. A try that does not know that finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_arrived_before_it_was_ended_counts_as_delivered() {
    for others_push in [false, true] {
        let (_server, repo) = server(&[(FILE, &yaml("6.1.5"))]);
        let (bench, proxy) = (bench(), StallingProxy::start(repo.url(), Stall::Report));
        let (delivery, order) = (bench.delivery.clone(), proxy.order("6.1.8"));
        let token = order.fencing_token.clone();
        let delivering = tokio::spawn(async move { delivery.deliver(&order).await });
        let has_arrived = async || {
            anyhow::ensure!(repo.log("main")?.len() == 2, "the push has not arrived");
            Ok(())
        };
        eventually(Duration::from_secs(60), has_arrived).await.unwrap();
        let commit = repo.head("main").unwrap();
        let somebody_pushes = |file: &str| repo.commit("main", "other", &[(file, "a: 1\n")]).unwrap();
        if others_push {
            somebody_pushes("first.yaml");
        }
        token.revoke();
        let ended = tokio::time::timeout(Duration::from_secs(60), delivering).await.unwrap().unwrap();
        assert_eq!(ended.unwrap(), Delivered::Committed { commit: commit.clone() }, "{others_push}");
        proxy.release();
        somebody_pushes("second.yaml");
        let order = Order { fencing_token: FencingToken::default(), ..again(&proxy.order("6.1.8")) };
        let done = bench.delivery.deliver(&order).await.unwrap();
        assert_eq!(done, Delivered::Committed { commit }, "{others_push}");
        assert_eq!(repo.log("main").unwrap().len(), 3 + usize::from(others_push));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_at_any_step_delays_no_other_and_gets_the_commit_once() {
    for stall in Stall::ALL {
        let (_one, repo) = server(&[(FILE, &yaml("6.1.5"))]);
        let (_two, other) = server(&[(FILE, &yaml("6.1.5"))]);
        let (bench, proxy) = (bench(), StallingProxy::start(repo.url(), stall));
        let (delivery, order) = (bench.delivery.clone(), proxy.order("6.1.8"));
        let delivering = tokio::spawn(async move { delivery.deliver(&order).await });
        proxy.has_stalled().await;
        let began = Instant::now();
        bench.delivery.deliver(&to_main(&other, "6.1.8")).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "{stall:?} {:?}", began.elapsed());
        assert!(!delivering.is_finished(), "{stall:?}");
        // As if the process ended in between.
        delivering.abort();
        proxy.release();
        let done = bench.delivery.deliver(&again(&proxy.order("6.1.8"))).await.unwrap();
        let log = repo.log("main").unwrap();
        assert_eq!(done, Delivered::Committed { commit: log[0].sha.clone() }, "{stall:?}");
        assert_eq!(log.len(), 2, "{stall:?} {log:?}");
    }
}
