//! The command `sluice web`: the pages on this machine, with the kubeconfig and the rights of the user.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ring::rand::{SecureRandom, SystemRandom};
use sluice_cli::{ClusterFlags, Exit, Failure, Io, Outcome, OwnHub, Symbol, width_of_stderr};
use sluice_controller::{AllowedHost, AllowedHosts, ControllerOptions, Shown, snapshot_channel};
use sluice_core::fleet::index::Fleet;
use sluice_core::hex::hex;
use sluice_web::Api;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::hub_port::{GitAccess, HubPort};
use crate::log;

/// Arguments of `sluice web`.
#[derive(Args)]
#[command(after_help = "Examples:
  # Open the page of all pipelines that you may see
  sluice web

  # Only those of one namespace, without opening a browser
  sluice web -n apps --no-browser")]
pub struct Flags {
    /// Port on 127.0.0.1; default is a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Only print the link
    #[arg(long)]
    no_browser: bool,
    /// Allow plain http to git servers, to show what a promotion changes, which sends credentials without encryption
    #[arg(long)]
    insecure_git_http: bool,
    /// Allowed hosts of repositories and forges, as for sluice controller: they get credentials from the Secrets that you
    /// may read. Default is any host
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',', env = "SLUICE_ALLOWED_HOSTS")]
    allowed_hosts: Vec<AllowedHost>,
    /// Lowest level to log
    #[arg(long, default_value = "error", value_enum)]
    log_level: log::Level,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Serves the pages until SIGINT or SIGTERM.
pub fn main(flags: &Flags) -> ExitCode {
    log::start(flags.log_level, log::Encoding::Console);
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut io =
        Io { out: &mut out, err: &mut err, color: false, terminal: None, err_width: width_of_stderr() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(flags, &mut io)),
        Err(error) => Err(Failure::new(Exit::Error, format!("cannot start: {error}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            io.fail(&failure);
            failure.exit.into()
        }
    }
}

async fn run(flags: &Flags, io: &mut Io<'_>) -> Outcome {
    let hub = flags.cluster.own_hub().await?;
    let of = hub.namespace.as_ref().map_or("all namespaces".into(), |name| format!("namespace {name}"));
    io.progress(Symbol::Action, &format!("reading the pipelines of {of} as {}", hub.user));
    serve(flags, hub, io).await.map_err(|error| Failure::new(Exit::Error, format!("{error:#}")))
}

async fn serve(flags: &Flags, hub: OwnHub, io: &mut Io<'_>) -> anyhow::Result<()> {
    // Other users of the machine cannot read it.
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir();
    let folder = folder.context("cannot make a temporary folder")?;
    let options = options(flags, &hub, folder.path());
    let delivery = sluice_controller::delivery(&options)?;
    let git = GitAccess::new(&hub.client, &delivery);
    let (fleet, (reader, snapshots)) = (Fleet::default(), snapshot_channel());
    let (code, secret) = (random()?, random()?);
    let port = HubPort::of_own_user(hub.client.clone(), hub.user, &secret, reader, git);
    let api = Api::new(fleet.clone(), port, true).with_sign_in_link(code.clone(), secret);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, flags.port));
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot serve the pages on {address}: is the port taken? choose another --port")
    })?;
    let link = format!("http://{}/sign-in/link/{code}", listener.local_addr()?);
    let opened = if flags.no_browser { None } else { Some(open(&link, folder.path())) };
    announce(&link, opened, io)?;
    let shown = Shown { fleet, snapshots };
    let mut terminated = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! { _ = terminated.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
    };
    tokio::select! {
        ended = sluice_controller::run(options, hub.client, delivery, shown, stop) => Ok(ended?),
        ended = sluice_web::serve(listener, api) => Ok(ended?),
    }
}

/// The settings of a controller that only shows.
fn options(flags: &Flags, hub: &OwnHub, folder: &Path) -> ControllerOptions {
    ControllerOptions {
        watch_namespace: hub.namespace.clone(),
        insecure_git_http: flags.insecure_git_http,
        allowed_hosts: AllowedHosts::new(flags.allowed_hosts.clone()),
        ..ControllerOptions::observer(folder.join("repositories"))
    }
}

/// Says how to get to the pages.
fn announce(link: &str, opened: Option<anyhow::Result<()>>, io: &mut Io<'_>) -> anyhow::Result<()> {
    match opened {
        Some(Ok(())) => io.progress(
            Symbol::Done,
            "opening your browser; if it does not open, use this link, which works once:",
        ),
        Some(Err(error)) => {
            io.progress(Symbol::Failed, &format!("{error:#}"));
            io.progress(Symbol::Action, "open this link, which works once:");
        }
        None => io.progress(Symbol::Action, "open this link, which works once:"),
    }
    io.line(link)?;
    io.flush()?;
    io.note("Ctrl-C ends it.");
    Ok(())
}

/// Opens the link in the user's browser. Other users of the machine see the arguments of programs, so the browser gets a
/// file that leads to the link.
fn open(link: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("sluice.html");
    let page = format!(
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={link}\"><a href=\"{link}\">Sluice</a>"
    );
    std::fs::write(&path, page).context("cannot write a file for the browser")?;
    open::that_detached(&path).context("cannot open a browser")
}

/// Returns 128 random bits as text.
fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(hex(bytes))
}
