//! The groups of the list of pipelines: by namespace, application or health.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::observed::Health;
use sluice_view::pipeline_screen::PipelineScreen;

use crate::board::ShownPipeline;

/// What the pipelines of one group have in common. A pipeline can be on many clusters, so there are no groups by cluster: a
/// search for the name of a cluster finds its pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// The namespace of the Pipeline.
    Namespace,
    /// The application that the Pipeline names.
    Application,
    /// The worst health of the environments.
    Health,
}

impl Grouping {
    /// All of them.
    pub(crate) const ALL: [Grouping; 3] = [Grouping::Namespace, Grouping::Application, Grouping::Health];

    /// Returns the grouping with this word; `None` if no grouping has it.
    pub(crate) fn parse(word: &str) -> Option<Grouping> {
        Grouping::ALL.into_iter().find(|grouping| grouping.word() == word)
    }

    /// Returns the word in addresses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Grouping::Namespace => "namespace",
            Grouping::Application => "application",
            Grouping::Health => "health",
        }
    }

    /// Returns the group of a pipeline.
    fn of(self, screen: &PipelineScreen) -> GroupName {
        match self {
            Grouping::Namespace => GroupName { title: screen.namespace.clone(), ..GroupName::default() },
            Grouping::Health => {
                let health = screen.health();
                GroupName { rank: urgency(health), title: health.to_string(), detail: String::new() }
            }
            Grouping::Application => match &screen.application {
                Some(application) => {
                    let (title, detail) = (application.name.clone(), application.kind.clone());
                    GroupName { rank: 0, title, detail }
                }
                None => GroupName { rank: 1, title: "Chosen by labels".into(), detail: String::new() },
            },
        }
    }
}

/// Returns the place of a health in the order of urgency.
fn urgency(health: Health) -> usize {
    let order = [
        Health::Failed,
        Health::Unknown,
        Health::Progressing,
        Health::Pending,
        Health::Suspended,
        Health::Ready,
    ];
    order.iter().position(|one| *one == health).unwrap_or(order.len())
}

/// The name of a group. Groups are ordered by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupName {
    rank: usize,
    /// What its heading says.
    pub title: String,
    /// The kind of an application; empty for other groups.
    pub detail: String,
}

/// Returns the pipelines in their groups. The order inside of a group stays.
pub(crate) fn groups<'a>(
    pipelines: &[&'a Arc<ShownPipeline>],
    grouping: Grouping,
) -> BTreeMap<GroupName, Vec<&'a Arc<ShownPipeline>>> {
    let mut groups: BTreeMap<GroupName, Vec<&'a Arc<ShownPipeline>>> = BTreeMap::new();
    for shown in pipelines {
        groups.entry(grouping.of(&shown.screen)).or_default().push(shown);
    }
    groups
}

/// Returns how many pipelines have each health, the most urgent first.
pub(crate) fn by_health(pipelines: &[&Arc<ShownPipeline>]) -> Vec<(Health, usize)> {
    let mut counts: BTreeMap<usize, (Health, usize)> = BTreeMap::new();
    for shown in pipelines {
        let health = shown.screen.health();
        counts.entry(urgency(health)).or_insert((health, 0)).1 += 1;
    }
    counts.into_values().collect()
}
