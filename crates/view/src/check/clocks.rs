//! The clocks of the machine that checks, of the API server, and of the controller. Decisions do not depend on them, but times that
//! people read do.

use jiff::{SignedDuration, Timestamp};

use super::reading::span;
use super::{Finding, Reading, Topic};

/// A difference that people notice.
const NOTICEABLE: SignedDuration = SignedDuration::from_secs(5);
/// A difference with which tokens and certificates are refused.
const HARMFUL: SignedDuration = SignedDuration::from_mins(5);

/// Whose clock is compared with that of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOf {
    /// That of the machine that runs the command.
    Command,
    /// That of the machine that serves the API.
    Api,
}

impl ClockOf {
    fn machine(self) -> &'static str {
        match self {
            ClockOf::Command => "this machine",
            ClockOf::Api => "the machine that serves this API",
        }
    }
}

/// The clocks.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Whose clock `here` is.
    pub of: ClockOf,
    /// The time of the machine when the API server answered.
    pub here: Timestamp,
    /// The time in the API server's answer, in whole seconds.
    pub server: Reading<Timestamp>,
    /// The newest time that the controller has written, and where.
    pub newest: Option<(Timestamp, String)>,
}

/// Returns the findings.
pub fn findings(facts: &Clocks) -> Vec<Finding> {
    let topic = Topic::Clocks;
    let Some(server) = facts.server.known() else {
        return vec![Finding::warning(
            topic,
            "the API server's answers have no time: the clocks are not checked",
        )];
    };
    let apart = facts.here.duration_since(*server);
    let by = span(apart.abs().as_secs());
    let order = if apart.is_negative() { "behind" } else { "ahead of" };
    let machine = facts.of.machine();
    let what = format!("the clock of {machine} is {by} {order} the API server's");
    let set = "set the clock of the wrong machine by NTP";
    let mut findings = vec![match apart.abs() {
        apart if apart >= HARMFUL => {
            Finding::error(topic, format!("{what}: tokens and certificates may be refused")).fix(set)
        }
        apart if apart >= NOTICEABLE => {
            Finding::warning(topic, format!("{what}: shown ages are wrong")).fix(set)
        }
        _ => Finding::ok(topic, format!("the clock of {machine} agrees with the API server's")),
    }];
    if let Some((newest, place)) = &facts.newest {
        let ahead = newest.duration_since(*server);
        if ahead >= NOTICEABLE {
            let message = format!(
                "the controller's clock is at least {} ahead of the API server's: see {place}",
                span(ahead.as_secs())
            );
            findings.push(Finding::warning(topic, message).fix(set));
        }
    }
    findings
}
