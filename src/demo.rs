//! `supercargo demo`: schedules a workload on an in-memory cluster and shows the decisions.
//!
//! ```text
//! plan ──> driver ──> API server <── scheduler, as in `supercargo run`
//!                        │
//!                        └──> watch ──> model ──> view (terminal) or lines, report
//! ```
//! The scheduler does not know the demo. The demo shows only what any client of the API can see.

mod canvas;
mod driver;
mod lines;
mod manifests;
mod model;
mod options;
mod plan;
mod report;
mod screen;
mod server;
mod text;
mod view;
mod watch;
mod workload;

use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube_informers::SharedInformerFactory;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

pub use options::DemoOptions;

use crate::cli::output::{NO_OUTPUT, tolerate_closed_pipe, write_text};
use crate::page;
use crate::run::{schedule, schedule_with_page, stop_signal};
use canvas::Capabilities;
use driver::Driver;
use lines::Lines;
use model::{Model, display_name};
use plan::Plan;
use screen::Screen;
use server::Server;
use supercargo_client::api::Api;
use supercargo_config::flags::MiscOptions;
use supercargo_config::{Catalog, Config};
use supercargo_framework::features::{Feature, Features};
use supercargo_serving::Loopback;
use supercargo_telemetry::logs::LogSink;
use text::count;
use view::Header;
use watch::Shared;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(50);
/// The demo ends when no pod is undecided and nothing has changed for this long. Longer than the
/// first backoff of a pod.
const QUIET: Duration = Duration::from_millis(2500);
/// The demo fails if a pod is undecided and nothing has changed for this long.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the demo to its end or until a signal.
pub async fn demo(options: DemoOptions, catalog: &Catalog, logs: &LogSink) -> Result<()> {
    // Ignores a second signal, so that the terminal is always restored.
    let stop = stop_signal(|| {})?;
    if io::stdout().is_terminal() {
        stop_on_hangup(&stop)?;
    }
    // The API server of the demo has them on.
    let with_gate = |features: Features, gate| features.with(gate, true);
    let features = Feature::OF_GROUPS.into_iter().fold(catalog.features.clone(), with_gate);
    let catalog = catalog.clone().with_features(features);
    let mut config = Config::load_or_default(options.config.as_deref(), &catalog)?;
    // The demo has a single scheduler.
    config.leader_election.leader_elect = false;
    config.timeline_memory = MiscOptions::default().timeline_memory;
    let scheduler_name = first_profile(&config)?;
    let plan = plan(&options, &scheduler_name)?;
    let server = Server::start().await?;
    let demo = Demo {
        driver: Driver::new(Api::new(server.connection(), None)?),
        shared: Shared::new(Model::new(&scheduler_name)),
        title: title(&options, &plan),
        expected: plan.pods,
        plan,
        config,
        speed: options.speed,
        keep: options.keep || options.ui,
        ui: options.ui,
        catalog,
        server,
    };
    tolerate_closed_pipe(demo.run(&stop, logs).await)
}

/// The scheduler name of the demo's pods.
fn first_profile(config: &Config) -> Result<Arc<str>> {
    let profile = config.profiles.first().context("the configuration has no profile")?;
    Ok(Arc::clone(&profile.scheduler_name))
}

fn plan(options: &DemoOptions, scheduler_name: &str) -> Result<Plan> {
    let nodes = options.nodes as usize;
    match &options.manifests {
        Some(path) => {
            let default_nodes = || workload::all_nodes(nodes, options.seed);
            manifests::plan(path, scheduler_name, default_nodes)
        }
        None => {
            let size = workload::Size { nodes, pods: options.pods as usize, seed: options.seed };
            Ok(workload::plan(size, scheduler_name))
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
    config: Config,
    speed: f64,
    keep: bool,
    /// Whether the page shows the scheduler, and not this terminal.
    ui: bool,
    catalog: Catalog,
    server: Server,
}

impl Demo {
    async fn run(&self, stop: &CancellationToken, logs: &LogSink) -> Result<()> {
        let (nodes_exist, stop_clients) = (CancellationToken::new(), CancellationToken::new());
        let page = if self.ui { Some(self.listen().await?) } else { None };
        let mut scheduler = self.start_scheduler(page, nodes_exist.clone(), stop_clients.clone());
        let result = tokio::select! {
            result = self.show(&nodes_exist, &stop_clients, stop, logs) => result,
            ended = &mut scheduler => return Err(scheduler_error(ended)),
        };
        // Clients stop before the server, so that they log no errors.
        stop_clients.cancel();
        let ended = scheduler.await.context("the scheduler panicked")?;
        result.and(ended)
    }

    /// Runs and shows everything except the scheduler.
    async fn show(
        &self,
        nodes_exist: &CancellationToken,
        stop_clients: &CancellationToken,
        stop: &CancellationToken,
        logs: &LogSink,
    ) -> Result<()> {
        let is_terminal = io::stdout().is_terminal() && !self.ui;
        let capabilities = screen::capabilities(is_terminal, |name| std::env::var(name).ok());
        let shown = async {
            match capabilities {
                None if self.ui => pending().await,
                Some(capabilities) => {
                    screen::quit_on_q(stop.clone());
                    self.show_picture(capabilities, logs).await
                }
                None => self.show_lines().await,
            }
        };
        let informers = tokio::select! {
            informers = self.work(nodes_exist, stop_clients) => Some(informers?),
            result = shown => { result?; None }
            () = stop.cancelled() => None,
        };
        self.conclude(capabilities.is_some(), stop.is_cancelled())?;
        if let Some(informers) = informers.filter(|_| self.keep) {
            tokio::select! {
                result = self.keep_running() => result?,
                failure = informers.failed() => bail!("{failure}"),
                () = stop.cancelled() => {}
            }
        }
        match self.shared.read().rejected().len() {
            0 => Ok(()),
            rejected => bail!("the API server rejected {}", count(rejected, "object")),
        }
    }

    /// Carries out the plan, and waits for the last decision.
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

    /// Opens a port for the page.
    async fn listen(&self) -> Result<Loopback> {
        print_text(&format!("supercargo demo: {}, {}\n", self.title, count(self.expected, "pod")))?;
        Loopback::bind(page::PATH).await.context("cannot listen on loopback")
    }

    /// Starts the scheduler once the nodes exist, and serves its page.
    fn start_scheduler(
        &self,
        page: Option<Loopback>,
        go: CancellationToken,
        stop: CancellationToken,
    ) -> JoinHandle<Result<()>> {
        let (config, connection) = (self.config.clone(), self.server.connection());
        let catalog = self.catalog.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = go.cancelled() => {}
                () = stop.cancelled() => return Ok(()),
            }
            let Some(loopback) = page else { return schedule(&config, connection, None, &stop).await };
            let link = loopback.link();
            print_text(&format!("Open {link}\n"))?;
            page::ui::open(&link);
            schedule_with_page(
                &config,
                connection,
                &catalog,
                (loopback, Arc::new(page::ui::print_next_link)),
                &stop,
            )
            .await
        })
    }

    /// Waits until all pods are decided, and nothing has changed for a while.
    async fn settled(&self) -> Result<()> {
        // Controllers may have yet to create the last pods.
        sleep(QUIET).await;
        loop {
            let now = self.shared.elapsed();
            {
                let model = self.shared.read();
                if model.is_settled(now, QUIET) {
                    return Ok(());
                }
                if now.saturating_sub(model.last_change()) > DECISION_TIMEOUT {
                    let undecided = count(model.counts().undecided, "pod");
                    bail!("no decision about {undecided} within {} s", DECISION_TIMEOUT.as_secs());
                }
            }
            sleep(FRAME).await;
        }
    }

    /// Draws until dropped.
    async fn show_picture(&self, capabilities: Capabilities, logs: &LogSink) -> Result<()> {
        let _held = logs.hold();
        let mut resized = signal(SignalKind::window_change()).context("cannot listen for SIGWINCH")?;
        let mut screen = Screen::open(capabilities).context("cannot draw on this terminal; try TERM=dumb")?;
        let title = format!("{}; press q to quit", self.title);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = frames.tick() => {}
                _ = resized.recv() => {}
            }
            let header = Header {
                elapsed: self.shared.elapsed(),
                title: &title,
                phase: self.shared.phase(),
                expected: self.expected,
            };
            screen.draw(|canvas| view::draw(canvas, &self.shared.read(), &header))?;
        }
    }

    /// Prints until dropped.
    async fn show_lines(&self) -> Result<()> {
        print_text(&format!("supercargo demo: {}, {}\n", self.title, count(self.expected, "pod")))?;
        self.print_notes()?;
        self.print_from(Lines::default()).await
    }

    async fn print_from(&self, mut lines: Lines) -> Result<()> {
        let mut changes = self.shared.changes();
        loop {
            lines.print(&self.shared.read(), &mut io::stdout().lock()).context(NO_OUTPUT)?;
            // Cannot fail: the sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn print_notes(&self) -> Result<()> {
        self.plan.notes.iter().try_for_each(|note| print_text(&format!("{note}\n")))
    }

    /// Prints the summary.
    fn conclude(&self, after_picture: bool, early: bool) -> Result<()> {
        let model = self.shared.read();
        if after_picture {
            print_text(&format!("supercargo demo: {}\n", self.title))?;
            self.print_notes()?;
        }
        if early {
            print_text("Ended early.\n")?;
        }
        let columns = if after_picture { screen::size().0 } else { lines::WIDTH };
        print_text(&format!("\n{}", report::summary(&model, columns)))
    }

    /// Prints commands to try, and then changes, until dropped.
    async fn keep_running(&self) -> Result<()> {
        let mut lines = Lines::default();
        let scheduler_name = first_profile(&self.config)?;
        let next_steps = {
            let model = self.shared.read();
            lines.skip(&model);
            let waiting = model.waiting().first().and_then(|group| group.pods.first().map(display_name));
            report::next_steps(self.server.kubeconfig(), &scheduler_name, waiting.as_deref())
        };
        print_text(&format!("\n{next_steps}\n"))?;
        self.print_from(lines).await
    }
}

fn print_text(text: &str) -> Result<()> {
    write_text(&mut io::stdout(), text.as_bytes())
}

fn scheduler_error(ended: std::result::Result<Result<()>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow::anyhow!("scheduler exited unexpectedly"),
        Ok(Err(error)) => error,
        Err(_) => anyhow::anyhow!("the scheduler panicked"),
    }
}

/// Closing the terminal stops the demo, too.
fn stop_on_hangup(stop: &CancellationToken) -> Result<()> {
    let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let stop = stop.clone();
    tokio::spawn(async move {
        hang_up.recv().await;
        stop.cancel();
    });
    Ok(())
}
