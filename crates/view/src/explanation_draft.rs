//! The sentences of an explanation while they are collected.

use sluice_core::Time;

use crate::situation::Situation;

/// The sentences about one environment (or target) while they are collected.
pub(crate) struct Draft {
    /// What the first sentence means.
    pub situation: Situation,
    /// The cause first.
    pub sentences: Vec<String>,
    /// Commands that a person can run.
    pub next: Vec<String>,
    /// When the next automatic try begins.
    pub until: Option<Time>,
    /// Since when the first sentence is so, if that is recorded.
    pub since: Option<Time>,
    /// Since when the sentences are so that are added now.
    pub added_since: Option<Time>,
}

impl Draft {
    pub fn new() -> Self {
        Draft {
            situation: Situation::UpToDate,
            sentences: Vec::new(),
            next: Vec::new(),
            until: None,
            since: None,
            added_since: None,
        }
    }

    pub fn add(&mut self, situation: Situation, sentence: impl Into<String>) {
        if self.sentences.is_empty() {
            (self.situation, self.since) = (situation, self.added_since);
        }
        self.sentences.push(sentence.into());
    }

    /// Adds a sentence. If a person has to act because of it, and because of no other sentence, it is the cause.
    pub fn add_trouble(&mut self, situation: Situation, sentence: String) {
        let is_fine = matches!(
            self.situation,
            Situation::UpToDate | Situation::Observed | Situation::Differs | Situation::Moving
        );
        if situation == Situation::Blocked && is_fine && !self.sentences.is_empty() {
            (self.situation, self.since) = (situation, self.added_since);
            self.sentences.insert(0, sentence);
        } else {
            self.add(situation, sentence);
        }
    }

    /// Adds what to do about a reason, if the controller's message does not say it.
    pub fn advise(&mut self, situation: Situation, reason: &str) {
        let advice = match reason {
            "Merged" | "Committed" => {
                "If this takes long, run flux reconcile source git on the target's cluster."
            }
            "AlreadySet" => {
                "If this takes long, check that the targets read the files with the markers, or those of the update \
                 entries."
            }
            "Notified" => "If this takes long, check that the receiver of the event sets the revision.",
            "Called" | "Accepted" | "Done" => {
                "If this takes long, check what the receiver does after the call."
            }
            "CallbackFailed" => {
                "Fix the cause. If the receiver runs its work again and reports done, the promotion continues."
            }
            "Unhealthy" => {
                "Fix what the message says. If the targets become healthy later, the promotion succeeds."
            }
            "ForgeRefused" => {
                "Do what the forge says, and check that type in the pipeline is that of the forge."
            }
            "GitFailed" => {
                "Look at the error of git. If it lasts, check the repository and the controller's log."
            }
            _ => return,
        };
        self.add(situation, advice);
    }
}
