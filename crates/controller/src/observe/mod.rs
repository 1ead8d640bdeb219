//! OBSERVE. A synchronous fold: watch events go in, what each target shows comes out. Nothing here
//! waits or talks to a server.

pub mod debounce;
pub mod facts;
pub mod gave_up;
pub mod health;
pub mod image;
pub mod index;
pub mod reported;
pub mod target;
pub mod trim;
