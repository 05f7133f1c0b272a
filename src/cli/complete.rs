//! Completion under kubectl. It runs `kubectl_complete-supercargo` with the words after
//! `kubectl supercargo`, the last of which is being typed. The program prints a candidate per line,
//! with a description after a tab, and then what the shell may add: `:0` files, `:4` nothing.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use clap::{Arg, ArgAction, ValueHint};

/// What the last line allows the shell.
const FILES: &str = ":0\n";
const NOTHING_ELSE: &str = ":4\n";

/// Options that kubectl has, too: it completes them itself.
const OF_KUBECTL: &[&str] = &["namespace", "context", "cluster", "user", "kubeconfig", "as", "as-group"];
/// Arguments whose values are names of nodes, and of pods.
const NODES: &[&str] = &["node", "nodes", "add", "uncordon", "cordon", "fail", "drain"];
const PODS: &[&str] = &["pod", "delete", "copy"];

/// What can follow.
#[derive(Debug, PartialEq, Eq)]
enum Completion {
    /// These words, each with a description.
    Words(Vec<(String, String)>),
    /// A file.
    File,
    /// What kubectl completes after these words.
    Kubectl(Vec<String>),
}

/// The answer to kubectl for these words.
pub(super) fn answer(program: clap::Command, words: &[OsString]) -> Vec<u8> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match complete(program, &words) {
        Completion::Words(words) => {
            let line = |(word, about): &(String, String)| format!("{word}\t{about}\n");
            words.iter().map(line).chain([NOTHING_ELSE.to_owned()]).collect::<String>().into_bytes()
        }
        Completion::File => FILES.as_bytes().to_vec(),
        Completion::Kubectl(words) => ask_kubectl(&words),
    }
}

/// What kubectl's own completion answers, which has the same form.
fn ask_kubectl(words: &[String]) -> Vec<u8> {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("__complete").args(words).stdin(Stdio::null()).stderr(Stdio::null());
    // Without an answer, there is nothing to complete.
    let answer = kubectl.output().ok().filter(|output| output.status.success());
    answer.map_or_else(|| NOTHING_ELSE.as_bytes().to_vec(), |output| output.stdout)
}

fn complete(mut program: clap::Command, words: &[String]) -> Completion {
    program.build();
    let Some((typed, before)) = words.split_last() else { return Completion::Words(Vec::new()) };
    let mut command = &program;
    let (mut expected, mut positionals, mut only_positionals) = (None, 0, false);
    let mut for_kubectl = Vec::new();
    for word in before {
        if let Some(option) = expected.take() {
            pass_on(option, word, &mut for_kubectl);
        } else if only_positionals || !word.starts_with('-') || word == "-" {
            match command.find_subcommand(word).filter(|_| positionals == 0) {
                Some(subcommand) => command = subcommand,
                None => positionals += 1,
            }
        } else if word == "--" {
            only_positionals = true;
        } else {
            match option(command, word) {
                Some((option, Some(value))) => pass_on(option, value, &mut for_kubectl),
                found => expected = found.map(|(option, _)| option).filter(|option| takes_value(option)),
            }
        }
    }
    if let Some(option) = expected {
        return values(option, "", typed, for_kubectl);
    }
    if typed.starts_with('-') && !only_positionals {
        return match option(command, typed) {
            Some((option, Some(value))) => {
                values(option, &typed[..typed.len() - value.len()], value, for_kubectl)
            }
            _ => Completion::Words(options(command, typed)),
        };
    }
    let subcommands = command.get_subcommands().filter(|it| !it.is_hide_set() && positionals == 0);
    let subcommands: Vec<_> = subcommands
        .filter(|it| it.get_name().starts_with(&**typed))
        .map(|it| (it.get_name().to_owned(), about(it.get_about())))
        .collect();
    match command.get_positionals().nth(positionals) {
        Some(positional) if subcommands.is_empty() => values(positional, "", typed, for_kubectl),
        _ => Completion::Words(subcommands),
    }
}

/// Keeps an option that also chooses what kubectl completes.
fn pass_on(option: &Arg, value: &str, for_kubectl: &mut Vec<String>) {
    if let Some(name) = of_kubectl(option) {
        for_kubectl.push(format!("--{name}={value}"));
    }
}

/// The name of an option that kubectl has, too.
fn of_kubectl(option: &Arg) -> Option<&str> {
    option.get_long().filter(|name| OF_KUBECTL.contains(name))
}

/// The option in a word such as `--output`, `--output=json`, `-o`, `-ojson` or `-wo`, with its
/// value. Of several letters, it is the one that has a value.
fn option<'a, 'w>(command: &'a clap::Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
        return Some((command.get_arguments().find(|it| it.get_long() == Some(name))?, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    while let Some(letter) = letters.next() {
        let option = command.get_arguments().find(|it| it.get_short() == Some(letter))?;
        if has_value(option) {
            let rest = letters.as_str();
            let value = rest.strip_prefix('=').unwrap_or(rest);
            return Some((option, (!rest.is_empty()).then_some(value)));
        }
    }
    None
}

fn has_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Whether the next word is the option's value. Other values are after `=`.
fn takes_value(option: &Arg) -> bool {
    has_value(option) && !option.is_require_equals_set()
}

/// The options that begin so.
fn options(command: &clap::Command, typed: &str) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|option| !option.is_hide_set());
    let named =
        shown.filter_map(|option| Some((format!("--{}", option.get_long()?), about(option.get_help()))));
    named.filter(|(name, _)| name.starts_with(typed)).collect()
}

/// The values of an argument that begin so, each behind the part of the word that names the option.
fn values(arg: &Arg, prefix: &str, typed: &str, mut for_kubectl: Vec<String>) -> Completion {
    let id = arg.get_id().as_str();
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|it| !it.is_hide_set() && it.get_name().starts_with(typed));
        let words = shown.map(|it| (format!("{prefix}{}", it.get_name()), about(it.get_help())));
        return Completion::Words(words.collect());
    }
    if !prefix.is_empty() {
        // kubectl's candidates would lack the prefix.
        return Completion::Words(Vec::new());
    }
    let asked: &[&str] = if let Some(name) = of_kubectl(arg).filter(|name| *name != "kubeconfig") {
        for_kubectl.push(format!("--{name}"));
        &["get"]
    } else if PODS.contains(&id) {
        &["get", "pods"]
    } else if NODES.contains(&id) {
        &["get", "nodes"]
    } else {
        return match arg.get_value_hint() {
            ValueHint::AnyPath | ValueHint::FilePath => Completion::File,
            _ => Completion::Words(Vec::new()),
        };
    };
    for_kubectl.push(typed.to_owned());
    Completion::Kubectl(asked.iter().map(|word| (*word).to_owned()).chain(for_kubectl).collect())
}

/// The first line of a help.
fn about(help: Option<&clap::builder::StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    help.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    fn of(line: &str) -> Completion {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        complete(Cli::command(), &words)
    }

    /// The words without their descriptions.
    fn words(line: &str) -> Vec<String> {
        match of(line) {
            Completion::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn subcommands_options_and_values_are_completed() {
        assert_eq!(words("wh"), ["why", "what-if"]);
        assert!(words("").contains(&"pending".to_owned()));
        assert_eq!(words("config v"), ["validate"]);
        assert_eq!(words("why --names"), ["--namespace"]);
        assert_eq!(words("why web -o "), ["table", "wide", "json", "yaml", "name"]);
        assert_eq!(words("why --output=j"), ["--output=json"]);
        assert_eq!(words("pending --output j"), ["json"]);
        assert_eq!(words("pending -wo j"), ["json"]);
        assert_eq!(words("pending -woj"), ["-wojson"]);
        assert!(!words("why --").contains(&"--manifest".to_owned()));
        assert_eq!(words("nothing x"), [""; 0]);
        assert_eq!(of("why --config "), Completion::File);
        assert_eq!(of("fits -f "), Completion::File);
        let Completion::Words(described) = of("pend") else { panic!("want words") };
        assert_eq!(
            described,
            [("pending".to_owned(), "List what is pending in the cluster, by reason".to_owned())]
        );
    }

    #[test]
    fn kubectl_completes_names_of_the_cluster_that_is_chosen() {
        let kubectl = |line: &str| match of(line) {
            Completion::Kubectl(words) => words.join(" "),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(kubectl("why we"), "get pods we");
        assert_eq!(
            kubectl("why -n team --context=c --node a we"),
            "get pods --namespace=team --context=c we"
        );
        assert_eq!(kubectl("why -nteam we"), "get pods --namespace=team we");
        assert_eq!(kubectl("why -wn team we"), "get pods --namespace=team we");
        assert_eq!(kubectl("why -wn=team we"), "get pods --namespace=team we");
        assert_eq!(kubectl("what-if --drain "), "get nodes ");
        assert_eq!(kubectl("pending --kubeconfig f --context "), "get --kubeconfig=f --context ");
    }

    #[test]
    fn odd_words_do_not_panic() {
        for line in ["--", "-- ", "why --=", "why -=x", "why -wü", "why =", "why -- -", "\u{1b}[31m"] {
            let _ = of(line);
        }
    }

    #[test]
    fn an_answer_has_a_line_for_each_word_and_one_for_the_shell() {
        assert_eq!(complete(Cli::command(), &[]), Completion::Words(Vec::new()));
        let answer = String::from_utf8(answer(Cli::command(), &["res".into()])).unwrap();
        assert_eq!(answer, "resilience\tShow which pods stay down if a node or a zone fails\n:4\n");
    }
}
