//! The Kubernetes releases of API servers.

use std::fmt;

/// A release. Everything except the API server is always of the [`Baseline`](Self::Baseline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The oldest supported release.
    Oldest,
    /// The release that supercargo is compared with.
    #[default]
    Baseline,
    /// The newest available release.
    Newest,
}

impl Release {
    /// All releases from old to new.
    pub const ALL: [Self; 3] = [Self::Oldest, Self::Baseline, Self::Newest];

    /// Its version, as its API server reports it: that of `k8s.io/kubernetes` in the Go module.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Oldest => "v1.34.10",
            Self::Baseline => "v1.36.3",
            Self::Newest => "v1.37.1",
        }
    }

    /// Its minor version, as in `1.36`.
    pub const fn minor(self) -> &'static str {
        match self {
            Self::Oldest => "1.34",
            Self::Baseline => "1.36",
            Self::Newest => "1.37",
        }
    }

    /// The file name of its API server.
    pub(crate) const fn apiserver(self) -> &'static str {
        match self {
            Self::Oldest => "kube-apiserver-1.34",
            Self::Baseline => "kube-apiserver",
            Self::Newest => "kube-apiserver-1.37",
        }
    }

    /// The folder of its API server's Go module in this crate; empty for the baseline.
    pub(crate) const fn module(self) -> &'static str {
        match self {
            Self::Oldest => "apiserver-1.34",
            Self::Baseline => "",
            Self::Newest => "apiserver-1.37",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Release;

    #[test]
    fn release_versions_match_go_modules() {
        for release in Release::ALL {
            let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(release.module()).join("go.mod");
            let module = fs::read_to_string(module).unwrap();
            let version = release.version();
            let staging = version.replacen("v1", "v0", 1);
            assert!(module.lines().any(|line| line.contains(&format!("k8s.io/kubernetes {version}"))));
            let replaced: Vec<&str> = module.lines().filter(|line| line.contains(" => k8s.io/")).collect();
            assert!(replaced.len() > 30, "{release}: {} staging modules", replaced.len());
            assert!(replaced.iter().all(|line| line.ends_with(&format!(" {staging}"))), "{release}");
            assert!(version.starts_with(&format!("v{}.", release.minor())));
        }
    }

    #[test]
    fn api_servers_of_releases_have_distinct_names() {
        for release in [Release::Oldest, Release::Newest] {
            assert!(release.apiserver().ends_with(release.minor()));
            assert!(release.module().ends_with(release.minor()));
        }
    }
}
