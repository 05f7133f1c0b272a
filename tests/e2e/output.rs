//! A log that nobody reads, and the limit of open files.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use supercargo_apiserver::{ApiServer, Listen, sim};
use tokio::runtime::Builder;

use crate::support::{Cluster, command, eventually, node, pod};

/// Ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn scheduler_whose_log_nobody_reads_keeps_scheduling() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = ApiServer::default();
    let (_simulation, endpoint) = runtime.block_on(async {
        (server.simulate(&sim::Options::default()), server.listen(Listen::default()).await.unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let cluster = Cluster::at(&kubeconfig);
    cluster.create(&node("n", &[], &[("cpu", "64"), ("pods", "1000")]));

    // A pipe holds 64 KiB. At this level, the pods cause several times as much.
    let mut command = command(["run", "--leader-elect=false", "--log-level=trace"]);
    command.arg("--kubeconfig").arg(&kubeconfig).stdout(Stdio::null()).stderr(Stdio::piped());
    let supercargo = Process(command.spawn().unwrap());
    for number in 0..300 {
        cluster.create(&pod(&format!("p{number}")).by("supercargo").build());
    }
    for number in 0..300 {
        assert_eq!(cluster.bound_node("default", &format!("p{number}")), "n");
    }

    // The limit of open files is the highest that the system allows.
    let limits = fs::read_to_string(format!("/proc/{}/limits", supercargo.0.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = files.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{files}");

    // Nor does a full pipe keep it from ending.
    let mut supercargo = supercargo;
    let pid = supercargo.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut ended = || supercargo.0.try_wait().unwrap();
    let status = eventually("supercargo ends", Duration::from_secs(30), &mut ended, String::new);
    assert_eq!(status.code(), Some(0));
}
