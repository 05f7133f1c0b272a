//! The page of a record or a capture: the cluster as it was at a time, which the reader chooses.
//!
//! ```text
//! files ──restore──> state ──copies──> the page of a running scheduler
//!             ^
//!             └── the time, which `replay?to=` moves
//! ```

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use supercargo_client::host::Clock;
use supercargo_config::Config;
use supercargo_framework::{Now, Timestamp};
use supercargo_report::moment;
use supercargo_scheduler::Fork;
use supercargo_serving::{QueryPage, QueryResponse, Site};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::seeks::Seeks;
use super::{NO_COMMAND, PATH, data, endpoint, files};
use crate::insight::endpoint::Insight;
use crate::insight::{Checkpoints, FileCatalog, Files, open_record};
use crate::reload::Generation;
use supercargo_owner::owner::{Mailbox, Message};
use supercargo_telemetry::metrics::Metrics;

/// The bars of the drawing above the scrub bar.
const BARS: usize = 120;

/// A record or a capture, and a place in it.
pub(super) struct Replay {
    files: Files,
    config: Option<PathBuf>,
    catalog: FileCatalog,
    extent: Extent,
    checkpoints: Mutex<Checkpoints>,
    shown: Arc<Shown>,
    time: Arc<ShownTime>,
    generations: watch::Sender<Generation>,
    insight: Arc<Insight>,
    seeks: Arc<Seeks>,
}

/// The state that is shown.
struct Shown(Mutex<Fork>);

/// The time of the state that is shown. It has a lock of its own: it is read while the state is.
#[derive(Debug)]
struct ShownTime(Mutex<Now>);

impl Clock for ShownTime {
    fn now(&self) -> Now {
        *self.0.lock()
    }
}

/// When a record begins and ends, and how many cycles it has in each part.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    begin: Timestamp,
    end: Timestamp,
    cycles: Vec<usize>,
    /// The number of lines.
    calls: usize,
}

/// What a line of a record has of interest here.
#[derive(Deserialize)]
struct Line {
    now: Now,
    call: Call,
}

#[derive(Deserialize)]
struct Call {
    /// The answers of extenders, if it is a cycle.
    #[serde(rename = "ScheduleOne")]
    cycle: Option<IgnoredAny>,
}

impl Replay {
    /// Reads the files, and restores their end.
    pub(super) fn open(
        paths: Vec<PathBuf>,
        config: Option<PathBuf>,
        catalog: FileCatalog,
    ) -> Result<Arc<Self>> {
        let extent = Extent::read(&paths)?;
        let files = Files::new(paths);
        let mut checkpoints = Checkpoints::of(extent.calls);
        let (fork, current) = files.at(extent.end, &catalog, config.as_deref(), &mut checkpoints)?;
        let checkpoints = Mutex::new(checkpoints);
        let catalog = catalog.without_warning();
        // A copy has plugins of its own, with the gates of the file.
        let copies = catalog.clone().without_file().with_features(current.features.clone());
        let time = Arc::new(ShownTime(Mutex::new(fork.now())));
        let shown = Arc::new(Shown(Mutex::new(fork)));
        // Nobody reads them.
        let metrics = Metrics::new(&current.features);
        let (generations, followed) = watch::channel(Generation::first(current));
        let synced = CancellationToken::new();
        synced.cancel();
        let mailbox = own(Arc::clone(&shown));
        let clock = Arc::clone(&time) as Arc<dyn Clock>;
        let insight = Arc::new(Insight::new(mailbox, clock, followed, copies, metrics, synced));
        let seeks = Seeks::new(extent.end);
        Ok(Arc::new(Self {
            files,
            config,
            catalog,
            extent,
            checkpoints,
            shown,
            time,
            generations,
            insight,
            seeks,
        }))
    }

    /// The page, with a place for the scrub bar.
    pub(super) fn site(self: &Arc<Self>) -> Site {
        Site { open: files(&format!("data-replay {NO_COMMAND}")), data: self.data() }
    }

    fn data(self: &Arc<Self>) -> BTreeMap<String, QueryPage> {
        let replay = Arc::clone(self);
        let answer = endpoint(move |query| {
            let replay = Arc::clone(&replay);
            async move { replay.answer(query).await }
        });
        data(&self.insight).into_iter().chain([(format!("{PATH}replay"), answer)]).collect()
    }

    /// Goes to the time in the parameter `to`, if there is one, and tells where it is.
    async fn answer(self: Arc<Self>, query: Vec<(String, String)>) -> QueryResponse {
        if let Some((_, to)) = query.into_iter().find(|(name, _)| name == "to") {
            let Ok(to) = to.parse::<jiff::Timestamp>() else {
                return QueryResponse::bad_request("to must be like 2026-11-28T14:02:11Z".to_owned());
            };
            let to = self.extent.end_of_milli(Timestamp(to.as_microsecond()));
            let replay = Arc::clone(&self);
            if let Err(problem) = self.seeks.go(to, move |to| replay.restore(to)).await {
                return QueryResponse::error(StatusCode::UNPROCESSABLE_ENTITY, problem);
            }
        }
        let Extent { begin, end, cycles, .. } = &self.extent;
        let now = self.time.now().wall;
        let answer = json!({
            "kind": "Replay",
            "begin": moment(*begin),
            "end": moment(*end),
            "now": moment(now),
            "capture": begin == end,
            "cycles": cycles,
        });
        QueryResponse::answer(answer.to_string(), true)
    }

    async fn restore(self: Arc<Self>, to: Timestamp) -> Result<()> {
        let replay = Arc::clone(&self);
        let restored = spawn_blocking(move || {
            let mut checkpoints = replay.checkpoints.lock();
            replay.files.at(to, &replay.catalog, replay.config.as_deref(), &mut checkpoints)
        });
        let (fork, config) = restored.await.context("a plugin panicked")??;
        self.show(fork, config);
        self.insight.forget_copy().await;
        Ok(())
    }

    fn show(&self, fork: Fork, config: Arc<Config>) {
        let mut shown = self.shown.0.lock();
        *self.time.0.lock() = fork.now();
        self.generations.send_replace(Generation::first(config));
        *shown = fork;
    }
}

/// Answers questions about the state that is shown, until nobody can ask.
fn own(shown: Arc<Shown>) -> Mailbox {
    let (mailbox, messages) = Mailbox::new();
    thread::spawn(move || {
        for message in messages {
            if let Message::Ask(question) = message {
                question(shown.0.lock().scheduler());
            }
        }
    });
    mailbox
}

impl Extent {
    fn read(paths: &[PathBuf]) -> Result<Self> {
        let (mut times, mut cycles, mut calls) = (Vec::new(), Vec::new(), 0);
        for path in paths {
            calls += read_times(path, &mut times, &mut cycles).with_context(|| path.display().to_string())?;
        }
        let (begin, end) = (times.iter().min().copied(), times.iter().max().copied());
        let (begin, end) = begin.zip(end).context("the record is empty")?;
        Ok(Self { begin, end, cycles: bars(begin, end, &cycles), calls })
    }

    /// The last time in the record of this millisecond: the page knows whole milliseconds only.
    fn end_of_milli(&self, time: Timestamp) -> Timestamp {
        let end = time.0.div_euclid(1000).saturating_mul(1000).saturating_add(999);
        Timestamp(end).clamp(self.begin, self.end)
    }
}

/// Adds the first and the last time of a file, and the time of each cycle. Returns the number of
/// lines. A line that is cut off ends it, as after a crash.
fn read_times(path: &Path, times: &mut Vec<Timestamp>, cycles: &mut Vec<Timestamp>) -> Result<usize> {
    let (mut record, mut text) = (open_record(path).context("cannot be read")?, Vec::new());
    let (mut last, mut lines) = (None, 0);
    while record.read_until(b'\n', &mut text).context("cannot be read")? > 0 {
        let Ok(Line { now, call }) = serde_json::from_slice(&text) else {
            ensure!(!text.ends_with(b"\n"), "it is neither a record nor a capture");
            break;
        };
        if last.replace(now.wall).is_none() {
            times.push(now.wall);
        }
        if call.cycle.is_some() {
            cycles.push(now.wall);
        }
        lines += 1;
        text.clear();
    }
    times.extend(last);
    Ok(lines)
}

/// How many of these times are in each part; nothing of a moment.
fn bars(begin: Timestamp, end: Timestamp, times: &[Timestamp]) -> Vec<usize> {
    let length = i128::from(end.0) - i128::from(begin.0);
    if length <= 0 {
        return Vec::new();
    }
    let mut bars = vec![0; BARS];
    for time in times {
        let at = (i128::from(time.0) - i128::from(begin.0)) * BARS as i128 / length;
        // The last time is in the last part.
        let at = usize::try_from(at).unwrap_or_default().min(BARS - 1);
        bars[at] += 1;
    }
    bars
}

#[cfg(test)]
mod tests {
    use supercargo_client::api::full_text;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn line(micros: i64, call: &str) -> String {
        let now = Now { wall: Timestamp(micros), ..Now::default() };
        format!("{{\"now\":{},\"call\":{call},\"effects\":[]}}\n", serde_json::to_string(&now).unwrap())
    }

    #[test]
    fn cycles_are_counted_by_time() {
        let [other, cycle] = ["{\"Reconfigure\":\"\"}", "{\"ScheduleOne\":[]}"];
        let text = line(1000, other) + &line(2000, cycle) + &line(121_000, cycle) + "{\"now\":";
        let file = file(&text);
        let Extent { begin, end, cycles, calls } = Extent::read(&[file.path().to_owned()]).unwrap();
        assert_eq!(calls, 3);
        assert_eq!((begin, end), (Timestamp(1000), Timestamp(121_000)));
        assert_eq!((cycles.len(), cycles[1], cycles[BARS - 1]), (BARS, 1, 1));
        assert_eq!(cycles.iter().sum::<usize>(), 2);
    }

    #[test]
    fn a_time_means_the_end_of_its_millisecond() {
        let (begin, end) = (Timestamp(1_500), Timestamp(9_300));
        let extent = Extent { begin, end, cycles: Vec::new(), calls: 0 };
        for (time, expected) in [(0, 1_500), (1_000, 1_999), (2_000, 2_999), (9_000, 9_300), (20_000, 9_300)]
        {
            assert_eq!(extent.end_of_milli(Timestamp(time)), Timestamp(expected), "{time}");
        }
    }

    #[test]
    fn other_files_are_refused_by_name() {
        for (text, problem) in [("", "empty"), ("hello\n", "neither a record nor a capture")] {
            let file = file(text);
            let error = full_text(&*Extent::read(&[file.path().to_owned()]).unwrap_err());
            assert!(error.contains(problem), "{error}");
        }
        let error = full_text(&*Extent::read(&["/nothing".into()]).unwrap_err());
        assert!(error.starts_with("/nothing: cannot be read"), "{error}");
    }
}
