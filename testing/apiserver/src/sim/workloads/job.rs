//! Jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use super::pods::{Pod, Uid};
use super::{BURST, Key, Managed, Workloads, set_counts, template};
use crate::json::{flag, int, list, list_mut, object_mut, text, text_at};
use crate::object::StoredObject;
use crate::sim::conditions::{self, Condition};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const TIMES: [&str; 2] = ["lastProbeTime", "lastTransitionTime"];

/// The finished pods of a job, including those that are gone.
#[derive(Debug, Default)]
pub(super) struct Tally {
    succeeded: FxHashSet<Uid>,
    failed: FxHashSet<Uid>,
    indexes: BTreeSet<i64>,
}

/// How a job ends.
enum End {
    Complete,
    Failed,
}

impl Workloads {
    pub(super) fn reconcile_job(&mut self, key: &Key, job: &Value) {
        let is_done =
            |kind: &str| conditions::find(job, kind).is_some_and(|one| text(one, "status") == "True");
        if is_done("Complete") || is_done("Failed") {
            return;
        }
        let uid = text_at(job, "/metadata/uid");
        let spec = &job["spec"];
        let is_indexed = text(spec, "completionMode") == "Indexed";
        let pods: Vec<Pod> = self.pods.of(uid).cloned().collect();
        let tally = self.jobs.entry(uid.into()).or_default();
        tally.count(&pods);
        let number = |field| int(&job["status"], field).unwrap_or_default();
        let (indexes, succeeded) = if is_indexed {
            (tally.indexes.clone(), tally.indexes.len())
        } else {
            (BTreeSet::new(), tally.succeeded.len())
        };
        let succeeded = number("succeeded").max(i64::try_from(succeeded).unwrap_or_default());
        let failed = number("failed").max(i64::try_from(tally.failed.len()).unwrap_or_default());
        let active: Vec<&Pod> = pods.iter().filter(|pod| pod.is_active()).collect();
        let terminating = pods.iter().filter(|pod| pod.is_terminating()).count();
        let count = i64::try_from(active.len()).unwrap_or_default();
        let completions = int(spec, "completions");
        let is_complete = match completions {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && count == 0,
        };
        let has_failed = failed > int(spec, "backoffLimit").unwrap_or(6);
        let is_suspended = flag(spec, "suspend");
        let parallelism = int(spec, "parallelism").unwrap_or(1);
        let wanted = if has_failed || is_complete || is_suspended {
            0
        } else {
            match completions {
                Some(completions) => parallelism.min(completions - succeeded),
                None if succeeded > 0 => parallelism.min(count),
                None => parallelism,
            }
        };
        let now = self.objects.stamp();
        let is_over = count == 0 && terminating == 0;
        let end = match (has_failed, is_complete) {
            _ if !is_over => None,
            (true, _) => Some(End::Failed),
            (false, true) => Some(End::Complete),
            (false, false) => None,
        };
        let ready = active.iter().filter(|pod| pod.is_ready()).count();
        let mut status = Status {
            active: count,
            ready: i64::try_from(ready).unwrap_or_default(),
            terminating: i64::try_from(terminating).unwrap_or_default(),
            succeeded,
            failed,
            indexes: is_indexed.then(|| intervals(&indexes)),
            is_suspended,
            has_failed,
            end,
        };
        if count > wanted {
            let surplus = usize::try_from(count - wanted).unwrap_or_default();
            let mut doomed = active.clone();
            doomed.sort_by_cached_key(|pod| pod.rank());
            let doomed: Vec<Arc<StoredObject>> =
                doomed[..surplus].iter().map(|pod| Arc::clone(&pod.object)).collect();
            for pod in &doomed {
                self.delete_pod(pod);
            }
        } else if count < wanted {
            // Terminating pods are replaced only after they are gone.
            let missing = wanted - count - i64::try_from(terminating).unwrap_or_default();
            let missing = usize::try_from(missing).unwrap_or_default().min(BURST);
            let taken: BTreeSet<i64> = pods.iter().filter(|pod| !pod.is_over()).filter_map(index).collect();
            let free = (0..completions.unwrap_or_default())
                .filter(|index| !taken.contains(index) && !indexes.contains(index));
            let kind = self.kind(Managed::Job);
            let new: Vec<Value> = if is_indexed {
                free.take(missing).map(|index| indexed_pod(kind, job, index)).collect()
            } else {
                let mut pod = template::pod(kind, job);
                template::generate_name(&mut pod, job);
                std::iter::repeat_n(pod, missing).collect()
            };
            // The new pods will be active in a moment.
            status.active += i64::try_from(new.len()).unwrap_or_default();
            self.create_pods(key, new);
        }
        self.set_status(key, job, |job| status.write(job, &now));
    }
}

struct Status {
    active: i64,
    ready: i64,
    terminating: i64,
    succeeded: i64,
    failed: i64,
    indexes: Option<String>,
    is_suspended: bool,
    has_failed: bool,
    end: Option<End>,
}

impl Status {
    fn write(&self, job: &mut Value, now: &str) {
        let Some(status) = object_mut(job, "status") else { return };
        if !self.is_suspended {
            status.entry("startTime").or_insert_with(|| now.into());
        }
        status.insert("uncountedTerminatedPods".to_owned(), json!({}));
        if let Some(indexes) = self.indexes.as_ref().filter(|indexes| !indexes.is_empty()) {
            status.insert("completedIndexes".to_owned(), indexes.as_str().into());
        }
        let always = [("terminating", self.terminating), ("ready", self.ready)];
        let otherwise = [("active", self.active), ("succeeded", self.succeeded), ("failed", self.failed)];
        set_counts(&mut job["status"], &always, &otherwise);
        let set = |job: &mut Value, kind, reason, message| {
            conditions::set(job, Condition::new(kind, true).because(reason, message), &TIMES, now);
        };
        if self.has_failed {
            let why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
            set(job, "FailureTarget", why.0, why.1);
            if self.end.is_some() {
                set(job, "Failed", why.0, why.1);
            }
        } else if self.end.is_some() {
            let why = ("CompletionsReached", "Reached expected number of succeeded pods");
            set(job, "SuccessCriteriaMet", why.0, why.1);
            set(job, "Complete", why.0, why.1);
            job["status"]["completionTime"] = now.into();
        }
        let was_suspended =
            conditions::find(job, "Suspended").is_some_and(|condition| text(condition, "status") == "True");
        if self.is_suspended && !was_suspended {
            set(job, "Suspended", "JobSuspended", "Job suspended");
        } else if was_suspended && !self.is_suspended {
            let resumed = Condition::new("Suspended", false).because("JobResumed", "Job resumed");
            conditions::set(job, resumed, &TIMES, now);
            job["status"]["startTime"] = now.into();
        }
    }
}

impl Tally {
    fn count(&mut self, pods: &[Pod]) {
        for pod in pods {
            match pod.phase() {
                "Succeeded" => {
                    self.succeeded.insert(pod.object.uid.clone());
                    self.indexes.extend(index(pod));
                }
                "Failed" => {
                    self.failed.insert(pod.object.uid.clone());
                }
                _ => {}
            }
        }
    }
}

fn index(pod: &Pod) -> Option<i64> {
    pod.label(INDEX).parse().ok()
}

fn indexed_pod(kind: &crate::kinds::Kind, job: &Value, index: i64) -> Value {
    let mut pod = template::pod(kind, job);
    let (name, index) = (text_at(job, "/metadata/name"), index.to_string());
    pod["metadata"]["generateName"] = format!("{name}-{index}-").into();
    template::set_label(&mut pod, INDEX, &index);
    template::set_annotation(&mut pod, INDEX, &index);
    let spec = &mut pod["spec"];
    spec["hostname"] = format!("{name}-{index}").into();
    let field = format!("metadata.labels['{INDEX}']");
    let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}});
    for containers in ["initContainers", "containers"] {
        for container in list_mut(spec, containers) {
            let mut variables = list(container, "env").to_vec();
            if variables.iter().all(|known| text(known, "name") != "JOB_COMPLETION_INDEX") {
                variables.push(variable.clone());
                container["env"] = variables.into();
            }
        }
    }
    pod
}

/// Job indexes in the form `0-3,5`. Two consecutive indexes are not an interval.
fn intervals(indexes: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let text = |(first, last): (i64, i64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_formatted_as_intervals() {
        assert_eq!(intervals(&BTreeSet::from([0, 1, 2, 4, 6, 7])), "0-2,4,6,7");
        assert_eq!(intervals(&BTreeSet::new()), "");
    }
}
