//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the highest that the system allows. The usual 1024 exist for
/// programs that use `select`; endpoints, extenders and the API server may need more connections.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(?current, ?maximum, "raised the limit of open files"),
        Err(error) => tracing::warn!(%error, ?current, "cannot raise the limit of open files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_open_files_is_raised_to_the_maximum() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let lower = current.or(maximum).map_or(4096, |limit| limit - 1);
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum }).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
