//! Validates file paths in volumes and containers.

use super::super::path::Path;
use crate::status::StatusCause;

/// A relative path of a file.
pub(super) fn check_file_path(target: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_descends(target, path, causes);
    if target.starts_with("..") && !target.starts_with("../") {
        causes.push(path.invalid(target, "must not start with '..'"));
    }
}

pub(super) fn check_descends(target: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if target.starts_with('/') {
        causes.push(path.invalid(target, "must be a relative path"));
    }
    check_no_backsteps(target, path, causes);
}

/// A path without `..` segments.
pub(super) fn check_no_backsteps(target: &str, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    if has_backsteps(target) {
        causes.push(path.invalid(target, "must not contain '..'"));
    }
}

pub(super) fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|part| part == "..")
}
