//! The filters of the list of pipelines: what somebody may look for who wants to act.

use sluice_core::observed::Health;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::PipelineScreen;

use crate::problem::Problem;

/// Which pipelines to show: those that stand out for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipelineFilter {
    /// A person has to act.
    Person,
    /// A target or a promotion has failed.
    Failed,
    /// A revision moves.
    Moving,
    /// A target cannot be read.
    Unreadable,
}

impl PipelineFilter {
    /// All, in the order of urgency.
    pub(crate) const ALL: [PipelineFilter; 4] =
        [PipelineFilter::Person, PipelineFilter::Failed, PipelineFilter::Moving, PipelineFilter::Unreadable];

    /// Returns the filter with this word; `None` for all pipelines.
    ///
    /// # Errors
    /// When no filter has this word.
    pub(crate) fn parse(of: &str) -> Result<Option<PipelineFilter>, Problem> {
        let words = PipelineFilter::ALL.map(PipelineFilter::word);
        match PipelineFilter::ALL.into_iter().find(|filter| filter.word() == of) {
            None if of.is_empty() => Ok(None),
            None => {
                Err(Problem::bad_request(format!("of={of:?} is unknown: write one of {}", words.join(", "))))
            }
            found => Ok(found),
        }
    }

    /// Returns the word in addresses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            PipelineFilter::Person => "person",
            PipelineFilter::Failed => "failed",
            PipelineFilter::Moving => "moving",
            PipelineFilter::Unreadable => "unreadable",
        }
    }

    /// Returns the words that people read.
    pub(crate) fn title(self) -> &'static str {
        match self {
            PipelineFilter::Person => "Needs a person",
            PipelineFilter::Failed => "Failed",
            PipelineFilter::Moving => "Moving",
            PipelineFilter::Unreadable => "Not readable",
        }
    }

    /// Returns whether a pipeline is one of these.
    pub(crate) fn is_of(self, screen: &PipelineScreen) -> bool {
        screen.environments.iter().any(|line| match self {
            PipelineFilter::Person => line.situation == Situation::Blocked,
            PipelineFilter::Failed => line.health == Health::Failed || line.is_stuck(screen.suspended),
            PipelineFilter::Moving => line.situation == Situation::Moving,
            PipelineFilter::Unreadable => line.health == Health::Unknown,
        })
    }
}
