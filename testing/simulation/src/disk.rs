//! The disks of machines: each has a configuration file, which stays when its process restarts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::out_of_tree_plugin;
use crate::plan::MACHINES;
use crate::sabotage::Sabotage;

/// The disks.
pub struct Disks {
    folder: tempfile::TempDir,
    /// The number of configurations so far.
    generation: u64,
    /// Which files are incomplete.
    torn: [bool; MACHINES],
    has_extender: bool,
    elects: bool,
    /// Whether gangs wait for their least number of pods.
    gangs: bool,
}

impl Disks {
    /// Disks with the first configuration: with an extender or not, and as the sabotage has it.
    pub fn new(has_extender: bool, sabotage: Option<Sabotage>) -> Result<Self> {
        let (folder, torn) = (tempfile::tempdir()?, [false; MACHINES]);
        let (elects, gangs) = (sabotage != Some(Sabotage::NoElection), sabotage != Some(Sabotage::SplitGang));
        let mut disks = Self { folder, generation: 0, torn, has_extender, elects, gangs };
        disks.change()?;
        Ok(disks)
    }

    /// The configuration file of a machine.
    pub fn path(&self, machine: usize) -> PathBuf {
        self.folder.path().join(format!("{machine}.yaml"))
    }

    /// Whether the file of a machine is incomplete.
    pub fn is_torn(&self, machine: usize) -> bool {
        self.torn[machine]
    }

    /// Gives all machines another configuration.
    pub fn change(&mut self) -> Result<()> {
        self.generation += 1;
        (0..MACHINES).try_for_each(|machine| self.write(machine))
    }

    /// From now on these files are incomplete, and the others are as they should be.
    pub fn tear(&mut self, torn: [bool; MACHINES]) -> Result<()> {
        let before = std::mem::replace(&mut self.torn, torn);
        let mut changed = (0..MACHINES).filter(|machine| before[*machine] != torn[*machine]);
        changed.try_for_each(|machine| self.write(machine))
    }

    fn write(&self, machine: usize) -> Result<()> {
        let text = self.config();
        let length = if self.torn[machine] { text.len() / 2 } else { text.len() };
        fs::write(self.path(machine), &text[..length]).context("cannot write the configuration")
    }

    /// The current configuration.
    fn config(&self) -> String {
        let mut config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {
                "leaderElect": self.elects, "resourceName": "supercargo", "resourceNamespace": "kube-system",
            },
            "profiles": [{
                "schedulerName": "supercargo",
                "plugins": { "multiPoint": { "enabled": [{ "name": out_of_tree_plugin::NAME }] }, "score": {
                    "disabled": [{ "name": "ImageLocality" }],
                    "enabled": [{ "name": "ImageLocality", "weight": self.generation }],
                } },
            }],
        });
        if !self.gangs {
            config["profiles"][0]["plugins"]["multiPoint"]["disabled"] =
                json!([{ "name": "GangScheduling" }]);
        }
        // How nodes are scored and how many, and how long pods back off, changes as well.
        let is_even = self.generation.is_multiple_of(2);
        let strategy = if is_even { "MostAllocated" } else { "LeastAllocated" };
        config["profiles"][0]["pluginConfig"] = json!([{
            "name": "NodeResourcesFit",
            "args": { "scoringStrategy": {
                "type": strategy, "resources": [{ "name": "cpu", "weight": 1 + self.generation % 3 }],
            } },
        }]);
        config["profiles"][0]["percentageOfNodesToScore"] = json!(if is_even { 100 } else { 0 });
        config["podMaxBackoffSeconds"] = json!(if is_even { 5 } else { 10 });
        if self.has_extender {
            config["extenders"] = json!([{
                "urlPrefix": "http://127.0.0.1:9/", "filterVerb": "filter", "prioritizeVerb": "prioritize",
                "weight": 1, "nodeCacheCapable": true, "httpTimeout": "5s", "ignorable": true,
            }]);
        }
        config.to_string()
    }
}
