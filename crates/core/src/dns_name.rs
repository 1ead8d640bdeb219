//! The DNS names that Kubernetes requires for the names of objects
//! ([dns.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validate/content/dns.go)).

/// Returns true for a DNS label, such as the name of a namespace (`IsDNS1123Label`).
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Returns true for a DNS subdomain, such as the name of a Pipeline: parts with dots between them, which may be longer
/// than 63 (`IsDNS1123Subdomain`).
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(fits) && text.ends_with(fits) && text.chars().all(|c| fits(c) || c == '-')
}
