//! Links, files and program flags in the documentation exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use supercargo::cli::Cli;

use crate::rbac::manifests;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file of the repository, relative to its root.
fn guides() -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                let name = entry.file_name();
                // Ignores build output and editor files.
                let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
                folders.extend(is_ours.then_some(path));
            } else if path.extension().is_some_and(|end| end == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a text outside and inside code blocks, in order.
fn parts(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut code, mut fenced) = (Vec::new(), Vec::new(), false);
    let mut after_blank = true;
    let mut indented = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        indented = line.starts_with("    ") && (indented || after_blank) && !line.trim().is_empty();
        match (is_fence, fenced || indented) {
            (true, _) => fenced = !fenced,
            (false, true) => code.push(line),
            (false, false) => prose.push(line),
        }
        after_blank = line.trim().is_empty();
    }
    (prose, code)
}

/// The link targets of prose, without external links and links into the code, which rustdoc checks.
fn links(prose: &[&str]) -> Vec<String> {
    let text = prose.join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("::") && !target.contains("://")).map(str::to_owned).collect()
}

/// The anchor of a heading: lower case, blanks as dashes, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn anchors(path: &Path) -> BTreeSet<String> {
    let text = read(path);
    let (prose, _) = parts(&text);
    let headings = prose.iter().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    headings.map(anchor).collect()
}

#[test]
fn links_in_docs_resolve() {
    let mut broken = Vec::new();
    let guides = guides();
    assert!(guides.len() > 20, "{guides:?}");
    for guide in guides {
        let text = read(&guide);
        for link in links(&parts(&text).0) {
            let (file, place) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => guide.clone(),
                file => guide.parent().unwrap_or(Path::new("")).join(file),
            };
            let is_there = root().join(&target).exists();
            if !is_there || (!place.is_empty() && !anchors(&target).contains(place)) {
                broken.push(format!("{}: {link}", guide.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The words of code that name a file relative to the root.
fn files<'a>(code: &[&'a str]) -> BTreeSet<&'a str> {
    let folders = [".ci/", "charts/", "docs/", "examples/", "manifests/", "tests/"];
    let words = code
        .iter()
        .flat_map(|line| line.split(|letter: char| letter.is_whitespace() || "`(),;'\"=".contains(letter)));
    words
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)))
        // A word in upper case is a placeholder.
        .filter(|word| {
            !word
                .split('/')
                .any(|part| part.chars().any(|letter| letter.is_ascii_uppercase()) && !part.contains('.'))
        })
        .collect()
}

#[test]
fn files_in_documented_commands_exist() {
    let mut missing = Vec::new();
    for guide in guides().into_iter().filter(|guide| {
        guide.parent().is_some_and(|folder| {
            folder.as_os_str().is_empty() || folder.starts_with("docs") || folder.starts_with("manifests")
        })
    }) {
        let text = read(&guide);
        for file in files(&parts(&text).1) {
            if !root().join(file).exists() {
                missing.push(format!("{}: {file}", guide.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The subcommand and long flags of a supercargo command line.
fn flags(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = line.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('-'));
    let program = words.next()?;
    (program == "supercargo" || program.ends_with("/supercargo")).then_some(())?;
    // A dependency in a manifest, not a command.
    let mut words = words.peekable();
    (words.peek() != Some(&"=")).then_some(())?;
    let words: Vec<&str> = words.take_while(|word| !["|", ">", "&&", "#"].contains(word)).collect();
    let subcommand = words.iter().find(|word| !word.starts_with('-'))?;
    let flags = words.iter().filter_map(|word| word.strip_prefix("--"));
    Some((subcommand, flags.map(|flag| flag.split('=').next().unwrap_or(flag)).collect()))
}

#[test]
fn documented_commands_use_existing_flags() {
    let program = Cli::command();
    let mut unknown = Vec::new();
    for guide in guides() {
        let text = read(&guide);
        for line in parts(&text).1 {
            let Some((name, flags)) = flags(line) else { continue };
            let Some(command) = program.find_subcommand(name) else {
                unknown.push(format!("{}: {name}", guide.display()));
                continue;
            };
            let known: BTreeSet<&str> = program
                .get_arguments()
                .chain(command.get_arguments())
                .filter_map(clap::Arg::get_long)
                .collect();
            let wrong = flags.into_iter().filter(|flag| !known.contains(flag) && *flag != "help");
            unknown.extend(wrong.map(|flag| format!("{}: {name} --{flag}", guide.display())));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The code words in the first column of the table below a heading.
fn first_column<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, part) = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rows =
        part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn troubleshooting_guide_lists_plugin_reasons() {
    let code: String = xtask::source::sources("plugins").iter().map(|path| read(path)).collect();
    let guide = read(Path::new("docs/troubleshooting.md"));
    let reasons = first_column(&guide, "### FailedScheduling messages");
    assert!(reasons.len() > 20, "{reasons:?}");
    for reason in reasons {
        // Variable parts are parameters in the code.
        let reported = format!("\"{}", reason.split('…').next().unwrap_or_default());
        assert!(code.contains(&reported), "no plugin says {reason}");
    }
}

/// Quotes of the troubleshooting guide that supercargo's code does not have.
const NOT_IN_CODE: &[(&str, &str)] = &[
    ("0/N nodes are available: …", "N is a number"),
    ("config.yaml:8:5: …", "the place of an error"),
    ("cannot list resource …", "the API server's"),
    ("Connection refused", "the operating system's"),
    ("--log-level=debug", "documented_commands_use_existing_flags reads flags"),
    ("scheduler_pending_pods{queue=\"backoff\"}", "a series"),
    ("OutOfcpu", "the kubelet's"),
    ("OutOfmemory", "the kubelet's"),
    ("OutOfpods", "the kubelet's"),
];

#[test]
fn troubleshooting_guide_quotes_texts_of_the_code() {
    let sources = ["src", "crates", "plugins"].map(xtask::source::sources).concat();
    let code: String =
        sources.iter().filter(|path| !xtask::source::is_test(path)).map(|path| read(path)).collect();
    let guide = read(Path::new("docs/troubleshooting.md"));
    let headings = guide.lines().filter(|line| line.starts_with("## "));
    let quotes: BTreeSet<&str> = headings.flat_map(|heading| first_column(&guide, heading)).collect();
    for (quote, reason) in NOT_IN_CODE {
        assert!(quotes.contains(quote), "{quote} ({reason}) is not in the guide");
    }
    let ours = quotes.iter().filter(|quote| NOT_IN_CODE.iter().all(|(other, _)| other != *quote));
    let stale: Vec<_> =
        ours.filter(|quote| !quote.split('…').all(|part| code.contains(part.trim()))).collect();
    assert!(stale.is_empty(), "no code says {stale:?}");
}

#[test]
fn uninstall_guide_covers_every_object_outside_the_base() {
    let guide = read(Path::new("docs/install.md"));
    let (_, section) = guide.split_once("\n## Uninstall\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let name = |object: &serde_json::Value| {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (text(&object["kind"]), text(&object["metadata"]["name"]))
    };
    let base: Vec<_> = manifests::base().iter().map(name).collect();
    let folders = ["base", "groups", "ha", "insight", "monitoring", "overlays", "examples"]
        .map(|folder| manifests::root().join(folder));
    let files =
        manifests::yaml_files().into_iter().filter(|path| folders.iter().any(|f| path.starts_with(f)));
    let objects: Vec<_> = files.flat_map(|path| manifests::documents(&path)).collect();
    assert!(objects.len() > base.len() + 5);
    for object in objects.iter().filter(|object| object["metadata"]["name"].is_string()) {
        // Deleted with the namespace.
        let is_inside = object["metadata"]["namespace"] == "supercargo-system";
        let (kind, name) = name(object);
        let has = |example: &str| section.contains(&format!("examples/{example}.yaml"));
        let is_deleted = match &*name {
            "supercargo-example" => has("pod"),
            "supercargo-too-large" => has("too-large"),
            "supercargo-gpu" | "gpu.example.com" => has("gpu"),
            _ => deletes(section, &kind, &name),
        };
        assert!(is_inside || base.contains(&(kind.clone(), name.clone())) || is_deleted, "{kind} {name}");
    }
    assert!(deletes(section, "Lease", "supercargo"));
    // The name alone is not enough.
    assert!(!deletes(section, "ClusterRole", "supercargo"));
}

/// Whether a command deletes the object of this kind and name.
fn deletes(section: &str, kind: &str, name: &str) -> bool {
    let mut commands = section.lines().filter_map(|line| line.split_once(" delete ")).map(|(_, of)| of);
    commands.any(|of| {
        let words: BTreeSet<&str> = of.split([' ', ',']).collect();
        words.contains(&*kind.to_lowercase()) && words.contains(name)
    })
}

#[test]
fn a_scheduler_stops_once_the_other_is_ready_on_this_node() {
    const RESTART: &str = "mv /etc/kubernetes/kube-scheduler.yaml.off ";
    // A label would also select the pods of other nodes.
    const RESTARTED: &str = " pod/kube-scheduler-NODE ";
    let guide = read(Path::new("docs/migrating.md"));
    for (way, start, ready, stop) in [
        (
            "a static pod",
            "mv /etc/kubernetes/supercargo.yaml ",
            " pod/supercargo-NODE ",
            "mv /etc/kubernetes/manifests/kube-scheduler.yaml ",
        ),
        ("a static pod", RESTART, RESTARTED, "rm /etc/kubernetes/manifests/supercargo.yaml"),
        ("a Deployment", RESTART, RESTARTED, "kubectl delete -k manifests/overlays/only-scheduler"),
    ] {
        let (_, section) = guide.split_once(&format!("\n## Replace kube-scheduler with {way}\n")).unwrap();
        let code = parts(section.split("\n## ").next().unwrap_or_default()).1;
        let line = |part| {
            let found = code.iter().position(|line| line.contains(part));
            found.unwrap_or_else(|| panic!("{way}: no {part}"))
        };
        let wait = line(ready);
        assert!(line(start) < wait, "{way}: {start}");
        assert!(code[wait].contains("kubectl ") && code[wait].ends_with(" &&"), "{way}: {}", code[wait]);
        assert_eq!(line(stop), wait + 1, "{way}: {stop}");
    }
}

#[test]
fn markdown_reader_finds_links_code_and_headings() {
    let text = "# A: *b* and `c-d`\n\nSee [x](y.md#z)\nand [u](https://v/)\n\n    supercargo run --config=FILE --no-such | cat\n    kubectl apply -f manifests/base/NAME manifests/ha\n\n* a\n    [l](m)\n\n```sh\n[n](o) tests/kind/run.sh\n```\n[p](q)";
    let (prose, code) = parts(text);
    assert_eq!(links(&prose), ["y.md#z", "m", "q"]);
    assert_eq!(files(&code), BTreeSet::from(["manifests/ha", "tests/kind/run.sh"]));
    assert_eq!(flags(code[0]), Some(("run", vec!["config", "no-such"])));
    assert_eq!(flags(code[1]), None);
    assert_eq!(anchor(" A: *b* and `c-d`"), "a-b-and-c-d");
    let table = "\n# H\n\n| a | b |\n|---|---|\n| `x`, `y …` | `z` |\n\n| `no` | |\n";
    assert_eq!(first_column(table, "# H"), ["x", "y …"]);
}
