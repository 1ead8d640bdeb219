//! A real git server: `git http-backend` behind HTTP with passwords, as a company's own server has
//! it. It counts what is asked of it, and can fail, hang, or lose an answer after the work is done.
//! And a real sshd, for addresses that want it.

mod cgi;
mod program;
mod repo;
mod server;
mod ssh;
mod tap;

pub use repo::{Change, Commit, Landing, Repo};
pub use server::GitServer;
pub use ssh::SshServer;
pub use tap::{Requests, Tap};

pub(crate) use program::{git, read, run};
