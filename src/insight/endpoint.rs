//! `/insight/`: the same questions to a running scheduler.
//!
//! A question is asked of a fork. The owner copies its state for that; everything else happens on
//! another thread. Questions within a moment share a copy, so that copying takes at most 1 % of the
//! owner's time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Command, FromArgMatches as _};
use parking_lot::Mutex as BlockingMutex;
use supercargo_client::api::full_text;
use supercargo_client::host::Clock;
use supercargo_framework::Timestamp;
use supercargo_scheduler::{Fork, ForkPace};
use supercargo_serving::{QueryPage, QueryResponse};
use supercargo_telemetry::metrics::Metrics;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::capture::CaptureQuestion;
use super::empty::Empty;
use super::fits::FitsQuestion;
use super::pending::Pending;
use super::progress::Deadline;
use super::question::{Answer, Question, State, View};
use super::resilience::Resilience;
use super::timeline::TimelineQuestion;
use super::what_if::WhatIfQuestion;
use super::why::WhyQuestion;
use crate::reload::Generation;
use supercargo_config::{Catalog, Config};
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::Mailbox;

/// The path of the questions, which end with the name of one.
pub(crate) const PATH: &str = "/insight/";
/// The header that says whether an answer is a good one: `true` or `false`.
pub(crate) const GOOD: &str = "supercargo-good";
/// The header that says whether there is nothing more to wait for: `true` or `false`.
pub(crate) const SETTLED: &str = "supercargo-settled";
/// The header with the time of the state.
pub(crate) const AS_OF: &str = "supercargo-as-of";

/// How long an answer may take. The request as a whole may take a little longer.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest answer in bytes: the process does not grow much with what it is asked. Clients read
/// no more.
const MOST_BYTES: usize = 64 << 20;
/// The most questions that are answered at once, and those that wait besides.
const MOST_RUNNING: usize = 2;
const MOST_WAITING: usize = 8;
/// The memory for the evaluation tables of a copy.
const TABLE_MEMORY: usize = 16 << 20;

/// Answers a question with the arguments of a query.
type Parse = fn(&[(String, String)]) -> Result<ParsedQuestion, clap::Error>;

/// A question with its arguments.
struct ParsedQuestion {
    media_type: &'static str,
    answer: Box<dyn FnOnce(State) -> Result<Answer> + Send>,
}

const QUESTIONS: [(&str, Parse); 8] = [
    entry::<WhyQuestion>(),
    entry::<FitsQuestion>(),
    entry::<Pending>(),
    entry::<WhatIfQuestion>(),
    entry::<Resilience>(),
    entry::<Empty>(),
    entry::<TimelineQuestion>(),
    entry::<CaptureQuestion>(),
];

/// The names of the questions.
pub(crate) fn question_names() -> impl Iterator<Item = &'static str> {
    QUESTIONS.iter().map(|(name, _)| *name)
}

const fn entry<Q: Question>() -> (&'static str, Parse) {
    (Q::NAME, parse::<Q>)
}

#[derive(Args)]
struct Arguments<Q: Args> {
    #[command(flatten)]
    question: Q,
    #[command(flatten)]
    view: View,
}

/// Reads the arguments of a command from a query. An argument without a flag has its name, too.
fn parse<Q: Question>(query: &[(String, String)]) -> Result<ParsedQuestion, clap::Error> {
    let command = Arguments::<Q>::augment_args(Command::new(Q::NAME)).no_binary_name(true);
    let mut command = command.disable_help_flag(true).override_usage("").after_help("");
    // The files of this machine are not the client's.
    let no_file = |_: &str| Err::<PathBuf, _>("a command reads the file, and sends its content as manifest");
    command = command.mut_args(|it| if it.get_id() == "filename" { it.value_parser(no_file) } else { it });
    command.build();
    let is_positional = |name: &str| command.get_positionals().any(|argument| argument.get_id() == name);
    let (plain, flags): (Vec<_>, Vec<_>) = query.iter().partition(|(name, _)| is_positional(name));
    let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
    let plain = plain.into_iter().map(|(_, value)| value.clone());
    let arguments: Vec<String> = flags.chain(["--".to_owned()]).chain(plain).collect();
    let Arguments { question, view } =
        Arguments::<Q>::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
    let format = view.output;
    let answer = Box::new(move |state| question.answer(state, &view)?.formatted(format));
    Ok(ParsedQuestion { media_type: format.media_type(), answer })
}

/// The answer of a scheduler that does not know the cluster yet.
pub(crate) fn not_synced() -> QueryResponse {
    QueryResponse::unavailable("the scheduler does not know the cluster yet".to_owned())
}

/// Answers questions about a running scheduler.
pub(crate) struct Insight {
    mailbox: Mailbox,
    clock: Arc<dyn Clock>,
    generations: watch::Receiver<Generation>,
    catalog: Catalog,
    metrics: Arc<Metrics>,
    /// Cancelled once the scheduler knows the cluster.
    synced: CancellationToken,
    /// The last copy of the state, while it may be used.
    kept: Mutex<Option<Arc<SharedFork>>>,
    pace: BlockingMutex<ForkPace>,
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

/// A copy of the state.
struct SharedFork {
    fork: BlockingMutex<Fork>,
    config: Arc<Config>,
    as_of: Timestamp,
    until: Instant,
}

/// The configuration of a copy. The owner uses its plugins at the same time, and plugins keep what
/// they have seen, so a copy gets plugins of its own.
fn own_plugins(config: &Config, catalog: &Catalog) -> Result<Config> {
    let own = Config::parse("configuration", &config.to_yaml(), catalog);
    let own = own.map_err(|errors| anyhow::anyhow!("{errors}"))?;
    Ok(Config { table_memory: Some(TABLE_MEMORY), features: config.features.clone(), ..own })
}

impl Insight {
    pub(crate) fn new(
        mailbox: Mailbox,
        clock: Arc<dyn Clock>,
        generations: watch::Receiver<Generation>,
        catalog: Catalog,
        metrics: Arc<Metrics>,
        synced: CancellationToken,
    ) -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        let (places, running) = (semaphore(MOST_RUNNING + MOST_WAITING), semaphore(MOST_RUNNING));
        let kept = Mutex::default();
        let pace = BlockingMutex::default();
        Self { mailbox, clock, generations, catalog, metrics, synced, kept, pace, places, running }
    }

    /// Whether the scheduler knows the cluster.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.is_cancelled()
    }

    /// Drops the copy: the scheduler has another state, of which nothing is known yet.
    pub(crate) async fn forget_copy(&self) {
        drop_aside(self.kept.lock().await.take());
    }

    /// Waits until the scheduler knows the cluster.
    pub(crate) async fn synced(&self) {
        self.synced.cancelled().await;
    }

    /// Reads a copy of the scheduler's state, and the time of it.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Fork, Timestamp) -> T + Send + 'static,
    ) -> Result<T> {
        // The task continues if nobody waits: others will use the copy.
        let kept = tokio::spawn(Arc::clone(self).copy()).await.context("a plugin panicked")??;
        let reading = spawn_blocking(move || read(&kept.fork.lock(), kept.as_of));
        reading.await.context("the copy cannot be read")
    }

    /// The endpoints of the questions, by path.
    pub(crate) fn endpoints(self: &Arc<Self>) -> BTreeMap<String, QueryPage> {
        let endpoint = |(name, ask): (&'static str, Parse)| {
            let insight = Arc::clone(self);
            let page: QueryPage = Arc::new(move |query| {
                let insight = Arc::clone(&insight);
                Box::pin(async move {
                    let response = insight.answer(ask, &query).await;
                    insight.metrics.question_answered(name, response.status().as_u16());
                    response
                })
            });
            (format!("{PATH}{name}"), page)
        };
        QUESTIONS.into_iter().map(endpoint).collect()
    }

    async fn answer(self: &Arc<Self>, ask: Parse, query: &[(String, String)]) -> QueryResponse {
        let ParsedQuestion { media_type, answer } = match ask(query) {
            Ok(asked) => asked,
            Err(error) => return QueryResponse::bad_request(error.to_string()),
        };
        if !self.is_synced() {
            return not_synced();
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return QueryResponse::Busy };
        let until = Instant::now() + LIMIT;
        // Never closed.
        let turn = timeout_at(until, Arc::clone(&self.running).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return QueryResponse::Busy };
        match self.answer_by(until, answer, (place, turn)).await {
            Ok((as_of, Ok(Answer { text, is_good, is_settled }))) => QueryResponse::file(media_type, text)
                .with(GOOD, is_good.to_string())
                .with(SETTLED, is_settled.to_string())
                .with(AS_OF, as_of.to_rfc3339()),
            Ok((_, Err(error))) => QueryResponse::unprocessable(full_text(&*error)),
            Err(error) => QueryResponse::unavailable(full_text(&*error)),
        }
    }

    /// The time of the state, and the answer or why it has none. An error is about the moment. It
    /// keeps its permits until it ends, whether or not anybody waits for it.
    async fn answer_by(
        self: &Arc<Self>,
        until: Instant,
        answer: impl FnOnce(State) -> Result<Answer> + Send + 'static,
        permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
    ) -> Result<(Timestamp, Result<Answer>)> {
        // The task continues if nobody waits: others will use the copy.
        let copy = tokio::spawn(Arc::clone(self).copy());
        let kept = timeout_at(until, copy).await.context("the scheduler is busy")???;
        let insight = Arc::clone(self);
        let answered = spawn_blocking(move || {
            let _permits = permits;
            let SharedFork { fork, config, as_of, .. } = &*kept;
            let config = own_plugins(config, &insight.catalog)?;
            let (deadline, options) = (Deadline::at(until, LIMIT), scheduler_options(&config));
            let fork = fork.lock().fork(options)?.stop_when(move || deadline.is_over());
            let (config, namespace) = (Arc::new(config), "default".to_owned());
            let answer = answer(State { fork, config, namespace, deadline, most_bytes: MOST_BYTES });
            let too_long = |it: &Answer| it.text.len() > MOST_BYTES;
            Ok((
                *as_of,
                match answer {
                    Ok(answer) if too_long(&answer) => {
                        let most = MOST_BYTES >> 20;
                        Err(anyhow::anyhow!(
                            "the answer has more than {most} MiB; read the cluster with --standalone"
                        ))
                    }
                    answer => answer,
                },
            ))
        });
        answered.await.context("a plugin panicked")?
    }

    /// A copy of the scheduler's state.
    async fn copy(self: Arc<Self>) -> Result<Arc<SharedFork>> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(Arc::clone(kept));
        }
        let Generation { config, number, .. } = self.generations.borrow().clone();
        let own = own_plugins(&config, &self.catalog)?;
        let options = scheduler_options(&own);
        let clock = Arc::clone(&self.clock);
        let copy = self.mailbox.ask(move |scheduler| {
            let (began, now) = (Instant::now(), clock.now());
            let is_current = scheduler.reconfigurations() + 1 == number;
            let fork = is_current.then(|| scheduler.fork(now, options));
            (fork, now.wall, began.elapsed(), scheduler.cache().copied())
        });
        let (fork, as_of, took, copied) = copy.await.context("the scheduler has stopped")?;
        let fork = fork.context("the configuration is being replaced; ask again")??;
        self.metrics.state_copied(took);
        let until = Instant::now() + self.pace.lock().share_for(took, copied);
        let new = Arc::new(SharedFork { fork: BlockingMutex::new(fork), config, as_of, until });
        let old = kept.replace(Arc::clone(&new));
        tokio::spawn(forget(Arc::downgrade(&self), until));
        drop(kept);
        drop_aside(old);
        Ok(new)
    }
}

/// Drops the copy that may be used until this time.
async fn forget(insight: Weak<Insight>, until: Instant) {
    sleep_until(until).await;
    let Some(insight) = insight.upgrade() else { return };
    drop_aside(insight.kept.lock().await.take_if(|kept| kept.until <= until));
}

/// Drops a copy on another thread: it takes milliseconds in a large cluster.
fn drop_aside(copy: Option<Arc<SharedFork>>) {
    drop(spawn_blocking(move || drop(copy)));
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::super::remote::query;
    use super::testing::{insight, owner};
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn queries_are_arguments_of_commands() {
        let parse = |query: &[(&str, &str)]| parse::<WhyQuestion>(&pairs(query)).map(drop);
        parse(&[("pod", "default/web"), ("node", "a"), ("output", "json")]).unwrap();
        parse(&[("output", "json"), ("pod", "--node=a")]).unwrap();
        parse(&[("manifest", "{}")]).unwrap();
        for (query, problem) in [
            (&[][..], "<POD>"),
            (&[("filename", "/etc/passwd")], "a command reads the file"),
            (&[("pod", "web"), ("manifest", "{}")], "cannot be used with"),
            (&[("pod", "web"), ("node", "a"), ("node", "b")], "--node"),
            (&[("pod", "web"), ("output", "xml")], "xml"),
            (&[("pod", "web"), ("kubeconfig", "/etc/passwd")], "--kubeconfig"),
            (&[("pod", "web"), ("server", "https://elsewhere")], "--server"),
        ] {
            let error = parse(query).unwrap_err().to_string();
            assert!(error.contains(problem), "{query:?}: {error}");
        }
    }

    #[test]
    fn a_question_survives_its_query() {
        let given = pairs(&[("copy", "a&b=2"), ("drain", "zone=ü"), ("drain", "node-1"), ("namespace", "n")]);
        let mut flags: Vec<_> = given.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        flags.insert(0, "what-if".to_owned());
        let command = Arguments::<WhatIfQuestion>::augment_args(Command::new("what-if"));
        let matches = command.try_get_matches_from(flags).unwrap();
        let Arguments { question, view } = Arguments::<WhatIfQuestion>::from_arg_matches(&matches).unwrap();
        let text = query(&question, &view).unwrap();
        let read: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        assert_eq!(read, [&given[..], &pairs(&[("output", "table")])].concat());
    }

    /// The status, the text and the headers of an answer; `None` if the endpoint is busy.
    type TestAnswer = Option<(u16, String, Vec<&'static str>)>;

    async fn why(insight: &Arc<Insight>, pod: &str) -> TestAnswer {
        match insight.answer(parse::<WhyQuestion>, &pairs(&[("pod", pod)])).await {
            QueryResponse::Text { status, text, headers, .. } => {
                Some((status.as_u16(), text, headers.into_iter().map(|(name, _)| name).collect()))
            }
            QueryResponse::Busy => None,
            QueryResponse::Stream { .. } => unreachable!("an answer is one text"),
        }
    }

    /// Replaces the copy by one that may be used until this time, however long the last one took.
    async fn keep_until(insight: &Arc<Insight>, until: Instant) {
        let copied = Arc::clone(insight).copy().await.unwrap();
        let fork = copied.fork.lock().fork(scheduler_options(&copied.config)).unwrap();
        let (config, as_of) = (Arc::clone(&copied.config), copied.as_of);
        let kept = SharedFork { fork: BlockingMutex::new(fork), config, as_of, until };
        *insight.kept.lock().await = Some(Arc::new(kept));
    }

    #[tokio::test]
    async fn questions_within_a_moment_share_a_copy_that_is_dropped_then() {
        let (insight, owner) = owner();
        keep_until(&insight, Instant::now() + Duration::from_hours(1)).await;
        let (status, text, headers) = why(&insight, "p").await.unwrap();
        assert_eq!((status, &headers[..]), (200, &[GOOD, SETTLED, AS_OF][..]), "{text}");
        assert!(text.starts_with("default/p fits on 1 of 1 node;"), "{text}");
        let received = why(&insight, "q").await.unwrap();
        assert_eq!(received, (422, "pod default/q does not exist or has ended".to_owned(), Vec::new()));
        assert_eq!(why(&insight, "p").await.unwrap().0, 200);
        keep_until(&insight, Instant::now()).await;
        forget(Arc::downgrade(&insight), Instant::now()).await;
        assert!(insight.kept.lock().await.is_none());
        assert_eq!(why(&insight, "p").await.unwrap().0, 200);
        drop(insight);
        assert_eq!(owner.join().unwrap(), 2);
    }

    #[tokio::test]
    async fn answers_and_copies_are_counted() {
        let (insight, _owner) = owner();
        let ask = &insight.endpoints()["/insight/why"];
        for pod in ["p", "q", "p"] {
            let _ = ask(pairs(&[("pod", pod)])).await;
        }
        let text = insight.metrics.encode().await;
        let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line}: {text}");
        has(r#"supercargo_insight_questions_total{question="why",code="200"} 2"#);
        has(r#"supercargo_insight_questions_total{question="why",code="422"} 1"#);
        assert!(text.contains("supercargo_insight_copy_duration_seconds_count "), "{text}");
    }

    #[tokio::test]
    async fn at_most_ten_questions_wait() {
        let (mailbox, _messages) = Mailbox::new();
        let insight = insight(mailbox);
        let mut asked: Vec<_> = (0..10).map(|_| Box::pin(why(&insight, "p"))).collect();
        for question in &mut asked {
            assert!(futures::poll!(question).is_pending());
        }
        assert_eq!(why(&insight, "p").await, None);
        drop(asked);
        assert!(futures::poll!(Box::pin(why(&insight, "p"))).is_pending());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_question_that_nobody_waits_for_keeps_its_place_until_it_ends() {
        let (insight, _owner) = owner();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let slow = move |_: State| {
            begin.send(()).unwrap();
            ended.recv().unwrap();
            Ok((String::new(), true).into())
        };
        let permits = || {
            let place = Arc::clone(&insight.places).try_acquire_owned().unwrap();
            (place, Arc::clone(&insight.running).try_acquire_owned().unwrap())
        };
        let asked = tokio::spawn({
            let (insight, permits) = (Arc::clone(&insight), permits());
            async move { insight.answer_by(Instant::now() + LIMIT, slow, permits).await }
        });
        begun.await.unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!(insight.running.available_permits(), MOST_RUNNING - 1);
        end.send(()).unwrap();
        drop(insight.running.acquire_many(MOST_RUNNING as u32).await.unwrap());
    }

    #[tokio::test]
    async fn there_is_no_answer_before_the_scheduler_knows_the_cluster() {
        let (mailbox, _messages) = Mailbox::new();
        let insight =
            Insight { synced: CancellationToken::new(), ..Arc::into_inner(insight(mailbox)).unwrap() };
        assert_eq!(why(&Arc::new(insight), "p").await.unwrap().0, 503);
    }

    #[tokio::test]
    async fn a_copy_of_another_configuration_is_refused() {
        let (insight, _owner) = owner();
        let (sender, generations) = watch::channel(insight.generations.borrow().clone());
        let mut insight = Arc::into_inner(insight).unwrap();
        insight.generations = generations;
        sender.send_modify(|generation| generation.number += 1);
        let (status, text, _) = why(&Arc::new(insight), "p").await.unwrap();
        assert!(status == 503 && text.contains("being replaced"), "{status} {text}");
    }

    /// Plugins keep what they have seen of one scheduler's objects.
    #[test]
    fn a_copy_shares_no_plugin_with_the_scheduler() {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let plugins = |config: &Config| {
            let options = scheduler_options(config);
            options.profiles[0].plugins.filter.iter().map(|it| Arc::as_ptr(it).addr()).collect::<Vec<_>>()
        };
        let own = plugins(&own_plugins(&config, &Catalog::in_tree()).unwrap());
        let shared = plugins(&config);
        assert!(!own.is_empty() && own.iter().all(|plugin| !shared.contains(plugin)));
        assert_eq!(own.len(), shared.len());
    }
}
