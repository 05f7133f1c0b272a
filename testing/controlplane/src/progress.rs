//! Progress of builds, as plain lines on stderr.
//!
//! The lines bypass libtest, which captures what `eprintln!` writes during a test that passes.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::assets::{Assets, Program};
use crate::release::Release;

/// Builds of this process; `None` before the first.
static BUILDS: Mutex<Option<Builds>> = Mutex::new(None);

/// Builds shorter than this say nothing about the machine's speed.
const SHORT: f64 = 20.0;

/// Writes a line to stderr, even while libtest captures the output of a test.
pub(crate) fn say(line: &str) {
    // Progress is not worth failing for.
    let _ = writeln!(io::stderr(), "control plane: {line}");
}

/// One running build.
#[derive(Debug)]
pub(crate) struct Build {
    program: Program,
    began: Instant,
}

impl Build {
    /// Announces a build: which of how many, and about how long all of them take.
    pub(crate) fn begin(program: Program) -> Self {
        let build = Self { program, began: Instant::now() };
        with_builds(|builds| {
            builds.begin(program);
            let (number, all) = (builds.begun.len(), builds.missing.len());
            let left = minutes(builds.left(Instant::now()));
            say(&format!("building {} ({number} of {all}), {left}", label(program)));
        });
        build
    }

    /// Reports that the build still runs.
    pub(crate) fn still_running(&self) {
        with_builds(|builds| {
            let (seconds, left) = (self.began.elapsed().as_secs(), minutes(builds.left(Instant::now())));
            say(&format!("still building {} after {seconds} s, {left}", label(self.program)));
        });
    }

    /// Reports that the build has succeeded.
    pub(crate) fn finish(self) {
        let took = self.began.elapsed();
        with_builds(|builds| builds.finished.push((self.program, took)));
        say(&format!("built {} in {} s", label(self.program), took.as_secs()));
    }
}

fn with_builds(act: impl FnOnce(&mut Builds)) {
    let mut builds = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
    act(builds.get_or_insert_with(|| {
        let missing = Assets::locate().map_or_else(|_| Vec::new(), |assets| assets.missing());
        Builds { missing, begun: Vec::new(), finished: Vec::new() }
    }));
}

/// What is missing, what has begun and what is finished.
#[derive(Debug)]
struct Builds {
    missing: Vec<Program>,
    begun: Vec<(Program, Instant)>,
    finished: Vec<(Program, Duration)>,
}

impl Builds {
    fn begin(&mut self, program: Program) {
        if !self.missing.contains(&program) {
            self.missing.push(program);
        }
        self.begun.push((program, Instant::now()));
    }

    /// An estimate: typical times, scaled by how long the finished builds have taken.
    fn left(&self, now: Instant) -> Duration {
        let is_finished = |program: &Program| self.finished.iter().any(|(finished, _)| finished == program);
        let seconds = self.missing.iter().filter(|program| !is_finished(program)).map(|program| {
            let begun = self.begun.iter().rfind(|(begun, _)| begun == program);
            let spent = begun.map_or(0.0, |(_, at)| now.saturating_duration_since(*at).as_secs_f64());
            (typical(*program) * self.pace() - spent).max(0.0)
        });
        Duration::from_secs_f64(seconds.sum())
    }

    /// How many times as long as the typical times this machine takes.
    fn pace(&self) -> f64 {
        let expected: f64 = self.finished.iter().map(|(program, _)| typical(*program)).sum();
        let took: f64 = self.finished.iter().map(|(_, took)| took.as_secs_f64()).sum();
        if expected < SHORT { 1.0 } else { took / expected }
    }
}

/// Roughly the seconds that a build takes on two cores with an empty Go cache, in the order of
/// [`Program::ALL`].
const fn typical(program: Program) -> f64 {
    match program {
        Program::KubeApiserver(Release::Baseline) => 240.0,
        Program::KubeApiserver(_) => 165.0,
        Program::KubeControllerManager => 55.0,
        Program::Etcd => 40.0,
        Program::KubeScheduler => 25.0,
        Program::Kubectl => 20.0,
        Program::Kwok => 10.0,
        Program::ClientGo
        | Program::InformerBench
        | Program::Oracle
        | Program::DevicesOracle
        | Program::SchedBench
        | Program::Helm => 5.0,
    }
}

/// A program with its version, where it has one.
fn label(program: Program) -> String {
    let version = program.release().version().trim_start_matches('v');
    match program {
        Program::KubeApiserver(_) => format!("kube-apiserver {version}"),
        Program::KubeScheduler | Program::KubeControllerManager | Program::Kubectl => {
            format!("{} {version}", program.name())
        }
        _ => program.name().to_owned(),
    }
}

fn minutes(left: Duration) -> String {
    match left.as_secs() {
        0..45 => "less than a minute left".to_owned(),
        seconds => format!("about {} min left", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_scales_with_the_time_of_finished_builds() {
        let now = Instant::now();
        let missing = vec![Program::Etcd, Program::KubeScheduler, Program::Kwok];
        let mut builds = Builds { missing, begun: Vec::new(), finished: Vec::new() };
        assert_eq!(builds.left(now), Duration::from_secs(75));
        builds.begun = vec![(Program::Etcd, now), (Program::KubeScheduler, now)];
        builds.finished = vec![(Program::Etcd, Duration::from_secs(80))];
        assert_eq!(builds.left(now + Duration::from_secs(30)), Duration::from_secs(40));
    }

    #[test]
    fn a_line_names_the_program_and_its_version() {
        assert_eq!(label(Program::KubeApiserver(Release::Baseline)), "kube-apiserver 1.37.2");
        assert_eq!(label(Program::Etcd), "etcd");
        assert_eq!(minutes(Duration::from_secs(61)), "about 2 min left");
        assert_eq!(minutes(Duration::from_secs(44)), "less than a minute left");
    }
}
