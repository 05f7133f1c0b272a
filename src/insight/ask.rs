//! Commands that ask a question.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures::FutureExt as _;
use supercargo_client::api::full_text;
use supercargo_client::connection::{Choice, Connection};
use supercargo_client::host::Host;
use supercargo_codec::{NodeKind, PodKind};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};
use supercargo_framework::Text;
use supercargo_framework::objects::resources;
use supercargo_scheduler::{Options, Scheduler};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::file::{Files, is_wrong_file};
use super::file_catalog::FileCatalog;
use super::progress::{Deadline, LATE};
use super::question::{Answer, LONG, NO_ANSWER, NoAnswer, Question, SHORT, State, View};
use super::remote::{Remote, Way};
use super::watch::{PERIOD, Screen};
use crate::cli::output;
use crate::informers::{Informers, kinds};
use crate::run::{reading_client, stop_signal};
use supercargo_owner::options::scheduler_options;
use supercargo_owner::owner::{Mailbox, Message};

/// A command that asks a question.
#[derive(Debug, Args)]
pub(crate) struct Ask<Q: Args> {
    #[command(flatten)]
    question: Q,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    source: Source,
}

/// A question that can be asked again and again.
#[derive(Args, Debug)]
pub(crate) struct Watched<Q: Args> {
    /// Ask every two seconds until Ctrl-C, and print answers that differ from the last. `why` ends
    /// once the pod is on a node
    #[arg(long, short, conflicts_with = "files")]
    watch: bool,
    #[command(flatten)]
    ask: Ask<Q>,
}

impl<Q: Question> Watched<Q> {
    /// Prints the answer, or each new one.
    pub(crate) async fn print(self, catalog: &Catalog) -> Result<ExitCode> {
        if self.watch { self.ask.watch(catalog).await } else { self.ask.print(catalog).await }
    }
}

/// Where the cluster's state comes from.
#[derive(Debug, Args)]
struct Source {
    /// Configuration of the scheduler, as for `run`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long the answer may take; by default 30s, or 1h with --from and for `pending`,
    /// `resilience` and `empty`. A running supercargo answers within 30s or not at all
    #[arg(long, value_name = "DURATION", value_parser = supercargo_config::flags::length)]
    timeout: Option<Duration>,
    #[command(flatten)]
    features: FeatureOptions,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    remote: Remote,
}

impl<Q: Question> Ask<Q> {
    /// Prints the answer.
    pub(crate) async fn print(self, catalog: &Catalog) -> Result<ExitCode> {
        let catalog = FileCatalog::new(&self.source.features, catalog)?;
        let answer = async { self.begin(catalog)?.answer(false).await };
        match answer.await {
            Ok(Answer { text, is_good, .. }) => {
                output::print(text.as_bytes())?;
                Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Err(NoAnswer { error, .. }) if is_wrong_file(&error) => Err(error),
            Err(NoAnswer { error, .. }) => {
                output::print_error(&output::error_line(&full_text(&*error)));
                Ok(ExitCode::from(NO_ANSWER))
            }
        }
    }

    /// Prints each new answer, until a signal or the last one.
    async fn watch(self, catalog: &Catalog) -> Result<ExitCode> {
        let catalog = FileCatalog::new(&self.source.features, catalog)?;
        let mut screen = Screen::new(self.view.output);
        // Before signals are caught: Ctrl-C also ends a command that still reads its manifest.
        let mut asking = match self.begin(catalog) {
            Ok(asking) => asking,
            Err(error) => {
                screen.show(Err(error.into()))?;
                return Ok(screen.code());
            }
        };
        let stop = stop_signal(|| {})?;
        let answers = async {
            while !screen.show(asking.answer(true).await)? {
                sleep(PERIOD).await;
            }
            Ok(())
        };
        match stop.run_until_cancelled(answers).await {
            Some(shown) => output::tolerate_closed_pipe(shown)?,
            None => screen.end()?,
        }
        Ok(screen.code())
    }

    fn begin(self, catalog: FileCatalog) -> Result<Asking<Q>> {
        let Self { mut question, view, source } = self;
        question.read_files()?;
        let usual = if source.files.are_asked() { LONG } else { Q::TIMEOUT };
        let limit = source.timeout.unwrap_or(usual);
        ensure!(
            source.files.are_asked() || source.remote.is_asked() || !Q::NEEDS_RUNNING,
            "only a running supercargo knows; ask it with --leader or --server"
        );
        let from = if source.files.are_asked() {
            From::Files { catalog, source: Arc::new(source) }
        } else if source.remote.is_asked() {
            From::Running { remote: Box::new(source.remote), way: None }
        } else {
            let catalog = catalog.without_file();
            From::Cluster { catalog, source: Box::new(source), reader: None }
        };
        Ok(Asking { question: Arc::new(question), view, limit, from })
    }
}

/// A question, and where its answers come from.
struct Asking<Q> {
    question: Arc<Q>,
    view: View,
    limit: Duration,
    from: From,
}

enum From {
    /// A running supercargo, and the way to it if it is open.
    Running { remote: Box<Remote>, way: Option<Box<Way>> },
    /// A capture, or a record.
    Files { catalog: FileCatalog, source: Arc<Source> },
    /// The cluster, and what has been read of it.
    Cluster { catalog: Catalog, source: Box<Source>, reader: Option<Box<Reader>> },
}

impl<Q: Question> Asking<Q> {
    /// The answer to the question now. What is open stays open for the next one, if one follows.
    async fn answer(&mut self, is_watched: bool) -> Result<Answer, NoAnswer> {
        let format = self.view.output;
        Ok(self.unformatted(is_watched).await?.formatted(format)?)
    }

    async fn unformatted(&mut self, is_watched: bool) -> Result<Answer, NoAnswer> {
        let Self { question, view, limit, from } = self;
        match from {
            From::Running { remote, way: kept } => {
                let limit = (*limit).min(SHORT);
                let ask = async {
                    let open = async || Ok(Box::new(remote.target.open().await?));
                    ask_by(kept, open, async |way| way.ask(&**question, view).await).await?
                };
                let late =
                    || format!("{LATE} {} s; with --standalone, --timeout allows more", limit.as_secs());
                timeout(limit, ask).await.with_context(late)?
            }
            From::Files { catalog, source } => {
                let deadline = Deadline::after(*limit);
                let (question, view) = (Arc::clone(question), view.clone());
                let (catalog, source) = (catalog.clone(), Arc::clone(source));
                let answer = spawn_blocking(move || {
                    let (state, as_of) = source.files.state(&catalog, source.config.as_deref(), deadline)?;
                    deadline.check()?;
                    let answer = question.answer(state, &view)?;
                    Ok(if Q::IS_FILE { answer } else { answer.dated(as_of, view.output) })
                });
                let late = || format!("{LATE} {} s; --timeout allows more", limit.as_secs());
                let answer = deadline.bound(answer).await.with_context(late)?;
                answer.context("a plugin panicked")?.map_err(|error: anyhow::Error| error.into())
            }
            From::Cluster { catalog, source, reader: kept } => {
                let deadline = Deadline::after(*limit);
                let mut reader = match kept.take() {
                    Some(reader) => reader,
                    None => Box::new(source.read(catalog, *limit).await?),
                };
                if !is_watched {
                    reader.informers.shut_down().await;
                }
                let state = reader.state(deadline)?;
                let (question, view) = (Arc::clone(question), view.clone());
                // A task of its own: plugins may compute for long.
                let answer = tokio::spawn(async move { question.answer(state, &view) });
                let late = || format!("{LATE} {} s; --timeout allows more", limit.as_secs());
                // What is late is still using the plugins of this reader.
                let answer = deadline.bound(answer).await.with_context(late)?;
                *kept = Some(reader);
                let answer = answer.context("a plugin panicked")?;
                answer.map_err(|error| NoAnswer { error, is_final: !deadline.is_over() })
            }
        }
    }
}

/// Asks by the way that is kept. If there is none or it has failed, asks by a new one. Keeps only
/// a way that works.
async fn ask_by<W, T>(
    kept: &mut Option<W>,
    open: impl AsyncFnOnce() -> Result<W>,
    ask: impl AsyncFn(&W) -> Result<T>,
) -> Result<T> {
    // Its token may have expired, or its leader may be gone.
    if let Some(way) = kept.take()
        && let Ok(answer) = ask(&way).await
    {
        *kept = Some(way);
        return Ok(answer);
    }
    let way = open().await?;
    let answer = ask(&way).await?;
    *kept = Some(way);
    Ok(answer)
}

/// A scheduler that follows the cluster, and never schedules.
struct Reader {
    informers: Informers,
    inputs: Receiver<Message>,
    scheduler: Scheduler,
    host: Host,
    config: Arc<Config>,
    namespace: String,
}

impl Source {
    /// Reads the cluster.
    async fn read(&self, catalog: &Catalog, limit: Duration) -> Result<Reader> {
        let config = Config::load_or_default(self.config.as_deref(), catalog)?;
        let configured = &config.client_connection.kubeconfig;
        let cluster = &self.remote.target.cluster;
        let given = cluster.kubeconfig.clone().or_else(|| configured.clone());
        let mut files = given.map_or_else(usual_kubeconfig, |file| vec![file]).into_iter();
        let kubeconfig = files.next();
        let choice = Choice { more_files: files.collect(), ..cluster.choice() };
        ensure!(
            kubeconfig.is_some() || !choice.needs_kubeconfig(),
            "--context, --cluster and --user need a kubeconfig; see --kubeconfig"
        );
        let connection = Connection::open_chosen(None, kubeconfig.as_deref(), choice).await?;
        let host = Host::local();
        let options = Options { hash_seed: host.hash_seed.number("hash"), ..scheduler_options(&config) };
        let scheduler = Scheduler::new(options)?;
        let mut kinds_to_read = scheduler.resources();
        // A drain respects them even if no plugin reads them.
        if !kinds_to_read.contains(&resources::POD_DISRUPTION_BUDGET) {
            kinds_to_read.push(resources::POD_DISRUPTION_BUDGET);
        }
        let (pods, nodes) = kinds(config.client_connection.reads_protobuf());
        let kinds = (pods.features(config.features.clone()), nodes);
        let late = || {
            let seconds = limit.as_secs();
            format!("cannot read the cluster within {seconds} s; run `supercargo check` to find the cause")
        };
        let read = timeout(limit, follow(&connection, kinds, &kinds_to_read)).await;
        let (informers, inputs) = read.with_context(late)??;
        let namespace = connection.namespace();
        Ok(Reader { informers, inputs, scheduler, host, config: Arc::new(config), namespace })
    }
}

impl Reader {
    /// The state of the cluster now.
    fn state(&mut self, deadline: Deadline) -> Result<State> {
        if let Some(failure) = self.informers.failed().now_or_never() {
            bail!("{failure}");
        }
        let now = self.host.clock.now();
        for message in self.inputs.try_iter() {
            if let Message::Input(input) = message {
                self.scheduler.handle(now, *input);
                self.scheduler.take_effects();
            }
        }
        let fork = self.scheduler.fork(now, scheduler_options(&self.config))?;
        let fork = fork.stop_when(move || deadline.is_over());
        let (config, namespace) = (Arc::clone(&self.config), self.namespace.clone());
        Ok(State { fork, config, namespace, deadline, most_bytes: usize::MAX })
    }
}

/// The inputs that bring a scheduler to the cluster's state, and those of later changes.
async fn follow(
    connection: &Connection,
    kinds: (PodKind, NodeKind),
    resources: &[Text],
) -> Result<(Informers, Receiver<Message>)> {
    let (server, client) = reading_client(connection)?;
    let (mailbox, messages) = Mailbox::new();
    let (informers, never) = (Informers::new(&server, client, &mailbox, kinds)?, CancellationToken::new());
    informers.start();
    informers.watch_objects(&mailbox, resources, &never).await;
    tokio::select! {
        _ = informers.synced(&never) => {}
        failure = informers.failed() => bail!("{failure}"),
    }
    Ok((informers, messages))
}

/// The kubeconfigs that kubectl merges, if they exist.
fn usual_kubeconfig() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").map(|files| existing(&files)).unwrap_or_default();
    if !named.is_empty() {
        return named;
    }
    let usual = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    usual.into_iter().filter(|file| file.exists()).collect()
}

/// The files of a list that exist. If none does, the first one, so that an error names it.
fn existing(files: &OsStr) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::env::split_paths(files).filter(|file| !file.as_os_str().is_empty()).collect();
    if files.iter().any(|file| file.exists()) {
        files.retain(|file| file.exists());
    } else {
        files.truncate(1);
    }
    files
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::TryRecvError;

    use kube::Client;
    use supercargo_apiserver::ApiServer;

    use super::*;

    #[tokio::test]
    async fn a_way_that_fails_is_replaced_before_an_error_is_shown() {
        let asked = RefCell::new(Vec::new());
        let ask = async |way: &&'static str| {
            asked.borrow_mut().push(*way);
            ensure!(*way != "expired", "it is {way}");
            Ok(*way)
        };
        let open = |new: &'static str| async move || Ok(new);
        let mut kept = None;
        assert_eq!(ask_by(&mut kept, open("first"), &ask).await.unwrap(), "first");
        assert_eq!(ask_by(&mut kept, open("unused"), &ask).await.unwrap(), "first");
        kept = Some("expired");
        assert_eq!(ask_by(&mut kept, open("second"), &ask).await.unwrap(), "second");
        ask_by(&mut Some("expired"), open("expired"), &ask).await.unwrap_err();
        assert_eq!(*asked.borrow(), ["first", "first", "expired", "second", "expired", "expired"]);
        assert_eq!(kept, Some("second"));
    }

    #[tokio::test(start_paused = true)]
    async fn informers_stop_when_their_reader_is_lost() {
        let (mailbox, messages) = Mailbox::new();
        let client = Client::new(ApiServer::default().service(), "default");
        let informers = Informers::new("test", client, &mailbox, kinds(false)).unwrap();
        informers.start();
        assert!(informers.synced(&CancellationToken::new()).await.is_synced());
        drop((informers, mailbox));
        // Their handlers have the other ends of the channel.
        let ended = async {
            while messages.try_recv().err() != Some(TryRecvError::Disconnected) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(1), ended).await.unwrap();
    }

    #[test]
    fn kubeconfigs_that_exist_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|name| {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            file.display().to_string()
        });
        let of = |text: &str| {
            let files = existing(OsStr::new(text)).into_iter();
            files.map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&format!(":/nowhere:{one}::{other}")), [one, other]);
        assert_eq!(of("/nowhere:/nothing"), ["/nowhere"]);
        assert_eq!((of(""), of(":")), (vec![], vec![]));
    }
}
