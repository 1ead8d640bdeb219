//! Objects that are larger than an API server stores.

use kube::core::Status;

/// Whether an API server has refused a write, because the object would be too large: on its own, or because etcd or its client
/// of etcd has refused the write (`ErrGRPCRequestTooLarge` in go.etcd.io/etcd/api/v3/v3rpc/rpctypes).
pub fn is_too_large(status: &Status) -> bool {
    let texts = ["request is too large", "message larger than max"];
    status.code == 413 || texts.iter().any(|text| status.message.contains(text))
}
