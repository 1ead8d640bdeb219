//! Which shard a pipeline belongs to.

use sha2::{Digest, Sha256};

use crate::pipeline_key::PipelineKey;

/// The shard of a pipeline. All replicas, of all versions, must compute the same.
pub fn shard_of(key: &PipelineKey, shards: u32) -> u32 {
    let digest = Sha256::digest(format!("{}/{}", key.namespace, key.name));
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    u32::try_from(number % u64::from(shards.max(1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_keeps_its_shard() {
        let key = |name: &str| PipelineKey { namespace: "apps".into(), name: name.into() };
        // If these change, replicas of two versions act for one pipeline at the same time.
        assert_eq!(["podinfo", "shop", "billing", "search"].map(|n| shard_of(&key(n), 4)), [1, 3, 2, 0]);
        let mut sizes = [0; 8];
        (0..8000).for_each(|i| sizes[shard_of(&key(&format!("app-{i}")), 8) as usize] += 1);
        assert!(sizes.iter().all(|n| (900..1100).contains(n)), "{sizes:?}");
        assert_eq!(shard_of(&key("podinfo"), 1), 0);
    }
}
