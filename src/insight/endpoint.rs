//! `/insight/`: the same questions to a running scheduler.
//!
//! A question is asked of a fork. The owner copies its state for that; everything else happens on
//! another thread. Questions within a moment share a copy, so that copying takes at most 1 % of the
//! owner's time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Command, FromArgMatches as _};
use supercargo_client::host::Clock;
use supercargo_scheduler::Fork;
use supercargo_serving::{QueryPage, QueryResponse};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::progress::Deadline;
use super::{Empty, FitsQuestion, Pending, Question, Resilience, State, View, WhatIfQuestion, WhyQuestion};
use crate::options::scheduler_options;
use crate::owner::Mailbox;
use crate::reload::Generation;
use supercargo_config::Config;

/// The path of the questions, which end with the name of one.
pub(super) const PATH: &str = "/insight/";
/// The header that says whether an answer is a good one: `true` or `false`.
pub(super) const GOOD: &str = "supercargo-good";

/// How long an answer may take. The request may have waited for a review and for the owner.
const LIMIT: Duration = Duration::from_secs(25);
/// The most questions that are answered at once, and those that wait besides.
const MOST_RUNNING: usize = 2;
const MOST_WAITING: usize = 8;
/// Copying may take one part of the owner's time in this many.
const SHARE: u32 = 100;

/// A question that can be asked: reads the arguments, and answers.
type Ask = fn(&[(String, String)]) -> Result<Box<dyn AskOf>, clap::Error>;

/// A question with its arguments.
trait AskOf: Send {
    fn answer(&self, state: State) -> Result<(String, bool)>;
}

impl<Q: Question> AskOf for (Q, View) {
    fn answer(&self, state: State) -> Result<(String, bool)> {
        self.0.answer(state, &self.1)
    }
}

const QUESTIONS: [(&str, Ask); 6] = [
    entry::<WhyQuestion>(),
    entry::<FitsQuestion>(),
    entry::<Pending>(),
    entry::<WhatIfQuestion>(),
    entry::<Resilience>(),
    entry::<Empty>(),
];

const fn entry<Q: Question>() -> (&'static str, Ask) {
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
fn parse<Q: Question>(query: &[(String, String)]) -> Result<Box<dyn AskOf>, clap::Error> {
    let command = Arguments::<Q>::augment_args(Command::new(Q::NAME)).no_binary_name(true);
    let mut command = command.disable_help_flag(true).override_usage("").after_help("");
    command.build();
    let is_positional = |name: &str| command.get_positionals().any(|argument| argument.get_id() == name);
    let (plain, flags): (Vec<_>, Vec<_>) = query.iter().partition(|(name, _)| is_positional(name));
    let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
    let plain = plain.into_iter().map(|(_, value)| value.clone());
    let arguments: Vec<String> = flags.chain(["--".to_owned()]).chain(plain).collect();
    let Arguments { question, view } =
        Arguments::<Q>::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
    Ok(Box::new((question, view)))
}

/// Answers questions about a running scheduler.
pub(crate) struct Insight {
    mailbox: Mailbox,
    clock: Arc<dyn Clock>,
    generations: watch::Receiver<Generation>,
    /// The last copy of the state, while it may be used.
    kept: Mutex<Option<Kept>>,
    places: Semaphore,
    running: Semaphore,
}

/// Drops the copy that may be used until this time.
async fn forget(insight: Weak<Insight>, until: Instant) {
    sleep_until(until).await;
    let Some(insight) = insight.upgrade() else { return };
    let old = insight.kept.lock().await.take_if(|kept| kept.until <= until);
    // It takes milliseconds in a large cluster.
    drop(spawn_blocking(move || drop(old)));
}

/// A copy of the state.
struct Kept {
    fork: Fork,
    config: Arc<Config>,
    until: Instant,
}

impl Insight {
    pub(crate) fn new(
        mailbox: Mailbox,
        clock: Arc<dyn Clock>,
        generations: watch::Receiver<Generation>,
    ) -> Self {
        let (places, running) = (Semaphore::new(MOST_RUNNING + MOST_WAITING), Semaphore::new(MOST_RUNNING));
        Self { mailbox, clock, generations, kept: Mutex::default(), places, running }
    }

    /// The endpoints, by path.
    pub(crate) fn endpoints(self) -> BTreeMap<String, QueryPage> {
        let insight = Arc::new(self);
        let endpoint = |(name, ask): (&str, Ask)| {
            let insight = Arc::clone(&insight);
            let answering: QueryPage = Arc::new(move |query| {
                let insight = Arc::clone(&insight);
                Box::pin(async move { insight.answer(ask, &query).await })
            });
            (format!("{PATH}{name}"), answering)
        };
        QUESTIONS.into_iter().map(endpoint).collect()
    }

    async fn answer(self: &Arc<Self>, ask: Ask, query: &[(String, String)]) -> QueryResponse {
        let question = match ask(query) {
            Ok(question) => question,
            Err(error) => return QueryResponse::bad_request(error.to_string()),
        };
        let Ok(_place) = self.places.try_acquire() else { return QueryResponse::Busy };
        let deadline = Deadline::after(LIMIT);
        // Never closed.
        let Ok(_running) = self.running.acquire().await else { return QueryResponse::Busy };
        let answer = async {
            let state = self.state(deadline).await?;
            let answer = spawn_blocking(move || question.answer(state)).await;
            answer.context("a plugin panicked")?
        };
        match answer.await {
            Ok((text, is_good)) => {
                QueryResponse::text(text, [(GOOD, if is_good { "true" } else { "false" })])
            }
            Err(error) => QueryResponse::unprocessable(format!("{error:#}")),
        }
    }

    /// A copy of the scheduler's state.
    async fn state(self: &Arc<Self>, deadline: Deadline) -> Result<State> {
        let mut kept = self.kept.lock().await;
        if kept.as_ref().is_none_or(|kept| kept.until <= Instant::now()) {
            let config = Arc::clone(&self.generations.borrow().config);
            let (clock, options) = (Arc::clone(&self.clock), scheduler_options(&config));
            let copy = self.mailbox.ask(move |scheduler| {
                let began = Instant::now();
                let fork = scheduler.fork(clock.now(), options);
                (fork, began.elapsed())
            });
            let (fork, took) = copy.await.context("the scheduler has stopped")?;
            let until = Instant::now() + took * SHARE;
            *kept = Some(Kept { fork: fork?, config, until });
            tokio::spawn(forget(Arc::downgrade(self), until));
        }
        let Kept { fork, config, .. } = kept.as_ref().context("a copy was made")?;
        let (fork, config) = (fork.fork(scheduler_options(config))?, Arc::clone(config));
        Ok(State { fork, config, namespace: "default".to_owned(), deadline })
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, JoinHandle};

    use supercargo_client::host::SystemClock;
    use supercargo_framework::Now;
    use supercargo_framework::testing::{node, pod};
    use supercargo_scheduler::{Input, Notification, Scheduler};
    use tokio::time::sleep;

    use super::super::remote::query;
    use super::*;
    use crate::owner::Message;
    use supercargo_config::Catalog;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn queries_are_arguments_of_commands() {
        let parse = |query: &[(&str, &str)]| parse::<WhyQuestion>(&pairs(query)).map(drop);
        parse(&[("pod", "default/web"), ("node", "a"), ("output", "json")]).unwrap();
        parse(&[("output", "json"), ("pod", "--node=a")]).unwrap();
        for (query, problem) in [
            (&[][..], "<POD>"),
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
        let text = query(&question).unwrap() + &query(&view).unwrap();
        let read: Vec<(String, String)> =
            form_urlencoded::parse(text.trim_end_matches('&').as_bytes()).into_owned().collect();
        assert_eq!(read, [&given[..], &pairs(&[("output", "table")])].concat());
    }

    /// A scheduler with a node and a pod that fits, and the number of its copies.
    fn owner() -> (Arc<Insight>, JoinHandle<usize>) {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let mut scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
        let node = node("n").allocatable("cpu", "4").allocatable("pods", "10").build();
        scheduler.handle(Now::default(), Input::Node(Notification::Added(Arc::new(node))));
        let pod = pod("p").scheduler("supercargo").request("cpu", "1").build();
        scheduler.handle(Now::default(), Input::QueuedPod(Notification::Added(Arc::new(pod))));
        let (mailbox, messages) = Mailbox::new();
        let (_, generations) = watch::channel(Generation::first(Arc::new(config)));
        let clock = Arc::new(SystemClock::default());
        let insight = Arc::new(Insight::new(mailbox, clock, generations));
        let owner = thread::spawn(move || {
            let questions = messages.iter().filter_map(|message| match message {
                Message::Ask(question) => Some(question),
                _ => None,
            });
            questions.map(|question| question(&scheduler)).count()
        });
        (insight, owner)
    }

    async fn why(insight: &Arc<Insight>, pod: &str) -> QueryResponse {
        insight.answer(parse::<WhyQuestion>, &pairs(&[("pod", pod)])).await
    }

    #[tokio::test(start_paused = true)]
    async fn questions_within_a_moment_share_a_copy_that_is_dropped_then() {
        let (insight, owner) = owner();
        for _ in 0..3 {
            let QueryResponse::Text(status, text, headers) = why(&insight, "p").await else { panic!("busy") };
            assert_eq!((status.as_u16(), &headers[..]), (200, &[(GOOD, "true")][..]), "{text}");
            assert!(text.starts_with("default/p fits on 1 of 1 node;"), "{text}");
        }
        let QueryResponse::Text(status, text, _) = why(&insight, "q").await else { panic!("busy") };
        assert_eq!((status.as_u16(), &*text), (422, "there is no unfinished pod default/q"));
        sleep(Duration::from_hours(1)).await;
        assert!(insight.kept.lock().await.is_none());
        why(&insight, "p").await;
        drop(insight);
        assert_eq!(owner.join().unwrap(), 2);
    }

    #[tokio::test]
    async fn at_most_ten_questions_wait() {
        let (mailbox, _messages) = Mailbox::new();
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let (_, generations) = watch::channel(Generation::first(Arc::new(config)));
        let insight = Arc::new(Insight::new(mailbox, Arc::new(SystemClock::default()), generations));
        let mut asked: Vec<_> = (0..10).map(|_| Box::pin(why(&insight, "p"))).collect();
        for question in &mut asked {
            assert!(futures::poll!(question).is_pending());
        }
        assert!(matches!(why(&insight, "p").await, QueryResponse::Busy));
        drop(asked);
        assert!(futures::poll!(Box::pin(why(&insight, "p"))).is_pending());
    }
}
