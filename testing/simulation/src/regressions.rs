//! Seeds that failed once, which CI runs again.
//!
//! Another plan or another mix of workload gives a seed another meaning. So each mend has a test of
//! its own beside the mended code, too, where that is possible.

/// A seed that failed.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// What was wrong.
    pub name: &'static str,
    /// The seed.
    pub seed: u64,
    /// The simulated minutes with workload and faults.
    pub minutes: u64,
}

/// All of them.
pub const ALL: &[Regression] = &[
    Regression { name: "an event was demanded of a process that had lost its lease", seed: 3, minutes: 20 },
    Regression {
        name: "evaluation tables exceeded their memory by new reasons of rejections",
        seed: 103,
        minutes: 20,
    },
    Regression {
        name: "evaluation tables exceeded their memory by the domains of many keys",
        seed: 107,
        minutes: 20,
    },
    Regression {
        name: "evaluation tables exceeded their memory by columns, layouts and reads that counted late",
        seed: 3000,
        minutes: 60,
    },
    Regression { name: "the plugin for devices held claims that were gone", seed: 1, minutes: 10 },
];
