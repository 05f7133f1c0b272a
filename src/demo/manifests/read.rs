//! Reads manifests from files, with their positions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::super::plan::Manifest;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// All objects of a file, or of the files in a folder ordered by name. Items of lists are separate
/// objects.
pub(super) fn read(path: &Path) -> Result<Vec<Manifest>> {
    let mut objects = Vec::new();
    for file in files(path)? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        objects.extend(parse(&file, &text)?);
    }
    Ok(objects)
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let named = || format!("--manifests {}", path.display());
    if fs::metadata(path).with_context(named)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(named)? {
        let file = entry.with_context(named)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if EXTENSIONS.contains(&extension) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{}: no .yaml, .yml or .json file (subfolders are not searched)", named());
    }
    Ok(files)
}

/// The objects of a text, which may have several documents.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Manifest>> {
    // Large enough for `kubectl get -o yaml` of a large cluster. The input is trusted.
    let budget = serde_saphyr::budget! {
        max_events: 100_000_000,
        max_nodes: 50_000_000,
        max_documents: 1_000_000,
        max_total_scalar_bytes: 1 << 30,
    };
    let options = serde_saphyr::options! { with_snippet: false, budget: budget };
    let documents: Vec<Spanned<Value>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| not_yaml(file, text, &error))?;
    let mut objects = Vec::new();
    for document in documents {
        let at = document.referenced;
        let place = format!("{}:{}:{}", file.display(), at.line(), at.column());
        flatten(document.value, place, &mut objects)?;
    }
    Ok(objects)
}

fn not_yaml(file: &Path, text: &str, error: &serde_saphyr::Error) -> anyhow::Error {
    let at = error.location();
    let place = at.map_or_else(String::new, |at| format!(":{}:{}", at.line(), at.column()));
    let line = at.and_then(|at| text.lines().nth(usize::try_from(at.line()).ok()?.checked_sub(1)?));
    let help = if line.is_some_and(|line| line.contains("{{")) {
        "if it is a template, render it first, for example with `helm template`"
    } else {
        "fix it, or remove the file from the folder"
    };
    // Removes the position, which is known, and advice for programmers.
    let reported = error.without_snippet().to_string();
    let ends = [" at line ", ", set DuplicateKeyPolicy"].iter().filter_map(|end| reported.find(end));
    let reported = reported[..ends.min().unwrap_or(reported.len())].trim_end_matches([':', ',']);
    anyhow!("{}{place}: this is not YAML: {reported}; {help}", file.display())
}

/// Adds an object, or the items of a list as printed by `kubectl get -o yaml`.
fn flatten(mut value: Value, place: String, objects: &mut Vec<Manifest>) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    if !value.is_object() {
        bail!("{place}: not a Kubernetes object; apiVersion and kind are required");
    }
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() || version.is_empty() {
        let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
        bail!("{place}: {missing} is missing");
    }
    let Some(of_kind) = kind.strip_suffix("List").filter(|_| value["items"].is_array()) else {
        objects.push(Manifest { value, source: Some(place) });
        return Ok(());
    };
    let Value::Array(items) = value["items"].take() else { return Ok(()) };
    for (index, mut item) in items.into_iter().enumerate() {
        // Items of typed lists have no apiVersion and kind.
        if let Some(fields) = item.as_object_mut().filter(|_| !of_kind.is_empty()) {
            fields.entry("kind").or_insert_with(|| of_kind.into());
            fields.entry("apiVersion").or_insert_with(|| version.clone().into());
        }
        flatten(item, format!("{place}: items[{index}]"), objects)?;
    }
    Ok(())
}
