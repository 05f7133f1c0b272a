//! `supercargo check` on a real control plane.

use std::process::Output;

use serde_json::json;

use crate::support::access::{ACCESS, ELECTION_ACCESS, GROUP_ACCESS};
use crate::support::{Cluster, output, own_plane};

#[test]
fn check_lists_what_is_missing_and_passes_once_it_is_granted() {
    let Some(plane) = own_plane() else { return };
    let kubeconfig = plane.kubeconfig("powerless").unwrap().display().to_string();
    let check = |gates: &str| {
        let gates = format!("--feature-gates={gates}");
        let Output { status, stdout, stderr } =
            output(&["check", "--secure-port=0", "--kubeconfig", &kubeconfig, &gates]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code(), text(&stdout), text(&stderr))
    };
    let (code, printed, error) = check("");
    assert_eq!((code, error.as_str()), (Some(1), ""), "{printed}");
    for line in [
        "  ok    version v1.",
        "  FAIL  no permission to list pods\n",
        "  FAIL  no permission to create pods/binding\n",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    // As many as the access table has, and none twice.
    let missing = |printed: &str| printed.lines().filter(|line| line.contains("no permission to")).count();
    let table = ACCESS.len() + ELECTION_ACCESS.len();
    assert_eq!(missing(&printed), table, "{printed}");
    let gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true";
    let (_, printed, _) = check(gates);
    assert_eq!(missing(&printed), table + GROUP_ACCESS.len(), "{printed}");

    let cluster = Cluster::of(&plane);
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    cluster.allow("powerless", "everything", &all);
    // The API server learns of a role a little later.
    let mut last = String::new();
    let passes = || {
        let (code, printed, _) = check("");
        last = printed;
        (code == Some(0)).then_some(())
    };
    crate::support::eventually("the check passes", std::time::Duration::from_secs(30), passes, String::new);
    assert!(last.contains("all ") && last.ends_with("0 failed, 0 warnings\n"), "{last}");
}
