//! Where a repository is. Only what git and the forges can be trusted with gets through: a few
//! schemes, no options in disguise, no passwords in the address.

use url::Url;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// It is not one of the forms that are understood.
    #[error(
        "{0:?} is not the address of a repository: write https://host/owner/repository.git or \
         ssh://git@host/owner/repository.git (in short git@host:owner/repository.git)"
    )]
    Invalid(String),
    /// It holds a password.
    #[error("the address of {0} holds a password: take it out, and put username and password in the Secret")]
    Password(String),
    /// It has no owner and name, which forges need.
    #[error("{0} has no owner and name: write https://host/owner/repository")]
    NoOwner(String),
    /// It is a repository's, but not in a form that this forge has.
    #[error("{address} is not the address of a repository at {forge}: write {write}")]
    NotOf {
        /// What was written.
        address: String,
        /// The forge, as people name it.
        forge: &'static str,
        /// What to write instead.
        write: &'static str,
    },
}

impl AddressError {
    /// One word for the condition, the event and the metric alike.
    pub fn reason(&self) -> &'static str {
        "InvalidAddress"
    }
}

/// The address of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As git takes it, without user and password.
    pub(crate) text: String,
    /// `https`, `http`, `ssh` or `file`.
    pub(crate) scheme: String,
    /// Host and port; empty for a file.
    pub(crate) host: String,
    /// The path, without slashes at its ends and without `.git`.
    path: String,
}

impl Address {
    /// Reads an address; `file` is for tests.
    pub(crate) fn parse(text: &str, allow_file: bool) -> Result<Self, AddressError> {
        let invalid = || AddressError::Invalid(text.chars().filter(|c| !c.is_control()).take(200).collect());
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
        if path.is_empty() || host.starts_with('-') || url.username().starts_with('-') {
            return Err(invalid());
        }
        let host = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
        let mut plain = url.clone();
        if url.scheme() != "ssh" {
            let _ = plain.set_username("");
        }
        // The short form is kept: its path begins at the user's home, that of ssh:// at the root.
        let text = if short { text.to_string() } else { plain.to_string() };
        Ok(Address { text, scheme: url.scheme().into(), host, path })
    }

    /// What stands before owner and name in the path, the owner, and the name.
    pub(crate) fn repository(&self) -> Result<(&str, &str, &str), AddressError> {
        let none = || AddressError::NoOwner(self.text.clone());
        let (before, name) = self.path.rsplit_once('/').ok_or_else(none)?;
        let (prefix, owner) = before.rsplit_once('/').unwrap_or(("", before));
        if owner.is_empty() || name.is_empty() { Err(none()) } else { Ok((prefix, owner, name)) }
    }

    /// The parts of the path, as they were meant: `%20` is a space.
    pub(crate) fn parts(&self) -> Vec<String> {
        let plain = |part: &str| {
            // Only `%` is special in a path; the other two are in a form.
            let form = format!("={}", part.replace('+', "%2B").replace('&', "%26"));
            url::form_urlencoded::parse(form.as_bytes()).map(|(_, v)| v.into_owned()).collect::<String>()
        };
        self.path.split('/').filter(|part| !part.is_empty()).map(plain).collect()
    }

    /// The host without its port.
    pub(crate) fn host_name(&self) -> &str {
        self.host.split(':').next().unwrap_or_default()
    }

    /// Where the forge's pages are: scheme and host; SSH addresses mean HTTPS at the same host.
    pub(crate) fn origin(&self) -> String {
        match self.scheme.as_str() {
            "http" => format!("http://{}", self.host),
            "ssh" => format!("https://{}", self.host_name()),
            _ => format!("https://{}", self.host),
        }
    }
}

/// `git@host:owner/repository.git`, the short form of SSH.
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
    fn the_usual_forms_are_understood() {
        let a = Address::parse("https://github.com/acme/fleet", false).unwrap();
        assert_eq!(a.repository().unwrap(), ("", "acme", "fleet"));
        let a = Address::parse("http://user@127.0.0.1:3000/git/acme/fleet.git", false).unwrap();
        assert_eq!(
            (a.text.as_str(), a.host.as_str()),
            ("http://127.0.0.1:3000/git/acme/fleet.git", "127.0.0.1:3000")
        );
        assert_eq!(a.repository().unwrap(), ("git", "acme", "fleet"));
        let a = Address::parse("git@example.com:acme/fleet.git", false).unwrap();
        assert_eq!(a.text, "git@example.com:acme/fleet.git");
        assert_eq!(a.origin(), "https://example.com");
        let a = Address::parse("ssh://git@example.com:2222/acme/fleet.git", false).unwrap();
        assert_eq!(a.origin(), "https://example.com");
    }

    #[test]
    fn what_could_run_or_leak_something_is_refused() {
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
            assert!(Address::parse(text, false).is_err(), "{text}");
        }
        let error = Address::parse("https://me:hunter2@host/a/b", false).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}
