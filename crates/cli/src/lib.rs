//! The command line of Sluice, one file for each command. The binary adds its own `controller` to [`Command`], and passes
//! the parsed command to [`main`].

mod add;
mod age;
mod api_errors;
mod approve;
mod charts;
mod check;
mod checkout;
mod checkout_preview;
mod cluster_flags;
mod clusters;
mod command_reference;
mod completion;
mod connection;
mod controller_api;
mod controller_lease;
mod controller_tunnel;
mod crds;
mod document_kind;
mod drawing;
mod events;
mod exit;
mod explain;
mod export;
mod find;
mod flux_plugin;
mod flux_request;
mod flux_wait;
mod get;
mod history;
mod images;
mod json_schema;
mod live_output;
mod load;
mod name_completion;
mod object_argument;
mod objects;
mod output;
mod own_hub;
mod paged_list;
mod place;
mod promotion_change;
mod proxy;
mod reconcile;
mod reject;
mod resume;
mod retry;
mod served_kind;
mod status;
mod suggest;
mod suspend;
mod suspension;
mod table;
mod terminal;
mod trace;
mod tree;
mod triggers;
mod usage_tip;
mod user_name;
mod validate;
mod version;
mod versions;
mod wait;
mod watching;

use std::io::BufWriter;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};

pub use check::{InstallationQuestion, read_installation};
pub use cluster_flags::{CONTROLLER_NAMESPACE, ClusterFlags};
pub use connection::cluster_config;
pub use exit::{Exit, Failure, Outcome};
pub use flux_request::{FluxRequestError, FluxRequests, ReadObject};
pub use json_schema::json_schema;
pub use name_completion::complete;
pub use own_hub::OwnHub;
pub use sluice_view::safe_text;
pub use terminal::{Io, Size, Symbol, width_of_stderr};
pub use usage_tip::with_tip;

/// The commands of `sluice` for people.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show pipelines, promotions and targets
    Get(get::Get),
    /// Show a pipeline on one screen: what runs where, what is being promoted, and what to look at first
    Status(status::Status),
    /// Explain why an environment gets a revision or not, or show the history of a promotion
    Explain(explain::Explain),
    /// Show what a pipeline consists of, from its environments to the images of its workloads
    Tree(tree::Tree),
    /// Show what starts a pipeline: commits, charts, image automations, webhooks and calls
    Triggers(triggers::Triggers),
    /// Trace what runs on a cluster to the source, repository and revision that it comes from
    Trace(trace::Trace),
    /// Show which chart versions run in which environment, and which targets differ
    Charts(charts::Charts),
    /// Show which images run in which environment, and which targets differ
    Images(images::Images),
    /// Show the clusters that pipelines refer to, and whether Sluice can read them
    Clusters(clusters::Clusters),
    /// Show what was promoted, the newest first
    History(history::History),
    /// Show the events of pipelines and promotions
    Events(events::Events),
    /// Approve a pending promotion
    Approve(approve::Approve),
    /// Reject a promotion that is not delivered yet
    Reject(reject::Reject),
    /// Retry a promotion that failed or was rejected, or all that failed
    Retry(retry::Retry),
    /// Stop all promotions of pipelines
    Suspend(suspend::Suspend),
    /// Continue the promotions of suspended pipelines
    Resume(resume::Resume),
    /// Let Flux reconcile the sources and objects of a pipeline now
    Reconcile(reconcile::Reconcile),
    /// Check the installation, and say how to fix what is wrong
    Check(check::Check),
    /// Connect a cluster to the hub
    Add(add::Add),
    /// Validate Pipelines offline, and show what they would set in a checkout
    Validate(validate::Validate),
    /// Print objects that let Flux and forges work with Sluice, ready to commit
    Export(export::Export),
    /// Print the custom resource definitions and the admission policy
    Crds(crds::Crds),
    /// Print the completion script for a shell
    Completion(completion::Completion),
    /// Print the reference of all commands in Markdown
    #[command(hide = true)]
    CommandReference(command_reference::CommandReference),
    /// Print the version
    Version(version::Version),
}

/// The program that the commands are part of.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The version of the program.
    pub version: &'static str,
    /// Returns the whole command line, for shell completion.
    pub cli: fn() -> clap::Command,
}

/// Runs a command with the stdout and stderr of the process, in its own runtime. Call it outside of any other runtime.
pub fn main(command: &Command, program: Program) -> ExitCode {
    let color = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
    let terminal = Size::of_stdout();
    // Without colours, a terminal still moves its cursor.
    let stdout = match terminal {
        Some(_) => AutoStream::always(std::io::stdout()),
        None => AutoStream::auto(std::io::stdout()),
    };
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    let mut err = std::io::stderr();
    let mut io = Io { out: &mut out, err: &mut err, color, terminal, err_width: width_of_stderr() };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(run(command, program, &mut io));
            // A DNS server that does not answer must not delay the end of the process.
            runtime.shutdown_background();
            exit.into()
        }
        Err(error) => {
            io.progress(Symbol::Failed, &format!("cannot start: {error}"));
            Exit::Error.into()
        }
    }
}

/// Runs a command: data to `io.out`, progress and failures to `io.err`.
pub async fn run(command: &Command, program: Program, io: &mut Io<'_>) -> Exit {
    let outcome = match command {
        Command::Get(args) => get::run(args, io).await,
        Command::Status(args) => status::run(args, io).await,
        Command::Explain(args) => explain::run(args, io).await,
        Command::Tree(args) => tree::run(args, io).await,
        Command::Triggers(args) => triggers::run(args, io).await,
        Command::Trace(args) => trace::run(args, io).await,
        Command::Charts(args) => charts::run(args, io).await,
        Command::Images(args) => images::run(args, io).await,
        Command::Clusters(args) => clusters::run(args, io).await,
        Command::History(args) => history::run(args, io).await,
        Command::Events(args) => events::run(args, io).await,
        Command::Approve(args) => approve::run(args, io).await,
        Command::Reject(args) => reject::run(args, io).await,
        Command::Retry(args) => retry::run(args, io).await,
        Command::Suspend(args) => suspend::run(args, io).await,
        Command::Resume(args) => resume::run(args, io).await,
        Command::Reconcile(args) => reconcile::run(args, io).await,
        Command::Check(args) => check::run(args, program.version, io).await,
        Command::Add(args) => add::run(args, io).await,
        Command::Validate(args) => validate::run(args, io),
        Command::Export(args) => export::run(args, io).await,
        Command::Crds(args) => crds::run(args, io),
        Command::Completion(args) => completion::run(args, &(program.cli)(), io),
        Command::CommandReference(_) => command_reference::run((program.cli)(), io),
        Command::Version(args) => version::run(args, program.version, io),
    };
    let outcome = outcome.and_then(|()| Ok(io.flush()?));
    match outcome {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            // The output before the failure comes first.
            let _ = io.flush();
            io.fail(&failure);
            failure.exit
        }
    }
}
