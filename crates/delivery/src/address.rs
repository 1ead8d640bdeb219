//! Parses addresses of repositories and APIs. An address may have only a few schemes, and only hosts that
//! `--allowed-hosts` names. It may have no password, and no text that git would read as an option.

use std::net::Ipv6Addr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use sluice_core::value_check::is_unsafe;
use url::Url;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// The address has an unknown form.
    #[error(
        "{0:?} is not the address of a repository: write https://host/owner/repository.git or \
         ssh://git@host/owner/repository.git (in short git@host:owner/repository.git)"
    )]
    Invalid(String),
    /// The controller may not connect to the host.
    #[error(
        "the controller may not connect to {0}: write another url, or ask the operator of the controller to add the host to \
         --allowed-hosts"
    )]
    HostNotAllowed(String),
    /// The address of an API cannot be used.
    #[error(
        "{0:?} is not the address of an API: write https://host/path, without user, password, query and fragment"
    )]
    InvalidApi(String),
    /// The address holds a password.
    #[error("the address of {0} holds a password: remove it, and put username and password into the Secret")]
    Password(String),
    /// The address has no owner and name, which forges need.
    #[error("{0} has no owner and name: write https://host/owner/repository")]
    NoOwner(String),
    /// The address is not one of a repository at this forge.
    #[error("{address} is not the address of a repository at {forge}: write {write}")]
    NotOf {
        /// The address.
        address: String,
        /// The name of the forge.
        forge: &'static str,
        /// What to write instead.
        write: &'static str,
    },
}

impl AddressError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            AddressError::HostNotAllowed(_) => "AddressRefused",
            _ => "InvalidAddress",
        }
    }
}

/// The address of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepositoryAddress {
    /// The text for git, without user and password.
    pub(crate) text: String,
    /// `https`, `http`, `ssh` or `file`.
    pub(crate) scheme: String,
    /// Host and port; empty for a file.
    pub(crate) host: String,
    /// The address of the forge's API, if it does not follow from the address of the repository.
    pub(crate) api: Option<String>,
    /// The port, or the default port of the scheme; `None` for a file.
    port: Option<u16>,
    /// The path, without slashes at its ends and without `.git`.
    path: String,
}

impl RepositoryAddress {
    /// Parses an address. `allow_file` is for tests.
    pub(crate) fn parse(text: &str, allow_file: bool) -> Result<Self, AddressError> {
        let invalid = || AddressError::Invalid(text.chars().filter(|c| !is_unsafe(*c)).take(200).collect());
        if text.starts_with('-') || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(invalid());
        }
        let short = !text.contains("://");
        let expanded = if short { from_scp(text).ok_or_else(invalid)? } else { text.to_string() };
        let url = Url::parse(&expanded).map_err(|_| invalid())?;
        if url.password().is_some() {
            return Err(AddressError::Password(url.host_str().unwrap_or_default().into()));
        }
        let known = matches!(url.scheme(), "https" | "http" | "ssh") && url.has_host();
        if !(known || (allow_file && url.scheme() == "file"))
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(invalid());
        }
        let path = url.path().trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).to_string();
        let host = url.host_str().unwrap_or_default().to_string();
        if path.is_empty() || !(is_host(&host) || url.scheme() == "file") || !is_user(url.username()) {
            return Err(invalid());
        }
        let port = url.port().or(default_port(url.scheme()));
        let host = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
        let mut plain = url.clone();
        if url.scheme() != "ssh" {
            let _ = plain.set_username("");
        }
        // The short form is kept, because its path begins at the home folder of the user. The path of ssh:// begins at
        // the root.
        let text = if short { text.to_string() } else { plain.to_string() };
        Ok(RepositoryAddress { text, scheme: url.scheme().into(), host, api: None, port, path })
    }

    /// The path before the owner, the owner, and the name.
    pub(crate) fn repository(&self) -> Result<(&str, &str, &str), AddressError> {
        let none = || AddressError::NoOwner(self.text.clone());
        let (before, name) = self.path.rsplit_once('/').ok_or_else(none)?;
        let (prefix, owner) = before.rsplit_once('/').unwrap_or(("", before));
        if owner.is_empty() || name.is_empty() { Err(none()) } else { Ok((prefix, owner, name)) }
    }

    /// The decoded parts of the path: `%20` is a space.
    pub(crate) fn parts(&self) -> Vec<String> {
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
    }

    /// The host without its port.
    pub(crate) fn host_name(&self) -> &str {
        match self.host.find(']') {
            // An IPv6 address has colons of its own.
            Some(end) => &self.host[..=end],
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    /// Scheme and host of the forge's pages. For an SSH address, HTTPS at the same host.
    pub(crate) fn origin(&self) -> String {
        match self.scheme.as_str() {
            "http" => format!("http://{}", self.host),
            "ssh" => format!("https://{}", self.host_name()),
            _ => format!("https://{}", self.host),
        }
    }
}

/// Whether git and ssh read a text as this host and nothing else. Git decodes `%2F` in the address of SSH before it
/// looks for the host (`parse_connect_url` in connect.c): git connects to `evil` for `evil%2F.example.com`.
fn is_host(host: &str) -> bool {
    let name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let is_name = !host.starts_with(['-', '.']) && !host.is_empty() && host.bytes().all(name);
    is_name || ipv6(host).is_some()
}

/// Whether git and ssh read a text as this user name and nothing else. The name may be empty.
fn is_user(user: &str) -> bool {
    !user.starts_with('-') && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._+~".contains(&b))
}

/// An IPv6 address in brackets.
fn ipv6(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "https" => Some(443),
        "http" => Some(80),
        "ssh" => Some(22),
        _ => None,
    }
}

/// The hosts that repositories and forges may have. All hosts if there is no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<AllowedHost>);

/// One entry of `--allowed-hosts`: `host`, `*.domain` for all hosts below a domain, or `*` for all hosts. With `:port`
/// the entry is for one port, with `:*` for every port, and otherwise for the default port of the scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    name: String,
    port: AllowedPort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedPort {
    Default,
    Any,
    Is(u16),
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?}: write a host such as git.example.com, *.example.com or git.example.com:8443")
        };
        let bracket = text.find(']').map_or(0, |at| at + 1);
        let (raw, port) = match text[bracket..].rsplit_once(':') {
            Some((before, port)) => (&text[..bracket + before.len()], Some(port)),
            None => (text, None),
        };
        let port = match port {
            None => AllowedPort::Default,
            Some("*") => AllowedPort::Any,
            Some(port) => AllowedPort::Is(port.parse().map_err(|_| wrong())?),
        };
        let name = plain(raw);
        let domain = name.strip_prefix("*.").unwrap_or(&name);
        // `*.` is neither a domain nor all hosts.
        let is_name = name == "*" || (is_host(domain) && !domain.contains('*'));
        (is_name && raw != "*.").then_some(()).ok_or_else(wrong)?;
        Ok(AllowedHost { name, port })
    }
}

impl AllowedHost {
    fn admits(&self, host: &str, port: u16, default: u16) -> bool {
        let named = match self.name.strip_prefix('*') {
            Some("") => true,
            // `domain` begins with its dot, so `evilexample.com` is not below `example.com`.
            Some(domain) => host.len() > domain.len() && host.ends_with(domain) && ipv6(host).is_none(),
            None => self.name == host,
        };
        named
            && match self.port {
                AllowedPort::Default => port == default,
                AllowedPort::Any => true,
                AllowedPort::Is(is) => is == port,
            }
    }
}

impl AllowedHosts {
    /// Allows the hosts of these entries.
    pub fn new(entries: Vec<AllowedHost>) -> Self {
        AllowedHosts(entries)
    }

    fn check(&self, name: &str, port: Option<u16>, scheme: &str) -> Result<(), AddressError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let host = plain(name);
        let (Some(port), Some(default)) = (port, default_port(scheme)) else {
            return Err(AddressError::HostNotAllowed("files of its own machine".into()));
        };
        match self.0.iter().any(|one| one.admits(&host, port, default)) {
            true => Ok(()),
            false => Err(AddressError::HostNotAllowed(format!("{host}:{port}"))),
        }
    }

    /// Parses the address of a repository in a Pipeline, and checks its host. `allow_file` is for tests.
    ///
    /// The API of a forge that follows from an allowed address is allowed as well.
    pub(crate) fn repository(&self, text: &str, allow_file: bool) -> Result<RepositoryAddress, AddressError> {
        let address = RepositoryAddress::parse(text, allow_file)?;
        self.check(address.host_name(), address.port, &address.scheme)?;
        Ok(address)
    }

    /// Parses the address of an API in a Pipeline or a Secret, and checks its host. Returns the address without a final
    /// slash.
    pub(crate) fn api(&self, text: &str) -> Result<String, AddressError> {
        let invalid =
            || AddressError::InvalidApi(text.chars().filter(|c| !is_unsafe(*c)).take(200).collect());
        let url = Url::parse(text).map_err(|_| invalid())?;
        let host = url.host_str().unwrap_or_default();
        let is_plain = matches!(url.scheme(), "https" | "http")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain || !is_host(host) {
            return Err(invalid());
        }
        self.check(host, url.port().or(default_port(url.scheme())), url.scheme())?;
        Ok(url.as_str().trim_end_matches('/').to_string())
    }
}

/// Returns the name of a host for comparisons: lower case, no final dot, and an IPv6 address in its shortest form.
fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match ipv6(&name) {
        Some(address) => format!("[{address}]"),
        None => name.strip_suffix('.').unwrap_or(&name).to_string(),
    }
}

/// Returns the ssh:// form of `git@host:owner/repository.git`, the short form of SSH.
fn from_scp(text: &str) -> Option<String> {
    let (host, path) = text.split_once(':')?;
    let plain = |part: &str| !part.is_empty() && !part.contains(['/', '?', '#', '[', ']']);
    (plain(host) && host.contains('@') && !path.is_empty() && !path.starts_with(':'))
        .then(|| format!("ssh://{host}/{}", path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_of_an_address_are_parsed() {
        let a = RepositoryAddress::parse("https://github.com/acme/fleet", false).unwrap();
        assert_eq!(a.repository().unwrap(), ("", "acme", "fleet"));
        let a = RepositoryAddress::parse("http://user@127.0.0.1:3000/git/acme/fleet.git", false).unwrap();
        assert_eq!(
            (a.text.as_str(), a.host.as_str()),
            ("http://127.0.0.1:3000/git/acme/fleet.git", "127.0.0.1:3000")
        );
        assert_eq!(a.repository().unwrap(), ("git", "acme", "fleet"));
        let a = RepositoryAddress::parse("git@example.com:acme/fleet.git", false).unwrap();
        assert_eq!(a.text, "git@example.com:acme/fleet.git");
        assert_eq!(a.origin(), "https://example.com");
        let a = RepositoryAddress::parse("ssh://git@example.com:2222/acme/fleet.git", false).unwrap();
        assert_eq!(a.origin(), "https://example.com");
    }

    #[test]
    fn only_allowed_hosts_are_accepted() {
        let hosts =
            |entries: &[&str]| AllowedHosts::new(entries.iter().map(|e| e.parse().unwrap()).collect());
        let allowed = |entries: &[&str], text: &str| hosts(entries).repository(text, true).is_ok();
        let table: &[(&[&str], &str, bool)] = &[
            (&[], "https://evil.example/a/b", true),
            (&["*"], "https://evil.example/a/b", true),
            (&["*"], "https://evil.example:8443/a/b", false),
            (&["*:*"], "https://evil.example:8443/a/b", true),
            (&["*:*"], "file:///tmp/x", false),
            (&["github.com"], "https://github.com/a/b", true),
            (&["GitHub.com"], "https://GITHUB.com/a/b", true),
            (&["github.com"], "https://github.com./a/b", true),
            (&["github.com."], "https://github.com/a/b", true),
            (&["github.com"], "https://github.com:443/a/b", true),
            (&["github.com"], "https://github.com:22/a/b", false),
            (&["github.com"], "http://github.com/a/b", true),
            (&["github.com"], "ssh://git@github.com/a/b", true),
            (&["github.com"], "ssh://git@GitHub.com/a/b", true),
            (&["github.com"], "git@github.com:a/b", true),
            (&["github.com"], "git@github.com.evil:a/b", false),
            (&["github.com"], "https://github.com@evil.example/a/b", false),
            (&["github.com"], "https://evil.example/github.com/b", false),
            (&["github.com"], "https://evil.example\\@github.com/a/b", false),
            // Git gets the parsed address: https://github.com/.evil.example/a/b.
            (&["github.com"], "https://github.com\\.evil.example/a/b", true),
            (&["github.com"], "https://evilgithub.com/a/b", false),
            (&["*.github.com"], "https://evilgithub.com/a/b", false),
            (&["*.github.com"], "https://github.com/a/b", false),
            (&["*.github.com"], "https://a.b.github.com/a/b", true),
            (&["*.example.com"], "ssh://git@evil%2F.example.com/a/b", false),
            (&["example.com"], "ssh://git%40evil%2F@example.com/a/b", false),
            (&["example.com"], "ssh://git@example.com%00.evil/a/b", false),
            (&["example.com"], "git@evil@example.com:a/b", false),
            (&["example.com"], "ext::sh -c id", false),
            (&["example.com"], "ext::ssh://example.com/a", false),
            (&["example.com:7999"], "ssh://git@example.com:7999/a/b", true),
            (&["example.com:7999"], "ssh://git@example.com/a/b", false),
            (&["[::1]"], "https://[0:0::1]/a/b", true),
            (&["[0::1]:8443"], "https://[::1]:8443/a/b", true),
            (&["[::1]"], "ssh://git@[0::1]/a/b", true),
            (&["[::1]"], "https://[::2]/a/b", false),
            (&["127.0.0.1"], "https://0x7f.1/a/b", true),
            (&["127.0.0.1"], "ssh://git@2130706433/a/b", false),
            (&["127.0.0.1"], "https://[::ffff:127.0.0.1]/a/b", false),
            (&["*.example.com", "github.com"], "https://git.example.com/a/b", true),
        ];
        for (entries, text, expected) in table {
            assert_eq!(allowed(entries, text), *expected, "{entries:?} {text}");
        }
        let error = hosts(&["github.com"]).repository("https://Evil.example:8443/a/b", false).unwrap_err();
        assert!(error.to_string().contains("may not connect to evil.example:8443"), "{error}");
        assert_eq!(error.reason(), "AddressRefused");
        for wrong in
            ["", "*.", "a*b", "*.*", "host:", "host:99999", "https://host", "a b", "-x", "[::1", "host/path"]
        {
            assert!(wrong.parse::<AllowedHost>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_api_is_a_plain_address_at_an_allowed_host() {
        let hosts = AllowedHosts::new(vec!["git.example.com:*".parse().unwrap()]);
        let good = hosts.api("https://Git.example.com:8443/gitea/api/v1/").unwrap();
        assert_eq!(good, "https://git.example.com:8443/gitea/api/v1");
        for text in [
            "https://evil.example/api",
            "https://git.example.com@evil.example/api",
            "https://me:secret@git.example.com/api",
            "https://git.example.com/api?x=1",
            "https://git.example.com/api#x",
            "ssh://git.example.com/api",
            "file:///api",
            "git.example.com/api",
        ] {
            let error = hosts.api(text).unwrap_err().to_string();
            assert!(!error.is_empty(), "{text}");
        }
    }

    #[test]
    fn the_host_of_an_ipv6_address_is_whole() {
        let address = RepositoryAddress::parse("ssh://git@[::1]:2222/a/b", false).unwrap();
        assert_eq!((address.host_name(), address.origin().as_str()), ("[::1]", "https://[::1]"));
    }

    #[test]
    fn addresses_that_run_programs_or_leak_secrets_are_refused() {
        for text in [
            "",
            "-oProxyCommand=x",
            "ext::sh -c id",
            "file:///etc",
            "/etc",
            "https://",
            "https://host",
            "ssh://-oProxyCommand=x/a/b",
            "ssh://-l@host/a/b",
            "git://host/a/b",
            "https://host/a\nb",
            "https://host/a/b?x=1",
            "a:b",
            "fd::17/foo",
        ] {
            assert!(RepositoryAddress::parse(text, false).is_err(), "{text}");
        }
        let error = RepositoryAddress::parse("https://me:hunter2@host/a/b", false).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}
