//! What the program says of itself.

use clap::ValueEnum as _;
use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;

use super::{Cli, Command, completions};
use supercargo_config::{Catalog, Config};

/// The help of a subcommand, as wide as it may get.
fn help(subcommand: &str) -> String {
    let mut command = Cli::command().term_width(80);
    command.build();
    let command = command.find_subcommand_mut(subcommand).expect("a subcommand");
    command.render_long_help().to_string()
}

#[test]
fn the_command_line_is_in_itself_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_is_grouped_and_fits_on_a_terminal() {
    let help = help("run");
    for heading in [
        "Misc flags:",
        "Secure serving flags:",
        "Authentication flags:",
        "Authorization flags:",
        "Leader election flags",
        "Feature flags:",
        "Traces flags:",
        "Logs flags:",
    ] {
        assert!(help.contains(heading), "{heading} is not in\n{help}");
    }
    let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_shell_has_completions() {
    for shell in Shell::value_variants() {
        let script = String::from_utf8(completions(*shell)).unwrap();
        assert!(script.contains("secure-port") && script.contains("validate"), "{shell}");
    }
}

#[test]
fn what_the_command_line_says_is_told_by_flagz() {
    let cli = Cli::parse_from(["supercargo", "run", "--secure-port=1", "--client-ca-file=/ca.crt"]);
    let Command::Run(flags) = cli.command else { panic!("it is run") };
    let text = flags.flagz(&Config::default_with(&Catalog::in_tree()).unwrap());
    for line in ["secure-port=1", "client-ca-file=/ca.crt", "authorization-webhook-cache-authorized-ttl=10s"]
    {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
