//! `supercargo demo`: a cluster in memory, a workload that arrives, and a scheduler at work on it.
//!
//! ```text
//! plan ──> driver ──> API server <── scheduler, as `supercargo run` has it
//!                        │
//!                        └──> watch ──> model ──> view (terminal) or lines, report
//! ```
//!
//! The scheduler knows nothing of the demo, and what is shown comes from the API alone, as any client would see it.

mod canvas;
mod driver;
mod lines;
mod manifests;
mod model;
mod options;
mod plan;
mod random;
mod report;
mod screen;
mod server;
mod text;
mod view;
mod watch;
mod workload;

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube_informers::SharedInformerFactory;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

pub use options::DemoOptions;

use crate::api::Api;
use crate::config::{Catalog, Config, DEFAULT_SCHEDULER_NAME};
use crate::logs::LogSink;
use crate::run::{load_config, schedule, stop_signal};
use canvas::Abilities;
use driver::Driver;
use lines::Lines;
use model::{Model, display_name};
use plan::Plan;
use screen::Screen;
use server::Server;
use text::count;
use view::Head;
use watch::Shared;

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(50);
/// When for so long nothing has changed, and nothing is undecided, it is over. Longer than the first backoff of a pod.
const QUIET: Duration = Duration::from_millis(2500);
/// When for so long nothing has changed although something is undecided, something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the demo to its end, or until a signal comes.
pub async fn demo(options: DemoOptions, catalog: &Catalog, logs: &LogSink) -> Result<()> {
    // The terminal is to be left as it was found, however often one asks.
    let stop = stop_signal(|| {})?;
    if io::stdout().is_terminal() {
        hang_up_stops(&stop)?;
    }
    let plan = plan(&options)?;
    let mut config = load_config(options.config.as_deref(), catalog)?;
    // There is no other scheduler to coordinate with.
    config.leader_election.leader_elect = false;
    let server = Server::start().await?;
    let demo = Demo {
        driver: Driver::new(Api::new(server.connection(), None)?),
        shared: Shared::new(Model::new(DEFAULT_SCHEDULER_NAME)),
        title: title(&options, &plan),
        expected: plan.count("Pod"),
        plan,
        speed: options.speed,
        keep: options.keep,
        config,
        server,
    };
    match demo.run(&stop, logs).await {
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn plan(options: &DemoOptions) -> Result<Plan> {
    let nodes = options.nodes as usize;
    match &options.manifests {
        Some(path) => {
            let own = || workload::all_nodes(nodes, options.seed);
            manifests::plan(path, DEFAULT_SCHEDULER_NAME, own)
        }
        None => {
            let size = workload::Size { nodes, pods: options.pods as usize, seed: options.seed };
            Ok(workload::plan(size, DEFAULT_SCHEDULER_NAME))
        }
    }
}

fn title(options: &DemoOptions, plan: &Plan) -> String {
    let what = match &options.manifests {
        Some(path) => path.display().to_string(),
        None => format!("seed {}", options.seed),
    };
    format!("{what}, {}", count(plan.count("Node"), "node"))
}

struct Demo {
    driver: Driver,
    shared: Shared,
    title: String,
    expected: usize,
    plan: Plan,
    speed: f64,
    keep: bool,
    config: Config,
    server: Server,
}

impl Demo {
    async fn run(&self, stop: &CancellationToken, logs: &LogSink) -> Result<()> {
        let (nodes_exist, stop_clients) = (CancellationToken::new(), CancellationToken::new());
        let mut scheduler = self.start_scheduler(nodes_exist.clone(), stop_clients.clone());
        let result = tokio::select! {
            result = self.show(&nodes_exist, &stop_clients, stop, logs) => result,
            ended = &mut scheduler => return Err(scheduler_error(ended)),
        };
        // Before the server, so that nobody complains that it is gone.
        stop_clients.cancel();
        let ended = scheduler.await.context("the scheduler panicked")?;
        result.and(ended)
    }

    /// Everything but the scheduler.
    async fn show(
        &self,
        nodes_exist: &CancellationToken,
        stop_clients: &CancellationToken,
        stop: &CancellationToken,
        logs: &LogSink,
    ) -> Result<()> {
        let abilities = screen::abilities(io::stdout().is_terminal(), |name| std::env::var(name).ok());
        let shown = async {
            match abilities {
                Some(abilities) => {
                    screen::quit_on_q(stop.clone());
                    self.show_picture(abilities, logs).await
                }
                None => self.show_lines().await,
            }
        };
        let informers = tokio::select! {
            informers = self.work(nodes_exist, stop_clients) => Some(informers?),
            result = shown => { result?; None }
            () = stop.cancelled() => None,
        };
        self.conclude(abilities.is_some(), stop.is_cancelled())?;
        if let Some(informers) = informers.filter(|_| self.keep) {
            tokio::select! {
                result = self.stay() => result?,
                failure = informers.failed() => bail!("{failure}"),
                () = stop.cancelled() => {}
            }
        }
        match self.shared.read().refused().len() {
            0 => Ok(()),
            refused => bail!("the API server refused {}", count(refused, "object")),
        }
    }

    /// Carries the plan out, and waits for the last decision.
    async fn work(
        &self,
        nodes_exist: &CancellationToken,
        stop_clients: &CancellationToken,
    ) -> Result<SharedInformerFactory> {
        self.driver.create_all(&self.plan.first).await?;
        nodes_exist.cancel();
        let informers = watch::watch(self.server.connection(), &self.shared, stop_clients).await?;
        let work = async {
            self.shared.set_phase("pods arrive");
            self.driver.carry_out(&self.plan.steps, self.speed, &self.shared).await?;
            self.shared.set_phase("last decisions");
            self.settled().await
        };
        tokio::select! {
            result = work => result?,
            failure = informers.failed() => bail!("{failure}"),
        }
        Ok(informers)
    }

    /// Starts the scheduler as soon as there are nodes.
    fn start_scheduler(&self, go: CancellationToken, stop: CancellationToken) -> JoinHandle<Result<()>> {
        let (config, connection) = (self.config.clone(), self.server.connection());
        tokio::spawn(async move {
            tokio::select! {
                () = go.cancelled() => schedule(&config, connection, None, &stop).await,
                () = stop.cancelled() => Ok(()),
            }
        })
    }

    /// Waits until there is nothing left to decide.
    async fn settled(&self) -> Result<()> {
        loop {
            let now = self.shared.elapsed();
            {
                let model = self.shared.read();
                if model.is_settled(now, QUIET) {
                    return Ok(());
                }
                if now.saturating_sub(model.last_change()) > PATIENCE {
                    let undecided = count(model.counts().undecided, "pod");
                    bail!("nothing was decided about {undecided} within {} s", PATIENCE.as_secs());
                }
            }
            sleep(FRAME).await;
        }
    }

    /// Draws until it is dropped.
    async fn show_picture(&self, abilities: Abilities, logs: &LogSink) -> Result<()> {
        let _held = logs.hold();
        let mut resized = signal(SignalKind::window_change()).context("cannot listen for SIGWINCH")?;
        let mut screen = Screen::open(abilities).context("cannot draw on this terminal; try TERM=dumb")?;
        let title = format!("{}; q ends it", self.title);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = frames.tick() => {}
                _ = resized.recv() => {}
            }
            let head = Head {
                elapsed: self.shared.elapsed(),
                title: &title,
                phase: self.shared.phase(),
                expected: self.expected,
            };
            screen.draw(|canvas| view::draw(canvas, &self.shared.read(), &head))?;
        }
    }

    /// Prints until it is dropped.
    async fn show_lines(&self) -> Result<()> {
        say(&format!("supercargo demo: {}, {}\n", self.title, count(self.expected, "pod")))?;
        self.say_notes()?;
        self.print_from(Lines::default()).await
    }

    async fn print_from(&self, mut lines: Lines) -> Result<()> {
        let mut changes = self.shared.changes();
        loop {
            lines.print(&self.shared.read(), &mut io::stdout().lock())?;
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn say_notes(&self) -> Result<()> {
        self.plan.notes.iter().try_for_each(|note| say(&format!("{note}\n")))
    }

    /// Prints the summary.
    fn conclude(&self, after_picture: bool, early: bool) -> Result<()> {
        let model = self.shared.read();
        if after_picture {
            say(&format!("supercargo demo: {}\n", self.title))?;
            self.say_notes()?;
        }
        if early {
            say("Ended early.\n")?;
        }
        let columns = if after_picture { screen::size().0 } else { lines::WIDTH };
        say(&format!("\n{}", report::summary(&model, self.shared.elapsed(), columns)))
    }

    /// Says what to try, and then what happens, until it is dropped.
    async fn stay(&self) -> Result<()> {
        let mut lines = Lines::default();
        let invitation = {
            let model = self.shared.read();
            lines.skip(&model);
            let waiting = model.waiting().first().and_then(|group| group.pods.first().map(display_name));
            report::invitation(self.server.kubeconfig(), DEFAULT_SCHEDULER_NAME, waiting.as_deref())
        };
        say(&format!("\n{invitation}\n"))?;
        self.print_from(lines).await
    }
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn scheduler_error(ended: std::result::Result<Result<()>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow::anyhow!("the scheduler ended unasked"),
        Ok(Err(error)) => error,
        Err(_) => anyhow::anyhow!("the scheduler panicked"),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The terminal may be closed, too.
fn hang_up_stops(stop: &CancellationToken) -> Result<()> {
    let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let stop = stop.clone();
    tokio::spawn(async move {
        hang_up.recv().await;
        stop.cancel();
    });
    Ok(())
}
