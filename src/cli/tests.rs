//! Help, completions and parsing of the command line.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;

use supercargo_framework::Now;
use supercargo_scheduler::Input;
use supercargo_scheduler::record::{Content, RecordedCall, SchedulerCall};

use super::{Cli, Command, UsageError, completions, manual, name_and_version};
use supercargo_config::{Catalog, Config};

/// The help of a subcommand at the maximum width.
fn help(subcommand: &str) -> String {
    let mut command = Cli::command().term_width(80);
    command.build();
    let mut command = &mut command;
    for name in subcommand.split(' ') {
        command = command.find_subcommand_mut(name).expect("a subcommand");
    }
    command.render_long_help().to_string()
}

#[test]
fn command_line_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_is_grouped_and_at_most_80_columns_wide() {
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
fn help_lists_feature_gates_where_the_flag_exists() {
    for command in ["run", "replay", "config default", "config show", "config validate"] {
        let help = help(command);
        assert!(help.contains("--feature-gates") && help.contains("  AllAlpha=true|false"), "{help}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in Shell::value_variants() {
        let script = String::from_utf8(completions(*shell)).unwrap();
        assert!(script.contains("secure-port") && script.contains("validate"), "{shell}");
    }
}

#[test]
fn manual_pages_describe_the_program_and_its_subcommands() {
    let page = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        manual(&words).map(|page| String::from_utf8(page).unwrap()).map_err(|error| error.to_string())
    };
    let program = page(&[]).unwrap();
    assert!(program.starts_with(".ie") || program.contains(".TH supercargo 1"), "{program}");
    assert!(page(&["run"]).unwrap().contains("supercargo\\-run"));
    assert!(page(&["run"]).unwrap().contains("\\-\\-leader\\-elect"));
    assert!(page(&["config", "validate"]).unwrap().contains("supercargo\\-config\\-validate"));
    // The title, and the version for the footer.
    let title = format!(".TH supercargo-run 1  \"{}\"", name_and_version());
    let run = page(&["run"]).unwrap();
    assert!(run.lines().any(|line| line.trim_end() == title), "{run}");
    for words in [&["rn"][..], &["run", "rn"]] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let error = manual(&words).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&UsageError::NoSubcommand(words.join(" "))));
    }
}

#[test]
fn the_table_of_exit_codes_has_every_subcommand() {
    let document = include_str!("../../docs/configuration.md");
    let section = document.split("\n## ").find(|section| section.starts_with("Exit codes\n")).unwrap();
    let commands: String =
        section.lines().filter_map(|row| row.strip_prefix("| ")?.split(" |").next()).collect();
    let mut program = Cli::command();
    program.build();
    let names = program.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
    let missing: Vec<&str> = names.filter(|name| !commands.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/configuration.md has no exit codes of {missing:?}");
}

#[test]
fn the_list_of_gates_is_where_each_help_says() {
    let list = "  AllAlpha=true|false";
    let mut program = Cli::command();
    program.build();
    let mut commands: Vec<&mut clap::Command> = program.get_subcommands_mut().collect();
    let mut checked = 0;
    while let Some(command) = commands.pop() {
        let help = command.render_long_help().to_string();
        if help.contains("--feature-gates") {
            let words: Vec<_> = help.split_whitespace().collect();
            assert!(words.join(" ").contains("`supercargo run --help` lists the gates"), "{help}");
            assert!(!help.contains("this help") || help.contains(list), "{help}");
            checked += 1;
        }
        commands.extend(command.get_subcommands_mut());
    }
    assert!(checked >= 12, "{checked}");
    assert!(help("run").contains(list));
}

#[test]
fn flagz_shows_values_of_the_command_line() {
    let cli = Cli::parse_from(["supercargo", "run", "--secure-port=1", "--client-ca-file=/ca.crt"]);
    let Command::Run(flags) = cli.command else { panic!("want run") };
    let text = flags.flagz(&Config::default_with(&Catalog::in_tree()).unwrap());
    for line in ["secure-port=1", "client-ca-file=/ca.crt", "authorization-webhook-cache-authorized-ttl=10s"]
    {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn flagz_shows_every_flag_of_run() {
    let cli = Cli::parse_from(["supercargo", "run"]);
    let Command::Run(flags) = cli.command else { panic!("want run") };
    let text = flags.flagz(&Config::default_with(&Catalog::in_tree()).unwrap());
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let mut program = Cli::command();
    program.build();
    let run = program.find_subcommand("run").unwrap();
    // Flags without effect are hidden.
    let visible = run.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(|flag| flag.get_long());
    let expected: BTreeSet<&str> = visible.filter(|name| !["help", "version"].contains(name)).collect();
    assert_eq!(shown, expected);
}

/// A line of a record, without effects.
fn line(call: SchedulerCall) -> Vec<u8> {
    RecordedCall { now: Now::default(), call, effects: Vec::new() }.to_line().unwrap()
}

/// Replays segments with these contents.
fn replay(segments: &[&[u8]]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(number, content): (usize, &&[u8])| {
        let path = folder.path().join(format!("record.{number}"));
        std::fs::write(&path, content).unwrap();
        path.into_os_string()
    };
    let words = ["supercargo", "replay"].map(Into::into).into_iter();
    let cli = Cli::try_parse_from(words.chain(segments.iter().enumerate().map(write))).unwrap();
    let Command::Replay(options) = cli.command else { panic!("want replay") };
    options.run(&Catalog::in_tree()).map(drop).map_err(|error| format!("{error:#}"))
}

#[test]
fn only_the_last_segment_of_a_record_may_be_incomplete() {
    let config = Config::default_with(&Catalog::in_tree()).unwrap().to_yaml();
    let begin = line(SchedulerCall::Begin(Content::Record, config, None));
    let whole = line(SchedulerCall::Handle(Box::new(Input::Tick)));
    let cut = &whole[..whole.len() / 2];
    for last in [&whole, &[&whole, cut].concat(), cut, b""] {
        replay(&[&begin, last]).unwrap();
    }
    let begun = [&begin, cut].concat();
    for (first, problem) in [(&begun[..], "the last line is cut off"), (b"", "the file is empty")] {
        let error = replay(&[first, &whole]).unwrap_err();
        assert!(
            error.contains(&format!("record.0: {problem}, but ")) && error.contains("record.1"),
            "{error}"
        );
    }
    assert!(replay(&[cut]).unwrap_err().ends_with("the record is empty"));
}

#[test]
fn a_folder_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let cli = Cli::try_parse_from(["supercargo", "replay", &path]).unwrap();
    let Command::Replay(options) = cli.command else { panic!("want replay") };
    let error = format!("{:#}", options.run(&Catalog::in_tree()).unwrap_err());
    assert_eq!(error, format!("cannot read {path}: is a directory"));
}
