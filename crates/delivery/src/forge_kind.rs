//! The forges that Sluice can open change requests at.

/// The forges that change requests can be opened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ForgeKind {
    /// github.com and GitHub Enterprise Server.
    GitHub,
    /// gitlab.com and GitLab at other hosts.
    GitLab,
    /// Gitea.
    Gitea,
    /// Forgejo, which has the API of Gitea.
    Forgejo,
    /// Bitbucket Cloud, at bitbucket.org.
    Bitbucket,
    /// Bitbucket Data Center, and Bitbucket Server before it.
    BitbucketServer,
    /// Azure DevOps, and Azure DevOps Server at other hosts.
    AzureDevOps,
}

impl ForgeKind {
    /// All forges.
    pub const ALL: [ForgeKind; 7] = [
        ForgeKind::GitHub,
        ForgeKind::GitLab,
        ForgeKind::Gitea,
        ForgeKind::Forgejo,
        ForgeKind::Bitbucket,
        ForgeKind::BitbucketServer,
        ForgeKind::AzureDevOps,
    ];

    /// The name that the API and metrics use.
    pub fn name(self) -> &'static str {
        match self {
            ForgeKind::GitHub => "github",
            ForgeKind::GitLab => "gitlab",
            ForgeKind::Gitea => "gitea",
            ForgeKind::Forgejo => "forgejo",
            ForgeKind::Bitbucket => "bitbucket",
            ForgeKind::BitbucketServer => "bitbucket-server",
            ForgeKind::AzureDevOps => "azure-devops",
        }
    }

    /// The forge of this name.
    pub fn from_name(name: &str) -> Option<ForgeKind> {
        ForgeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
