//! Places at which crash tests let the process die. `SLUICE_FAULT_POINT=before-push` kills it when
//! it gets there, `before-push:3` the third time. Nothing happens where the variable is not set.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Planned {
    name: String,
    left: AtomicU64,
}

static PLANNED: OnceLock<Option<Planned>> = OnceLock::new();

/// Ends the process with SIGKILL if the environment asks for it at this point.
pub fn point(name: &str) {
    let Some(planned) = PLANNED.get_or_init(planned) else { return };
    if planned.name == name && planned.left.fetch_sub(1, Ordering::SeqCst) == 1 {
        eprintln!("fault point {name}: killed");
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

fn planned() -> Option<Planned> {
    parse(&std::env::var("SLUICE_FAULT_POINT").ok()?)
}

fn parse(text: &str) -> Option<Planned> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let count = count.parse().ok().filter(|n| *n > 0)?;
    (!name.is_empty()).then(|| Planned { name: name.into(), left: AtomicU64::new(count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_point_has_a_name_and_a_count() {
        let read = |text| parse(text).map(|p| (p.name, p.left.into_inner()));
        assert_eq!(read("before-push"), Some(("before-push".into(), 1)));
        assert_eq!(read("after-open:3"), Some(("after-open".into(), 3)));
        assert_eq!(read(""), None);
        assert_eq!(read("x:0"), None);
    }
}
