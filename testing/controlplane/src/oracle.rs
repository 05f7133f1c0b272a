//! Programs of upstream's packages that answer questions line by line: the scheduler's, which plays
//! histories (`oracle/`), and those of devices (`devicesoracle/`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::assets::{Assets, Program};
use crate::shared::required;

/// The running program. `oracle/README.md` and `devicesoracle/main.go` describe input and output.
#[derive(Debug)]
pub struct Oracle {
    child: Child,
    /// Closed to end the program.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the scheduler's program, and builds it first if it is missing.
    pub fn start() -> Result<Self> {
        Self::start_program(Program::Oracle)
    }

    fn start_program(program: Program) -> Result<Self> {
        let program = Assets::locate()?.path(program)?;
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let output = child.stdout.take().context("the oracle's output is a pipe")?;
        Ok(Self { input: child.stdin.take(), child, output: BufReader::new(output) })
    }

    /// [`Oracle::start`], or `None` after printing to stderr why the test is skipped.
    ///
    /// # Panics
    ///
    /// If the program is not available and [`required`].
    pub fn start_or_skip() -> Option<Self> {
        Self::or_skip(Self::start())
    }

    /// As [`Oracle::start_or_skip`], for the program of device selectors and the device allocator.
    pub fn start_devices_or_skip() -> Option<Self> {
        Self::or_skip(Self::start_program(Program::DevicesOracle))
    }

    fn or_skip(started: Result<Self>) -> Option<Self> {
        match started {
            Ok(oracle) => Some(oracle),
            Err(why) if required() => panic!("no oracle: {why:#}"),
            Err(why) => {
                eprintln!("SKIPPED: no oracle: {why:#}");
                None
            }
        }
    }

    /// Asks a question, one line of JSON such as a history, and returns the answer, another line.
    pub fn ask(&mut self, question: &str) -> Result<String> {
        ensure!(!question.contains('\n'), "a question is one line");
        let input = self.input.as_mut().context("the oracle listens as long as it runs")?;
        writeln!(input, "{question}").context("ask the oracle")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).context("hear the oracle")?;
        ensure!(answer.ends_with('\n'), "the oracle has ended without an answer");
        answer.pop();
        Ok(answer)
    }
}

/// The program ends with its input, so also when this process dies.
impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            eprintln!("control plane: wait for the oracle: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Oracle;

    fn object(api_version: &str, kind: &str, name: &str, namespace: Option<&str>, rest: Value) -> Value {
        let mut object = rest;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({
            "name": name,
            "namespace": namespace,
            "uid": format!("{kind}-{name}"),
            "resourceVersion": "1",
            "creationTimestamp": "1999-12-31T00:00:00Z",
            "labels": { "app": "x", "kubernetes.io/hostname": name },
        });
        json!({ "apply": object })
    }

    fn node(name: &str) -> Value {
        let resources = json!({ "cpu": "4", "memory": "8Gi", "pods": "10" });
        object(
            "v1",
            "Node",
            name,
            None,
            json!({ "status": { "allocatable": resources, "capacity": resources } }),
        )
    }

    fn pod(name: &str, cpu: &str, spec: Value) -> Value {
        let mut spec = spec;
        spec["schedulerName"] = json!("supercargo");
        spec["containers"] =
            json!([{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }]);
        object("v1", "Pod", name, Some("default"), json!({ "spec": spec, "status": { "phase": "Pending" } }))
    }

    /// Equal nodes.
    fn nodes() -> Vec<Value> {
        let namespace = object("v1", "Namespace", "default", None, json!({}));
        let nodes = (0..12).map(|i| node(&format!("n{i:02}")));
        std::iter::once(namespace).chain(nodes).collect()
    }

    fn history(steps: &[Value]) -> String {
        json!({ "config": null, "steps": steps }).to_string()
    }

    fn schedule() -> Value {
        json!({ "schedule": true })
    }

    /// Pods that fit every node, and one that names its nodes.
    fn equal_nodes() -> String {
        let mut steps = nodes();
        let names: Vec<Value> = (2..12)
            .map(|i| {
                let field =
                    json!({ "key": "metadata.name", "operator": "In", "values": [format!("n{i:02}")] });
                json!({ "matchFields": [field] })
            })
            .collect();
        let affinity = json!({
            "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": names } },
        });
        steps.extend([pod("a", "1", json!({})), pod("b", "1", json!({ "affinity": affinity }))]);
        steps.extend([schedule(), schedule()]);
        history(&steps)
    }

    /// A preemptor with equal victims.
    fn equal_victims() -> String {
        let mut steps = nodes();
        for i in 0..12 {
            steps.push(pod(
                &format!("low{i:02}"),
                "3",
                json!({ "nodeName": format!("n{i:02}"), "priority": 0 }),
            ));
        }
        steps.extend([
            pod("high", "3", json!({ "priority": 9 })),
            schedule(),
            json!({ "advance": 3 }),
            schedule(),
        ]);
        history(&steps)
    }

    /// A claim with equal volumes.
    fn equal_volumes() -> String {
        let mut steps = nodes();
        let class = json!({ "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" });
        steps.push(object("storage.k8s.io/v1", "StorageClass", "local", None, class));
        let modes = json!(["ReadWriteOnce"]);
        for i in 0..12 {
            let spec = json!({
                "capacity": { "storage": "1Gi" }, "accessModes": modes, "storageClassName": "local",
                "local": { "path": "/data" },
            });
            let volume = json!({ "spec": spec, "status": { "phase": "Available" } });
            steps.push(object("v1", "PersistentVolume", &format!("v{i:02}"), None, volume));
        }
        let request = json!({ "requests": { "storage": "1Gi" } });
        let spec = json!({ "accessModes": modes, "storageClassName": "local", "resources": request });
        steps.push(object("v1", "PersistentVolumeClaim", "c", Some("default"), json!({ "spec": spec })));
        let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
        steps.extend([pod("a", "1", json!({ "volumes": volumes })), schedule(), json!({ "advance": 2 })]);
        history(&steps)
    }

    #[test]
    fn oracle_is_deterministic_where_upstream_is_random() {
        let Some(mut oracle) = Oracle::start_or_skip() else { return };
        let last_cycle = |answer: &str| {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let steps = answer["steps"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
            steps.into_iter().rfind(|step| !step["cycle"].is_null()).unwrap()
        };
        let chosen = last_cycle(&oracle.ask(&equal_nodes()).unwrap());
        assert_eq!(chosen["cycle"]["feasible"].as_array().unwrap().len(), 10);
        assert_eq!(chosen["cycle"]["result"]["node"], "n02");
        let preempted = last_cycle(&oracle.ask(&equal_victims()).unwrap());
        assert_eq!(preempted["cycle"]["pod"], "default/high");
        assert_eq!(preempted["pods"]["default/high"]["node"], "n00");
        let bound = last_cycle(&oracle.ask(&equal_volumes()).unwrap());
        assert_eq!(bound["writes"][0]["name"], "v00");
        assert_eq!(bound["pods"]["default/a"]["place"], "inflight", "nobody has bound the claim");
    }

    #[test]
    fn same_history_gives_the_same_bytes() {
        let histories = [equal_nodes(), equal_victims(), equal_volumes()];
        let Some(mut oracle) = Oracle::start_or_skip() else { return };
        let first: Vec<String> = histories.iter().map(|history| oracle.ask(history).unwrap()).collect();
        for answer in &first {
            assert!(answer.starts_with(r#"{"steps""#), "{answer}");
        }
        // Again in the same process, in another order, and in other processes.
        for (history, answer) in histories.iter().zip(&first).rev() {
            for _ in 0..5 {
                assert_eq!(&oracle.ask(history).unwrap(), answer);
            }
            assert_eq!(&Oracle::start().unwrap().ask(history).unwrap(), answer);
        }
    }

    #[test]
    fn invalid_history_is_answered_and_the_next_one_played() {
        let Some(mut oracle) = Oracle::start_or_skip() else { return };
        let wrong = [
            ("junk", "decode the history"),
            (r#"{"steps":[{}]}"#, "step 0: a step applies, deletes, advances or schedules"),
            (r#"{"steps":[{"apply":{"apiVersion":"v1","kind":"Secret"}}]}"#, "not one of the oracle's"),
            (r#"{"steps":[],"featureGates":{"NoSuchGate":true}}"#, "no feature gate"),
            (r#"{"steps":[],"config":{"apiVersion":"v1","kind":"Pod"}}"#, "decode the configuration"),
        ];
        for (history, why) in wrong {
            let answer = oracle.ask(history).unwrap();
            assert!(answer.starts_with(r#"{"error""#) && answer.contains(why), "{history}: {answer}");
            assert!(oracle.ask(&equal_nodes()).unwrap().starts_with(r#"{"steps""#));
        }
    }
}
