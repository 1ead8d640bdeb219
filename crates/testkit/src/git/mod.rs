//! A real git server: `git http-backend` over HTTP with passwords, and a real sshd for SSH addresses. The HTTP server
//! counts requests, and can reject them, hang, or lose an answer after the work is done.

mod accounts;
mod cgi;
mod program;
mod repo;
mod server;
mod ssh;
mod tap;

pub use repo::{FileChange, Landing, LoggedCommit, Repo};
pub use server::GitServer;
pub use ssh::SshServer;
pub use tap::{Requests, Tap};

pub(crate) use program::{git, read, run};
