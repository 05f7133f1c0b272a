//! Compares the cost of this crate's informers with client-go's and kube_runtime's, in one run:
//! after decoding, through queue, store and listeners; and end to end, from a server on loopback.
//!
//! Run `cargo bench -p kube-informers --bench informers`; `-- --help` lists the options. Each
//! measured client is a separate process, whose processor time and memory this one reads. So a
//! garbage collector counts, and a server does not. The clients take turns within each round. See
//! `README.md` in the parent folder.

mod client;
mod measure;
mod options;
mod pipeline;
mod pods;
mod process;
mod report;
mod server;
mod slim;
mod task;
mod wire;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use supercargo_controlplane::{Assets, Program};

use measure::{Bench, Templates};
use options::{Command, HELP, Options};
use pods::Size;
use report::{Goal, Progress, Table};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("client") => client::run(),
        Some("server") => server::run(),
        _ => Options::parse(arguments.into_iter()).and_then(|command| match command {
            Command::Measure(options) => measure(options),
            Command::Help => {
                print!("{HELP}");
                Ok(())
            }
            Command::Nothing => Ok(()),
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("informers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: Options) -> Result<()> {
    let go = if options.go { go_program(options.test) } else { None };
    let bench = Bench { this: std::env::current_exe()?, go, progress: Progress::new(), options };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (mut tables, mut goals) = (Vec::new(), Vec::new());
    for (size, share, listeners) in [(Size::Small, 1, &[0, 1, 4][..]), (Size::Large, 5, &[1][..])] {
        let templates: Templates = runtime.block_on(pods::templates(size))?;
        let pods = (bench.options.pods / share).max(1);
        let events = (bench.options.events / share).max(1);
        if bench.options.pipeline {
            bench.pipeline(&templates, [pods, events], listeners, &mut tables, &mut goals)?;
        }
        if bench.options.wire {
            bench.wire(&templates, [pods, events], &mut tables, &mut goals)?;
        }
    }
    bench.progress.clear();
    if bench.options.json {
        println!("{:#}", to_json(&bench.options, &tables, &goals));
        return Ok(());
    }
    for table in &tables {
        println!("{}", table.show());
    }
    if !goals.is_empty() {
        println!("Of client-go's, by the medians");
    }
    for goal in &goals {
        print!("{}", goal.show());
    }
    Ok(())
}

/// The Go program, or `None` after reporting why. A test does not wait for a build.
fn go_program(test: bool) -> Option<PathBuf> {
    const PROGRAM: Program = Program::InformerBench;
    let find = || {
        let assets = Assets::locate()?;
        let built = assets.is_given(PROGRAM) || Assets::cache_dir(PROGRAM)?.join(PROGRAM.name()).is_file();
        if built || !test { assets.path(PROGRAM).map(Some) } else { Ok(None) }
    };
    match find() {
        Ok(Some(path)) => return Some(path),
        Ok(None) => eprintln!("informers: without client-go: {} is not built yet", PROGRAM.name()),
        Err(why) => eprintln!("informers: without client-go: {why:#}"),
    }
    None
}

fn to_json(options: &Options, tables: &[Table], goals: &[Goal]) -> Value {
    json!({
        "pods": options.pods, "events": options.events, "rounds": options.rounds,
        "processors": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "tables": tables.iter().map(Table::to_json).collect::<Value>(),
        "goals": goals.iter().map(Goal::to_json).collect::<Value>(),
    })
}
