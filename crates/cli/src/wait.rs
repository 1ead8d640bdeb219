//! `--wait`: waits until promotions have ended or need a person, and prints one line for each change.

use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use futures::stream::select_all;
use jiff::SignedDuration;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, ResourceExt};
use sluice_api::Promotion;
use sluice_view::change::describe;
use sluice_view::progress::{Course, Progress, progress};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::terminal::{Io, Symbol};
use crate::watching::{self, Report, watch_failure};

/// The flags of commands that can wait for promotions.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitFlags {
    /// Wait until the promotion has ended, or needs a person again
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    longest: LongestWait,
}

/// The flag for the longest time to wait, of commands that have a flag `--wait`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LongestWait {
    /// With --wait: the longest time to wait, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, requires = "wait")]
    pub timeout: SignedDuration,
}

impl LongestWait {
    /// Returns the longest time to wait.
    pub(crate) fn duration(self) -> Duration {
        Duration::try_from(self.timeout).unwrap_or(Duration::MAX)
    }
}

/// Reads a duration such as `90s`, `10m` or `1h30m`.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let read = text.parse::<SignedDuration>().ok().filter(SignedDuration::is_positive);
    read.ok_or_else(|| "write a duration such as 90s, 10m or 1h30m, longer than none".into())
}

/// One promotion that the command waits for.
struct Waiting<'a> {
    promotion: &'a Promotion,
    /// The last progress, which was printed.
    last: Option<Progress>,
    /// True if the promotion has ended or needs a person.
    is_over: bool,
}

impl WaitFlags {
    /// Returns true if the command waits.
    pub(crate) fn is_set(self) -> bool {
        self.wait
    }

    /// With `--wait`, waits until each promotion has ended or needs a person. A promotion of a suspended pipeline needs
    /// one from the start; the caller has said so.
    ///
    /// # Errors
    /// When one of them does not succeed in time; the messages are printed. When the API server refuses the watch.
    pub(crate) async fn until_ended(
        self,
        connection: &Connection,
        promotions: &[Promotion],
        suspended: bool,
        io: &mut Io<'_>,
    ) -> Outcome {
        if !self.wait || promotions.is_empty() {
            return Ok(());
        }
        if suspended {
            return Err(Failure::new(Exit::NeedsPerson, ""));
        }
        let mut waiting: Vec<Waiting<'_>> =
            promotions.iter().map(|promotion| Waiting { promotion, last: None, is_over: false }).collect();
        let what = match promotions {
            [one] => describe(one),
            several => format!("{} promotions", several.len()),
        };
        io.progress(Symbol::Waiting, &format!("waiting for {what}, for at most {:#}", self.longest.timeout));
        let longest = self.longest.duration();
        let mut exits = Vec::new();
        match tokio::time::timeout(longest, observe(connection, &mut waiting, &mut exits, io)).await {
            Ok(outcome) => outcome?,
            Err(_) => {
                exits.push(Exit::TimedOut);
                waiting.iter().for_each(|one| one.report_timeout(self.longest.timeout, io));
            }
        }
        let worst = [Exit::Ended, Exit::TimedOut, Exit::NeedsPerson].into_iter().find(|e| exits.contains(e));
        worst.map_or(Ok(()), |exit| Err(Failure::new(exit, "")))
    }
}

/// Watches the promotions until all are over. Continues after interruptions.
async fn observe(
    connection: &Connection,
    waiting: &mut [Waiting<'_>],
    exits: &mut Vec<Exit>,
    io: &mut Io<'_>,
) -> Outcome {
    let watches = waiting.iter().enumerate().map(|(n, one)| {
        let namespace = one.promotion.namespace().unwrap_or_else(|| connection.namespace.clone());
        let api = |client| Api::<Promotion>::namespaced(client, &namespace);
        let name = format!("metadata.name={}", one.promotion.name_any());
        let reports = watching::reports(connection, api, Config::default().fields(&name));
        reports.map(move |report| (n, report))
    });
    let mut reports = select_all(watches);
    let mut interruption = None;
    let mut is_listed = vec![false; waiting.len()];
    while let Some((n, report)) = reports.next().await {
        let Some(one) = waiting.get_mut(n).filter(|one| !one.is_over) else { continue };
        let event = match report {
            Err(error) => return Err(watch_failure(error, connection)),
            Ok(Report::Interrupted(error)) => {
                let note = watching::interruption(error, connection);
                if interruption.as_ref() != Some(&note) {
                    io.progress(Symbol::Waiting, &note);
                }
                interruption = Some(note);
                continue;
            }
            Ok(Report::Resumed) => {
                interruption = None;
                continue;
            }
            Ok(Report::Event(event)) => event,
        };
        let exit = match event {
            Event::Init => {
                is_listed[n] = false;
                continue;
            }
            Event::Apply(promotion) | Event::InitApply(promotion) => {
                is_listed[n] = true;
                one.update(&promotion, io)
            }
            Event::InitDone if is_listed[n] => continue,
            Event::InitDone | Event::Delete(_) => {
                one.is_over = true;
                io.progress(Symbol::Failed, &format!("{} was deleted", describe(one.promotion)));
                Some(Exit::Ended)
            }
        };
        exits.extend(exit);
        if waiting.iter().all(|one| one.is_over) {
            return Ok(());
        }
    }
    Ok(())
}

impl Waiting<'_> {
    /// Prints a change. Returns the exit code if the promotion is over and has not succeeded.
    fn update(&mut self, promotion: &Promotion, io: &mut Io<'_>) -> Option<Exit> {
        if promotion.uid() != self.promotion.uid() {
            self.is_over = true;
            io.progress(Symbol::Failed, &format!("{} was deleted and created again", describe(promotion)));
            return Some(Exit::Ended);
        }
        let now = progress(promotion);
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        let Progress { course, state, next } = self.last.insert(now);
        let line = format!("{} {state}", describe(promotion));
        let exit = match course {
            Course::Moving => {
                io.progress(Symbol::Action, &line);
                return None;
            }
            Course::Succeeded => {
                io.progress(Symbol::Done, &line);
                None
            }
            Course::NeedsPerson => {
                let mut failure = Failure::new(Exit::NeedsPerson, format!("{line}: a person has to act"));
                failure.hint = next.clone();
                io.fail(&failure);
                Some(Exit::NeedsPerson)
            }
            Course::Ended => {
                let mut failure = Failure::new(Exit::Ended, line);
                failure.hint = next.as_ref().map(|next| format!("try it again: {next}"));
                io.fail(&failure);
                Some(Exit::Ended)
            }
        };
        self.is_over = true;
        exit
    }

    /// Prints that the time is up, if the promotion is not over.
    fn report_timeout(&self, timeout: SignedDuration, io: &mut Io<'_>) {
        if self.is_over {
            return;
        }
        let what = describe(self.promotion);
        let name = self.promotion.name_any();
        let namespace = self.promotion.namespace().unwrap_or_default();
        let state = self.last.as_ref().map_or("was not seen", |last| last.state.as_str());
        let message = format!("the time is up after {timeout:#}: {what} {state}");
        let hint = format!("Sluice continues; see how far it is: sluice explain {name} -n {namespace}");
        io.fail(&Failure::new(Exit::TimedOut, message).hinted(hint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_positive_and_has_units() {
        assert_eq!(duration("90s"), Ok(SignedDuration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(SignedDuration::from_mins(90)));
        for wrong in ["", "10", "0s", "-1m", "soon", "1d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
