//! Tips for command lines that clap rejects: what a person most likely meant.

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands that take an environment with `-e`.
const WITH_ENVIRONMENT: [&str; 7] = ["explain", "tree", "history", "charts", "images", "retry", "reconcile"];

/// Returns the error with a tip, if there is one.
pub fn with_tip(mut error: Error) -> Error {
    if let Some(tip) = tip(&error) {
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

fn tip(error: &Error) -> Option<String> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    // Usage: sluice explain [OPTIONS] <NAME>
    let command = usage.split_whitespace().skip_while(|word| *word != "sluice").nth(1)?;
    match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::UnknownArgument, ContextValue::String(word)) => {
            let is_place = !word.starts_with('-') && WITH_ENVIRONMENT.contains(&command);
            is_place.then(|| format!("name an environment with -e: -e {word}"))
        }
        (ErrorKind::MissingRequiredArgument, ContextValue::Strings(missing)) => {
            let tip = match missing.first()?.as_str() {
                "<PIPELINE>" => "sluice get pipelines lists their names",
                "<NAME>" if command == "explain" => {
                    "sluice get pipelines and sluice get promotions list their names"
                }
                _ => return None,
            };
            Some(tip.into())
        }
        _ => None,
    }
}
