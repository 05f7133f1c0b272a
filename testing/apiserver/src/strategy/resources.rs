//! Names and amounts of resources in requests, limits and the capacity of nodes.

use serde_json::Value;

use super::labels;
use super::path::Path;
use crate::quantity::Quantity;
use crate::status::StatusCause;

const STANDARD: [&str; 20] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const HUGE_PAGES: &str = "hugepages-";

/// The name of a resource.
pub(crate) fn check_name(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let wrong = labels::key(name);
    if wrong.is_empty() {
        let is_quota_of_huge_pages =
            is_huge_pages(name) || name.strip_prefix("requests.").is_some_and(is_huge_pages);
        if !name.contains('/') && !STANDARD.contains(&name) && !is_quota_of_huge_pages {
            causes.push(path.invalid(name, "must be a standard resource type or fully qualified"));
        }
    } else {
        path.invalid_all(name, wrong, causes);
    }
}

/// The name of a resource in a container.
pub(crate) fn check_container_name(name: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_name(name, path, causes);
    if name.contains('/') {
        if !is_native(name) && !is_extended(name) {
            causes.push(path.invalid(name, "doesn't follow extended resource name standard"));
        }
    } else if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
        causes.push(path.invalid(name, "must be a standard resource for containers"));
    }
}

/// An amount of a resource.
pub(crate) fn check_amount(name: &str, value: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let amount = Quantity::of(value);
    if amount.is_negative() {
        causes.push(path.invalid(amount, "must be greater than or equal to 0"));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !amount.is_integer() {
        causes.push(path.invalid(amount, "must be an integer"));
    }
}

/// Whether the name is native: without a prefix, or with one in kubernetes.io.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the resource is extended, for example `example.com/gpu`.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && labels::key(&format!("requests.{name}")).is_empty()
}

/// Whether the resource is huge pages.
pub(crate) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether a container's request may be below its limit.
pub(crate) fn may_be_overcommitted(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether an amount is a multiple of the page size.
pub(crate) fn is_whole_pages(name: &str, amount: Quantity) -> bool {
    let size = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok());
    let size = size.filter(|size| size.is_integer()).map_or(0, Quantity::value);
    size > 0 && amount.value() % size == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str) -> Vec<String> {
        let mut causes = Vec::new();
        check_container_name(name, &Path::root("limits"), &mut causes);
        causes.into_iter().map(|cause| cause.message).collect()
    }

    #[test]
    fn containers_may_use_standard_and_extended_resources() {
        for sound in ["cpu", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/x"] {
            assert!(wrong(sound).is_empty(), "{sound}");
        }
        assert_eq!(wrong("pods"), [r#"Invalid value: "pods": must be a standard resource for containers"#]);
        assert_eq!(wrong("gpu").len(), 2);
        assert_eq!(
            wrong("requests.example.com/a"),
            [r#"Invalid value: "requests.example.com/a": doesn't follow extended resource name standard"#]
        );
    }

    #[test]
    fn huge_pages_must_be_whole_pages() {
        let of = |text| Quantity::parse(text).unwrap();
        assert!(is_whole_pages("hugepages-2Mi", of("4Mi")));
        assert!(!is_whole_pages("hugepages-2Mi", of("3Mi")));
        assert!(!is_whole_pages("hugepages-0", of("3Mi")));
        assert!(!is_whole_pages("hugepages-x", of("3Mi")));
    }

    #[test]
    fn extended_resources_must_be_integers() {
        let mut causes = Vec::new();
        check_amount("example.com/gpu", &"1500m".into(), &Path::root("limits"), &mut causes);
        check_amount("cpu", &"-1".into(), &Path::root("limits"), &mut causes);
        let messages: Vec<&str> = causes.iter().map(|cause| cause.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                r#"Invalid value: "1500m": must be an integer"#,
                r#"Invalid value: "-1": must be greater than or equal to 0"#
            ]
        );
    }
}
