//! `sluice export`: what others need in order to work with Sluice, ready to commit.

mod alert;
mod place;
mod receiver;

use crate::exit::Outcome;
use crate::plain::is_unsafe;
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
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// The longest name of an object, in bytes.
const LONGEST: usize = 253;

/// A name that an object may have: where it is too long, its end gives way to a hash of all of it.
fn named(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.into();
    }
    let hash = hash(&[name]);
    let room = LONGEST - hash.len() - 1;
    let end = (0..=room).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    // No part of a name ends in a sign.
    format!("{}-{hash}", name[..end].trim_end_matches(['-', '.']))
}

/// Tells texts from others, in ten characters.
fn hash(texts: &[&str]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, texts.join("\0").as_bytes());
    hex(&digest.as_ref()[..5])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_ends_in_what_tells_it_from_others() {
        assert_eq!(named("sluice-apps.podinfo.dev"), "sluice-apps.podinfo.dev");
        let (one, other) =
            (format!("sluice-{}.dev", "a".repeat(250)), format!("sluice-{}.qa", "a".repeat(250)));
        let (short, another) = (named(&one), named(&other));
        assert!(short.len() <= 253 && another.len() <= 253 && short != another, "{short} {another}");
        let dotted = named(&format!("{}.{}", "a".repeat(241), "b".repeat(20)));
        assert!(dotted.starts_with(&format!("{}-", "a".repeat(241))), "{dotted}");
    }
}
