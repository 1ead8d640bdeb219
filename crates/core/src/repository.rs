//! Addresses of git repositories, and when two of them are the same repository.

use std::fmt;

/// A git repository and a branch of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repository {
    /// The address as its owner wrote it.
    pub url: String,
    /// The branch's name.
    pub branch: String,
}

/// A branch of a repository, in one form for all forms of its address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(String, String);

impl fmt::Display for BranchId {
    /// Writes `host/path branch`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

impl Repository {
    /// Returns true if two values are the same branch of the same repository. The addresses may differ in the scheme
    /// (https or ssh), in `.git`, user or default port, and in the forms that Azure DevOps and Bitbucket have.
    pub fn is_same(&self, other: &Repository) -> bool {
        self.branch == other.branch && bare_address(&self.url) == bare_address(&other.url)
    }

    /// Returns a value that is equal for the same branch of the same repository.
    pub fn id(&self) -> BranchId {
        BranchId(bare_address(&self.url), self.branch.clone())
    }
}

/// Returns the address as `host/path`, without scheme, user, default port and `.git`.
fn bare_address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let scp_like = !url.contains("://");
    let rest = rest.split_once('@').filter(|(user, _)| !user.contains('/')).map_or(rest, |(_, r)| r);
    let rest = if scp_like { rest.replacen(':', "/", 1) } else { rest.to_string() };
    let rest = rest.trim_end_matches('/').trim_end_matches(".git").to_ascii_lowercase();
    match rest.split_once('/') {
        Some((host, path)) => {
            let host = host.trim_end_matches(":443").trim_end_matches(":22").trim_end_matches(":80");
            canonical_address(host, path)
        }
        None => rest,
    }
}

/// Returns one address for all the forms that Azure DevOps and Bitbucket Data Center have for a repository.
fn canonical_address(host: &str, path: &str) -> String {
    let azure = |organization: &str, project: &str, name: &str| {
        format!("dev.azure.com/{organization}/{project}/_git/{name}")
    };
    let parts: Vec<&str> = path.split('/').collect();
    let organization = host.strip_suffix(".visualstudio.com");
    match (host, parts.as_slice()) {
        ("ssh.dev.azure.com" | "vs-ssh.visualstudio.com", ["v3", organization, project, name]) => {
            azure(organization, project, name)
        }
        ("dev.azure.com", [organization, "_git", name]) => azure(organization, name, name),
        (_, ["defaultcollection", "_git", name] | ["_git", name]) if organization.is_some() => {
            azure(organization.unwrap_or_default(), name, name)
        }
        (_, ["defaultcollection", project, "_git", name] | [project, "_git", name])
            if organization.is_some() =>
        {
            azure(organization.unwrap_or_default(), project, name)
        }
        // Bitbucket Data Center has /scm/ only in the path for https.
        (_, [.., "scm", project, name]) => {
            format!("{}/{project}/{name}", host.split(':').next().unwrap_or(host))
        }
        _ => format!("{}/{path}", host.trim_end_matches(":7999")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_is_recognized_in_every_form_of_its_address() {
        let at = |url: &str| Repository { url: url.into(), branch: "main".into() };
        let one = at("https://github.com/org/fleet.git");
        for same in [
            "https://github.com/org/fleet",
            "ssh://git@github.com/org/fleet",
            "ssh://git@github.com:22/org/fleet.git",
            "git@github.com:org/fleet.git",
            "https://user:token@GitHub.com/org/fleet/",
        ] {
            assert!(one.is_same(&at(same)), "{same}");
            assert_eq!(one.id(), at(same).id());
        }
        assert!(!one.is_same(&at("https://github.com/org/fleet2")));
        let azure = at("https://dev.azure.com/acme/platform/_git/fleet");
        for same in [
            "https://acme@dev.azure.com/acme/platform/_git/fleet",
            "git@ssh.dev.azure.com:v3/acme/platform/fleet",
            "ssh://git@ssh.dev.azure.com/v3/acme/platform/fleet",
            "https://acme.visualstudio.com/platform/_git/fleet",
            "https://acme.visualstudio.com/DefaultCollection/platform/_git/fleet",
            "acme@vs-ssh.visualstudio.com:v3/acme/platform/fleet",
        ] {
            assert!(azure.is_same(&at(same)), "{same}");
        }
        assert!(at("https://dev.azure.com/acme/_git/a").is_same(&at("https://acme.visualstudio.com/_git/a")));
        assert!(!azure.is_same(&at("git@ssh.dev.azure.com:v3/acme/other/fleet")));
        let server = at("https://git.example.com:8443/bitbucket/scm/ACME/fleet.git");
        assert!(server.is_same(&at("ssh://git@git.example.com:7999/acme/fleet.git")));
        assert!(!server.is_same(&at("ssh://git@git.example.com:7999/~acme/fleet.git")));
        assert!(!one.is_same(&Repository { branch: "dev".into(), ..one.clone() }));
    }
}
