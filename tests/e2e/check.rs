//! `supercargo check` on a real control plane.

use std::process::Output;

use serde_json::json;

use crate::support::{Cluster, output, own_plane};

#[test]
fn check_lists_what_is_missing_and_passes_once_it_is_granted() {
    let Some(plane) = own_plane() else { return };
    let kubeconfig = plane.kubeconfig("powerless").unwrap().display().to_string();
    let check = || {
        let Output { status, stdout, stderr } =
            output(&["check", "--secure-port=0", "--kubeconfig", &kubeconfig]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code(), text(&stdout), text(&stderr))
    };
    let (code, printed, error) = check();
    assert_eq!((code, error.as_str()), (Some(1), ""), "{printed}");
    for line in [
        "  ok    version v1.",
        "  FAIL  no permission to list pods\n",
        "  FAIL  no permission to create pods/binding\n",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    // As many as the access table has, and none twice.
    let missing: Vec<&str> = printed.lines().filter(|line| line.contains("no permission to")).collect();
    let table = crate::support::access::ACCESS.len() + crate::support::access::ELECTION_ACCESS.len();
    assert_eq!(missing.len(), table, "{printed}");

    let cluster = Cluster::of(&plane);
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    cluster.allow("powerless", "everything", &all);
    // The API server learns of a role a little later.
    let mut last = String::new();
    let passes = || {
        let (code, printed, _) = check();
        last = printed;
        (code == Some(0)).then_some(())
    };
    crate::support::eventually("the check passes", std::time::Duration::from_secs(30), passes, String::new);
    assert!(last.contains("all ") && last.ends_with("0 failed, 0 warnings\n"), "{last}");
}
