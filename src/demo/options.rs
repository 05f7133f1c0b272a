//! Options of the demo.

use std::path::PathBuf;

use clap::Args;

/// Largest `--speed`.
const FASTEST: f64 = 1000.0;
/// Smallest `--speed`.
const SLOWEST: f64 = 0.01;

/// The options of `supercargo demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoOptions {
    /// Number of nodes, in three zones (1 to 5000)
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub nodes: u32,
    /// Number of pods (0 to 50000)
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=50000))]
    pub pods: u32,
    /// Seed for nodes and pods; the same seed creates the same ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// KubeSchedulerConfiguration file; pods use its first profile. Defaults to the profile
    /// `supercargo` with all plugins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Speed at which pods arrive: 2 is twice as fast, 0.5 half as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Keep the cluster running at the end, and show how to access it with kubectl
    #[arg(long)]
    pub keep: bool,
    /// Show the page of the scheduler in a browser: print its link, and open it where that is
    /// possible. The cluster keeps running, as with --keep
    #[arg(long)]
    pub ui: bool,
    /// Schedule the pods and workloads in the YAML and JSON files of this folder, on its nodes and
    /// with its devices. Without nodes, the demo's are used
    #[arg(long, value_name = "DIR", conflicts_with = "pods")]
    pub manifests: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let range = || format!("must be a number from {SLOWEST} to {FASTEST}");
    let speed: f64 = text.parse().map_err(|_| range())?;
    if (SLOWEST..=FASTEST).contains(&speed) { Ok(speed) } else { Err(range()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: DemoOptions,
    }

    fn parsed(arguments: &[&str]) -> Result<DemoOptions, String> {
        let arguments = std::iter::once("demo").chain(arguments.iter().copied());
        Line::try_parse_from(arguments).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let cases = [
            (["--nodes", "0"], "0 is not in 1..=5000"),
            (["--nodes", "5001"], "5001 is not in 1..=5000"),
            (["--pods", "50001"], "50001 is not in 0..=50000"),
            (["--pods", "many"], "invalid digit"),
            (["--speed", "0"], "must be a number from 0.01 to 1000"),
            (["--speed", "NaN"], "must be a number from 0.01 to 1000"),
            (["--speed", "fast"], "must be a number from 0.01 to 1000"),
            (["--seed", "-1"], "unexpected argument"),
        ];
        for (arguments, expected) in cases {
            let error = parsed(&arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn defaults_and_speed_are_parsed() {
        let options = parsed(&[]).unwrap();
        assert_eq!((options.nodes, options.pods, options.seed, options.keep), (30, 200, 1, false));
        assert!((parsed(&["--speed", "0.5"]).unwrap().speed - 0.5).abs() < f64::EPSILON);
    }
}
