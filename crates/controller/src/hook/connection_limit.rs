//! How many connections, or long bodies, one peer may have at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A limit of connections, or of long bodies, for each peer.
pub(super) struct ConnectionLimit {
    peers: Mutex<HashMap<IpAddr, usize>>,
    most: usize,
}

/// A connection or long body of a peer. Dropping it makes room for another.
pub(super) struct ConnectionSlot(Arc<ConnectionLimit>, IpAddr);

impl ConnectionLimit {
    /// A limit of `most` for each peer.
    pub(super) fn new(most: usize) -> Self {
        Self { peers: Mutex::default(), most }
    }

    /// Returns a slot for a peer, or `None` if the peer is at its limit.
    pub(super) fn acquire(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let mut all = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(peer).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot(self.clone(), peer))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut all = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}
