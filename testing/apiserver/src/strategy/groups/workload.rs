//! Workloads: the templates that controllers make groups from.

use std::collections::HashSet;

use serde_json::Value;

use super::super::names;
use super::super::path::Path;
use super::super::traits::Strategy;
use super::rules::{self, ValueUpdate};
use crate::json::{int, list, text};
use crate::status::StatusCause;

/// A tree of templates: composite groups with composite and plain groups in them.
pub(crate) struct Workload;

const SPEC: Path<'static> = Path::root("spec");
const PLAIN: &str = "podGroupTemplates";
const COMPOSITE: &str = "compositePodGroupTemplates";
const MOST_TEMPLATES: usize = 8;
const DEPTH: usize = 4;

impl Strategy for Workload {
    fn default(&self, workload: &mut Value) {
        crate::json::object_mut(workload, "spec");
    }

    fn validate(&self, workload: &Value) -> Vec<StatusCause> {
        check(ValueUpdate { new: &workload["spec"], old: None })
    }

    fn validate_update(&self, workload: &Value, old: &Value) -> Vec<StatusCause> {
        check(ValueUpdate { new: &workload["spec"], old: Some(&old["spec"]) })
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

fn check(spec: ValueUpdate<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut names = list(spec.new, PLAIN).iter().map(|template| text(template, "name")).collect();
    distinct_composites(spec.new, &SPEC, &mut names, &mut causes);
    let path = SPEC.child(COMPOSITE);
    for (i, template) in list(spec.new, COMPOSITE).iter().enumerate() {
        if depth(template) >= DEPTH {
            let children = template.get(COMPOSITE).cloned().unwrap_or_default();
            let why = format!("maximum template hierarchy depth is {DEPTH}");
            causes.push(path.index(i).invalid(children, &why));
        }
    }
    same_priority(spec.new, &mut causes);
    has_children(spec.new, &SPEC, &mut causes);

    if !spec.is_none() {
        rules::union(spec, [PLAIN, COMPOSITE], &SPEC, &mut causes);
        let (controller, path) = (spec.field("controllerRef"), SPEC.child("controllerRef"));
        if controller.immutable(&path, &mut causes) && !controller.new.is_null() {
            check_controller(controller, &path, &mut causes);
        }
        check_templates(spec, &SPEC, &mut causes);
    }
    causes
}

/// Names must be unique in the whole tree. Duplicates within one list are found by `check_list`.
fn distinct_composites<'a>(
    owner: &'a Value,
    path: &Path<'_>,
    names: &mut HashSet<&'a str>,
    causes: &mut Vec<StatusCause>,
) {
    let templates = list(owner, COMPOSITE);
    distinct(templates, &path.child(COMPOSITE), names, causes);
    for (i, template) in templates.iter().enumerate() {
        let path = path.child(COMPOSITE);
        let path = path.index(i);
        distinct(list(template, PLAIN), &path.child(PLAIN), names, causes);
        distinct_composites(template, &path, names, causes);
    }
}

/// The names of a list must differ from those of the lists before it.
fn distinct<'a>(
    templates: &'a [Value],
    path: &Path<'_>,
    names: &mut HashSet<&'a str>,
    causes: &mut Vec<StatusCause>,
) {
    for (i, template) in templates.iter().enumerate() {
        let name = text(template, "name");
        if names.contains(name) {
            causes.push(path.index(i).child("name").duplicate(name));
        }
    }
    names.extend(templates.iter().map(|template| text(template, "name")));
}

/// The number of levels of composite templates.
fn depth(template: &Value) -> usize {
    1 + list(template, COMPOSITE).iter().map(depth).max().unwrap_or_default()
}

/// All templates must have one priority.
fn same_priority(spec: &Value, causes: &mut Vec<StatusCause>) {
    let of = |template: &Value| (text(template, "priorityClassName").to_owned(), int(template, "priority"));
    let plain: Vec<_> = list(spec, PLAIN).iter().map(of).collect();
    if plain.iter().any(|priority| *priority != plain[0]) {
        causes.push(SPEC.invalid(Value::Null, "detected multiple priority configurations"));
        return;
    }
    let mut all = Vec::new();
    for template in list(spec, COMPOSITE) {
        add_tree(template, &mut all);
    }
    let mut all = all.into_iter().map(of).chain(plain);
    let first = all.next();
    if all.any(|priority| Some(priority) != first) {
        let why = "all priority and priorityClassName values must be identical, detected multiple values";
        causes.push(SPEC.invalid(Value::Null, why));
    }
}

fn add_tree<'a>(template: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(template);
    for child in list(template, COMPOSITE) {
        add_tree(child, all);
    }
    all.extend(list(template, PLAIN));
}

fn has_children(owner: &Value, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    let path = path.child(COMPOSITE);
    for (i, template) in list(owner, COMPOSITE).iter().enumerate() {
        let path = path.index(i);
        if [PLAIN, COMPOSITE].into_iter().all(|field| list(template, field).is_empty()) {
            let why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate";
            causes.push(path.invalid(text(template, "name"), why));
        }
        has_children(template, &path, causes);
    }
}

fn check_controller(controller: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    rules::object_name(controller.field("apiGroup"), &path.child("apiGroup"), causes);
    for field in ["kind", "name"] {
        rules::required_name(controller.field(field), names::path_segment, &path.child(field), causes);
    }
}

/// Checks both lists of templates.
fn check_templates(owner: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    check_list(owner.field(PLAIN), check_plain, &path.child(PLAIN), causes);
    check_list(owner.field(COMPOSITE), check_composite, &path.child(COMPOSITE), causes);
}

/// Updates neither add nor remove templates.
fn check_list(
    change: ValueUpdate<'_>,
    check: fn(ValueUpdate<'_>, &Path<'_>, &mut Vec<StatusCause>),
    path: &Path<'_>,
    causes: &mut Vec<StatusCause>,
) {
    if change.is_none() {
        return;
    }
    let (new, old) = (change.items(), change.old.map(rules::items));
    let before = causes.len();
    rules::few_enough(new, MOST_TEMPLATES, path, causes);
    if let Some(old) = old {
        let has = |items, item: &Value| rules::named(items, text(item, "name")).is_some();
        let added = new.iter().enumerate().filter(|(_, item)| !has(old, item));
        causes.extend(added.map(|(i, _)| path.index(i).forbidden("item may not be added")));
        let removed = old.iter().filter(|item| !has(new, item));
        causes.extend(removed.map(|_| path.forbidden("item may not be removed")));
    }
    if causes.len() > before {
        return;
    }
    rules::unique(new, path, causes);
    for (i, template) in new.iter().enumerate() {
        let old = old.and_then(|old| rules::named(old, text(template, "name")));
        let change = ValueUpdate { new: template, old };
        if !change.is_none() {
            check(change, &path.index(i), causes);
        }
    }
}

fn check_plain(template: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    rules::required_name(template.field("name"), names::dns1123_label, &path.child("name"), causes);
    rules::policy(template.field("schedulingPolicy"), "minCount", &path.child("schedulingPolicy"), causes);
    let (constraints, at) = (template.field("schedulingConstraints"), path.child("schedulingConstraints"));
    rules::constraints(constraints, &at, causes);
    rules::claims(template.field("resourceClaims"), &path.child("resourceClaims"), causes);
    rules::disruption(template, path, causes);
}

fn check_composite(template: ValueUpdate<'_>, path: &Path<'_>, causes: &mut Vec<StatusCause>) {
    rules::required_name(template.field("name"), names::dns1123_label, &path.child("name"), causes);
    let (policy, at) = (template.field("schedulingPolicy"), path.child("schedulingPolicy"));
    rules::policy(policy, "minGroupCount", &at, causes);
    let (constraints, at) = (template.field("schedulingConstraints"), path.child("schedulingConstraints"));
    rules::constraints(constraints, &at, causes);
    rules::disruption(template, path, causes);
    check_templates(template, path, causes);
}
