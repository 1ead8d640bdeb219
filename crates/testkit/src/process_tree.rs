//! The memory of a process and its descendants.

use std::collections::HashMap;

use anyhow::Result;

/// The anonymous memory of a process, and of its descendants, in KiB. What files back is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeMemory {
    /// That of the process and its descendants.
    pub all: u64,
    /// That of the descendants alone.
    pub descendants: u64,
}

impl TreeMemory {
    /// Measures the memory of a process and its descendants at this moment. It is zero if there is no such process.
    ///
    /// # Errors
    /// The processes of this machine cannot be listed.
    pub fn of(root: u32) -> Result<TreeMemory> {
        let mut processes = HashMap::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_whitespace().next()?.parse::<u64>().ok()
            };
            let (parent, memory) = (field("PPid:").unwrap_or(0), field("RssAnon:").unwrap_or(0));
            processes.insert(pid, (u32::try_from(parent).unwrap_or(0), memory));
        }
        let is_below = |mut pid: u32| loop {
            match processes.get(&pid) {
                _ if pid == root => return true,
                Some((parent, _)) => pid = *parent,
                None => return false,
            }
        };
        let all = processes.iter().filter(|(pid, _)| is_below(**pid)).map(|(_, (_, memory))| memory).sum();
        let own = processes.get(&root).map_or(0, |(_, memory)| *memory);
        Ok(TreeMemory { all, descendants: all - own })
    }
}
