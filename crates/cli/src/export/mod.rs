//! `sluice export`: what others need in order to work with Sluice, ready to commit.

mod alert;
mod place;
mod receiver;

use crate::exit::Outcome;
use crate::sign::Io;

/// Arguments of `sluice export`.
#[derive(clap::Args, Clone, Debug)]
pub struct Export {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Flux's Provider, Alert and Secret with which a pipeline's clusters call its hook
    Alert(alert::Alert),
    /// Flux's Receiver and Secret with which a forge has a pipeline's clusters look at once
    Receiver(Box<receiver::Receiver>),
}

pub(crate) async fn run(args: &Export, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        What::Alert(args) => alert::run(args, io).await,
        What::Receiver(args) => receiver::run(args, io).await,
    }
}

/// Where a server is reached from others.
fn address(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').into())
        }
        _ => Err("write an address such as https://sluice.example.com".into()),
    }
}

/// What somebody wrote into a pipeline, for a comment: on one line to every reader of YAML, so that nothing
/// in it becomes an object that somebody else applies.
fn line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}
