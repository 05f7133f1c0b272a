//! Files of a crate import each other in small circles at most: a file can be read without most
//! others.
#![allow(clippy::unwrap_used)] // all of it is for tests

use std::collections::{BTreeMap, BTreeSet};

use xtask::root;
use xtask::source::{code, is_test, read, sources};
use xtask::workspace::Workspace;

/// The first files of crates with several files: libraries, and tests that are one program.
const CRATES: [&str; 2] = ["src/lib.rs", "tests/main.rs"];

/// The most files of a circle, such as a module with two of its own files.
const MOST_FILES: usize = 3;

/// A path within a crate, without `crate`.
type Path = Vec<String>;

/// What a file has, with one file per module.
#[derive(Clone, Default)]
struct File {
    /// The names that it defines.
    defines: BTreeSet<String>,
    /// The paths that it imports, by the name that they have here.
    imports: BTreeMap<String, Path>,
    /// Those that it uses itself.
    uses: Vec<Path>,
}

/// The paths of a tree such as `a::{b, c::d as e}`, with the name of each.
fn expand(tree: &str) -> Vec<(String, String)> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, tree.rsplit("::").next().unwrap()));
        let path = path.strip_suffix("::self").unwrap_or(path);
        let name = if name == "self" { path.rsplit("::").next().unwrap() } else { name };
        return vec![(path.to_owned(), name.trim().to_owned())];
    };
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for letter in rest.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{prefix}{part}"))).collect()
}

/// The path within the crate; `None` if it leads out of it.
fn within(module: &[String], path: &str, modules: &BTreeSet<Path>) -> Option<Path> {
    let mut names: Vec<String> = path.split("::").map(str::to_owned).collect();
    let mut base = match names[0].as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        child => {
            let child = [module, &[child.to_owned()]].concat();
            return modules.contains(&child).then(|| [module, &names].concat());
        }
    };
    while names.first().is_some_and(|name| name == "super") {
        base.pop();
        names.remove(0);
    }
    if names.first().is_some_and(|name| name == "crate" || name == "self") {
        names.remove(0);
    }
    base.extend(names);
    Some(base)
}

/// The files of a crate, by its first file.
fn files(first: &std::path::Path) -> BTreeMap<Path, File> {
    let folder = first.parent().unwrap();
    let module_of = |path: &std::path::Path| -> Path {
        if path == first {
            return Vec::new();
        }
        let path = path.strip_prefix(folder).unwrap().with_extension("");
        path.iter().map(|name| name.to_str().unwrap().to_owned()).collect()
    };
    let paths: Vec<_> = sources(folder.to_str().unwrap())
        .into_iter()
        .filter(|path| !is_test(path.strip_prefix(folder).unwrap()) && !path.ends_with("src/main.rs"))
        .collect();
    let modules: BTreeSet<Path> = paths.iter().map(|path| module_of(path)).collect();
    let file = |path: &std::path::PathBuf| {
        let (module, source) = (module_of(path), read(path));
        let (mut file, mut tree) = (File::default(), None::<String>);
        for (_, line) in code(&source) {
            if line.starts_with(char::is_whitespace) && tree.is_none() {
                continue;
            }
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let kinds = ["struct", "enum", "fn", "const", "static", "trait", "type", "union"];
            if let Some(at) = words.iter().position(|word| kinds.contains(word)) {
                file.defines.extend(words.get(at + 1).map(|name| (*name).to_owned()));
            }
            let is_use = line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ");
            if tree.is_some() || is_use {
                tree.get_or_insert_default().push_str(line);
            }
            if let Some(whole) = tree.take_if(|tree| tree.trim_end().ends_with(';')) {
                let (visibility, tree) = whole.split_once("use ").unwrap();
                for (path, name) in expand(tree.trim_end().trim_end_matches(';')) {
                    let Some(path) = within(&module, &path, &modules) else { continue };
                    if visibility.is_empty() {
                        file.uses.push(path.clone());
                    }
                    file.imports.insert(name, path);
                }
            }
        }
        (module, file)
    };
    paths.iter().map(file).collect()
}

/// The file that defines what the path names.
fn definer<'a>(files: &'a BTreeMap<Path, File>, path: &[String], depth: usize) -> Option<&'a Path> {
    let length = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length]))?;
    let (module, file) = files.get_key_value(&path[..length])?;
    match path.get(length) {
        Some(name) if !file.defines.contains(name) && depth > 0 => match file.imports.get(name) {
            Some(import) if import != path => definer(files, import, depth - 1),
            _ => Some(module),
        },
        _ => Some(module),
    }
}

/// Whether the files of a circle are in one folder: siblings, or a module and its own files.
fn is_in_one_folder(circle: &[&Path]) -> bool {
    let mut folders = circle.iter().flat_map(|module| [module.as_slice(), parent(module)]);
    circle.is_empty()
        || folders
            .any(|folder| circle.iter().all(|module| module.as_slice() == folder || parent(module) == folder))
}

fn parent(module: &Path) -> &[String] {
    &module[..module.len().saturating_sub(1)]
}

/// The circles of more files than allowed, or across folders.
fn circles(files: &BTreeMap<Path, File>) -> Vec<Vec<&Path>> {
    let next = |module: &Path| -> BTreeSet<&Path> {
        let uses = files[module].uses.iter().filter_map(|path| definer(files, path, 8));
        uses.filter(|other| *other != module).collect()
    };
    let edges: BTreeMap<&Path, BTreeSet<&Path>> = files.keys().map(|module| (module, next(module))).collect();
    let mut reached: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for from in files.keys() {
        let (of_file, mut left) = (reached.entry(from).or_default(), vec![from]);
        while let Some(module) = left.pop() {
            left.extend(edges[module].iter().filter(|other| of_file.insert(**other)));
        }
    }
    let circle = |module: &&Path| -> Vec<&Path> {
        reached[module].iter().filter(|other| reached[*other].contains(module)).copied().collect()
    };
    let all: BTreeSet<Vec<&Path>> = reached.keys().map(circle).collect();
    all.into_iter().filter(|circle| circle.len() > MOST_FILES || !is_in_one_folder(circle)).collect()
}

#[test]
fn circles_of_imports_are_small_and_within_a_folder() {
    let workspace = Workspace::load();
    let firsts =
        workspace.folders().into_iter().flat_map(|(_, folder)| CRATES.map(|first| folder.join(first)));
    for first in firsts.filter(|first| root().join(first).is_file()) {
        let files = files(&first);
        let circles = circles(&files);
        let circles: Vec<Vec<String>> = circles
            .into_iter()
            .map(|circle| circle.iter().map(|module| module.join("/")).collect())
            .collect();
        assert!(circles.is_empty(), "{}: these files import each other: {circles:#?}", first.display());
    }
}

#[test]
fn circles_are_found_through_reexports() {
    let path = |text: &str| -> Path { text.split("::").map(str::to_owned).collect() };
    let file = |defines: &str, uses: &[&str], imports: &[(&str, &str)]| File {
        defines: [defines.to_owned()].into(),
        uses: uses.iter().map(|it| path(it)).collect(),
        imports: imports.iter().map(|(name, it)| ((*name).to_owned(), path(it))).collect(),
    };
    let mut files = BTreeMap::from([
        (Vec::new(), file("Lib", &[], &[("A", "a::A")])),
        (path("a"), file("A", &["b::B"], &[])),
        (path("b"), file("B", &["c::C"], &[])),
        (path("c"), file("C", &["d::D"], &[])),
        (path("d"), file("D", &["A"], &[])),
    ]);
    assert_eq!(circles(&files).len(), 1);
    files.get_mut(&path("d")).unwrap().uses.clear();
    assert!(circles(&files).is_empty());
    for (other, circle_count) in [("c::own", 0), ("other::own", 1)] {
        let mut files = files.clone();
        files.insert(path(other), file("Own", &["c::C"], &[]));
        files.get_mut(&path("c")).unwrap().uses.push(path(&format!("{other}::Own")));
        assert_eq!(circles(&files).len(), circle_count, "{other}");
    }
    let paths: Vec<String> = expand("a::{self, b::{C, D as E}}").into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a", "a::b::C", "a::b::D"]);
}
