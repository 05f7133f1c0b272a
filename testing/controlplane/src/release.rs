//! The Kubernetes releases of API servers.

use std::fmt;

/// A release. Everything except the API server is always of the [`Baseline`](Self::Baseline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// 1.34, the oldest supported release.
    V1_34,
    /// 1.35.
    V1_35,
    /// 1.36.
    V1_36,
    /// The release that supercargo is compared with.
    #[default]
    Baseline,
}

impl Release {
    /// All releases from old to new.
    pub const ALL: [Self; 4] = [Self::V1_34, Self::V1_35, Self::V1_36, Self::Baseline];
    /// The releases before the baseline, from old to new.
    pub const EARLIER: [Self; 3] = [Self::V1_34, Self::V1_35, Self::V1_36];

    /// Its version, as its API server reports it: that of `k8s.io/kubernetes` in the Go module.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V1_34 => "v1.34.10",
            Self::V1_35 => "v1.35.8",
            Self::V1_36 => "v1.36.3",
            Self::Baseline => "v1.37.2",
        }
    }

    /// Its minor version, as in `1.37`.
    pub const fn minor(self) -> &'static str {
        match self {
            Self::V1_34 => "1.34",
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
            Self::Baseline => "1.37",
        }
    }

    /// The file name of its API server.
    pub(crate) const fn apiserver(self) -> &'static str {
        match self {
            Self::V1_34 => "kube-apiserver-1.34",
            Self::V1_35 => "kube-apiserver-1.35",
            Self::V1_36 => "kube-apiserver-1.36",
            Self::Baseline => "kube-apiserver",
        }
    }

    /// The folder of its API server's Go module in this crate; empty for the baseline.
    pub(crate) const fn module(self) -> &'static str {
        match self {
            Self::V1_34 => "apiserver-1.34",
            Self::V1_35 => "apiserver-1.35",
            Self::V1_36 => "apiserver-1.36",
            Self::Baseline => "",
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
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::Release;

    fn go_mod(folder: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("go.mod")).unwrap()
    }

    /// The modules that a `go.mod` requires, with their versions.
    fn required(go_mod: &str) -> BTreeMap<&str, &str> {
        let words = go_mod.lines().map(|line| line.trim_start_matches("require ").split_whitespace());
        let pairs = words.filter_map(|mut words| Some((words.next()?, words.next()?)));
        pairs.filter(|(_, version)| version.starts_with('v')).collect()
    }

    #[test]
    fn modules_share_their_versions_with_the_baseline() {
        let baseline = go_mod("");
        let baseline = required(&baseline);
        for folder in ["kwok", "helm", "apiserver-1.34", "apiserver-1.35", "apiserver-1.36"] {
            let go_mod = go_mod(folder);
            let is_of_release =
                |module: &str| module == "k8s.io/kubernetes" || go_mod.contains(&format!("\t{module} => "));
            let own = required(&go_mod).into_iter().filter(|(module, _)| !is_of_release(module));
            let shared: Vec<_> = own.filter(|(module, _)| baseline.contains_key(module)).collect();
            assert!(shared.len() > 40, "{folder}: {shared:?}");
            for (module, version) in shared {
                assert_eq!(version, baseline[module], "{module} in {folder}/go.mod");
            }
        }
    }

    #[test]
    fn release_versions_match_go_modules() {
        for release in Release::ALL {
            let module = go_mod(release.module());
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
        for release in Release::EARLIER {
            assert!(release.apiserver().ends_with(release.minor()));
            assert!(release.module().ends_with(release.minor()));
        }
    }
}
