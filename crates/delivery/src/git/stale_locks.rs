//! Removes the files that a killed git leaves behind in a cache.

use std::path::Path;

/// Removes locks and half-written packs.
pub(super) fn remove_stale_locks(dir: &Path, depth: usize) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        // Loose objects are in 256 folders, without locks.
        if kind.is_dir() && depth < 8 && !(name.len() == 2 && dir.ends_with("objects")) {
            remove_stale_locks(&entry.path(), depth + 1)?;
        } else if kind.is_file()
            && (name.ends_with(".lock") || name.starts_with("tmp_") || name.starts_with("fast_import_crash"))
        {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
