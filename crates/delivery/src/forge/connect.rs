//! Chooses the adapter of a forge.

use super::api::Forge;
use super::azure_devops::AzureDevOps;
use super::bitbucket::Bitbucket;
use super::bitbucket_server::BitbucketServer;
use super::connection::ForgeConnection;
use super::error::ForgeResult;
use super::gitea::Gitea;
use super::github::GitHub;
use super::gitlab::GitLab;
use crate::forge_kind::ForgeKind;

/// The repository at its forge. Fails here, before anything is pushed, if the credentials cannot be used.
pub(crate) fn connect(kind: ForgeKind, connection: &ForgeConnection<'_>) -> ForgeResult<Box<dyn Forge>> {
    Ok(match kind {
        ForgeKind::GitHub => Box::new(GitHub::new(connection)?),
        ForgeKind::GitLab => Box::new(GitLab::new(connection)?),
        ForgeKind::Gitea | ForgeKind::Forgejo => Box::new(Gitea::new(kind, connection)?),
        ForgeKind::Bitbucket => Box::new(Bitbucket::new(connection)?),
        ForgeKind::BitbucketServer => Box::new(BitbucketServer::new(connection)?),
        ForgeKind::AzureDevOps => Box::new(AzureDevOps::new(connection)?),
    })
}

#[cfg(test)]
mod tests {
    /// What an adapter reads by name, out of its own source.
    fn read_by_name(source: &str) -> Vec<&str> {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let parts = source.split("[\"").skip(1).filter_map(|rest| rest.split_once("\"]"));
        let names = parts.filter(|(name, after)| {
            // A path of an address is not, nor what is written into a body.
            let written = after.trim_start().starts_with("= ");
            !written && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        names.map(|(name, _)| name).collect()
    }

    #[test]
    fn every_field_that_an_adapter_reads_is_listed() {
        let adapters = [
            include_str!("github.rs"),
            include_str!("gitlab.rs"),
            concat!(include_str!("gitea.rs"), include_str!("gitea_deletion.rs")),
            include_str!("bitbucket.rs"),
            include_str!("bitbucket_server.rs"),
            include_str!("azure_devops.rs"),
        ];
        for source in adapters {
            let (_, fields) = source.split_once("const FIELDS: &str = \"").unwrap();
            let (fields, _) = fields.split_once("\";").unwrap();
            let read = read_by_name(source);
            assert!(read.len() > 15, "{read:?}");
            for name in read {
                let known = fields.split_whitespace().any(|field| field == name);
                let beside = ["message", "errors", "type", "path"].contains(&name)
                    || PATHS.split_whitespace().any(|path| path == name);
                assert!(known || beside, "{name} is read and not among the fields");
            }
        }
    }

    /// Parts of addresses that stand alone in a list, as fields do, and fields of what adapters make themselves.
    const PATHS: &str = "completionOptions graphql OPEN comments conflicts decline merge pullrequests merge_requests timeline \
        users participants threads iterations pulls methods labels pull-requests";
}
