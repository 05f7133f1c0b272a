//! The `supercargo` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    supercargo::SchedulerCommand::new().main()
}
