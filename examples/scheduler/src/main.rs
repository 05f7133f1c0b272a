//! supercargo with two more plugins. `config.yaml` enables them.

use std::process::ExitCode;

use example_scheduler::{gang, node_cost};
use supercargo::SchedulerCommand;

fn main() -> ExitCode {
    SchedulerCommand::new()
        .with_plugin(node_cost::NAME, node_cost::from_args)
        .with_plugin(gang::NAME, gang::from_args)
        .main()
}
