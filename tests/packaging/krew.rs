//! krew's manifest names what a release publishes.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory as _;
use serde_json::json;
use supercargo::cli::Cli;

use crate::rbac::manifests::{self, text};
use xtask::workspace::items;

#[test]
fn krew_installs_the_program_of_each_archive() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let plugin = manifests::parse(&root.join("manifests/krew/supercargo.yaml"));
    assert_eq!(plugin["metadata"], json!({ "name": "supercargo" }));
    let spec = &plugin["spec"];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(spec["version"], format!("v{version}"));
    // krew shows it in a table.
    assert!(text(&spec["shortDescription"]).len() <= 50);
    assert!(text(&spec["caveats"]).contains("kubectl supercargo pending --standalone"));
    let words = ["supercargo", "pending", "--standalone"];
    Cli::command().try_get_matches_from(words).unwrap();

    let release = manifests::parse(&root.join(".github/workflows/release.yml"));
    let repository = text(&release["env"]["IMAGE"]).trim_start_matches("ghcr.io/");
    let archives = read(".ci/archives");
    assert!(archives.contains("folder=supercargo-$version-${platform/_/-}\n"), "{archives}");
    let mut platforms = BTreeSet::new();
    for platform in items(&spec["platforms"]) {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (text(&labels["os"]), text(&labels["arch"]));
        let folder = format!("supercargo-{version}-{os}-{arch}");
        let url = format!("https://github.com/{repository}/releases/download/v{version}/{folder}.tar.gz");
        assert_eq!(platform["uri"], url);
        let digest = text(&platform["sha256"]);
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        let files =
            ["supercargo", "LICENSE"].map(|file| json!({ "from": format!("{folder}/{file}"), "to": "." }));
        assert_eq!(platform["files"], json!(files));
        assert!(
            archives.contains("$folder/LICENSE") && archives.contains("$folder/supercargo"),
            "{archives}"
        );
        // Under the name that krew gives it, it knows that kubectl runs it.
        assert_eq!(platform["bin"], "supercargo");
        platforms.insert(format!("{os}_{arch}"));
    }
    let expected = archives.lines().find_map(|line| line.strip_prefix("for platform in ")).unwrap();
    assert_eq!(platforms, expected.trim_end_matches("; do").split(' ').map(str::to_owned).collect());
}
