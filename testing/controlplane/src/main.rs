//! `controlplane build` builds every program into the cache; `controlplane up` runs a control
//! plane.

use std::io::{self, Read as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use supercargo_controlplane::{Assets, ControlPlane, Options, Program};

const USAGE: &str = "usage: controlplane build | up
  build  builds every program into the cache and prints where each is
  up     starts etcd and kube-apiserver, prints the kubeconfig's path, runs until Ctrl-C or the end of stdin";

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let result = match command.as_deref() {
        Some("build") => build(),
        Some("up") => up(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<()> {
    let assets = Assets::locate_or_build(&Program::ALL)?;
    for program in Program::ALL {
        println!("{}", assets.path(program)?.display());
    }
    Ok(())
}

fn up() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    println!("{}", plane.kubeconfig("admin")?.display());
    eprintln!("control plane: {} is up; Ctrl-C or the end of stdin ends it", plane.url());
    // On Ctrl-C this process just dies, and what it started ends with it.
    io::stdin().read_to_end(&mut Vec::new()).context("read stdin")?;
    Ok(())
}
