//! Smaller cases.

use crate::case::Case;
use supercargo_framework::objects::*;

/// Cases with one thing less, the largest steps first.
pub fn smaller(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    without(case, |case| &mut case.nodes, &mut found);
    without(case, |case| &mut case.claims, &mut found);
    without(case, |case| &mut case.slices, &mut found);
    without(case, |case| &mut case.rules, &mut found);
    without(case, |case| &mut case.allocated, &mut found);
    without(case, |case| &mut case.classes, &mut found);
    for slice in 0..case.slices.len() {
        boxed(case, |case| &mut case.slices[slice].1.devices, &mut found);
        boxed(case, |case| &mut case.slices[slice].1.shared_counters, &mut found);
        for device in 0..case.slices[slice].1.devices.len() {
            boxed(case, |case| &mut case.slices[slice].1.devices[device].attributes, &mut found);
            boxed(case, |case| &mut case.slices[slice].1.devices[device].capacity, &mut found);
            boxed(case, |case| &mut case.slices[slice].1.devices[device].taints, &mut found);
            boxed(case, |case| &mut case.slices[slice].1.devices[device].consumes_counters, &mut found);
        }
    }
    for claim in 0..case.claims.len() {
        boxed(case, |case| &mut case.claims[claim].1.requests, &mut found);
        boxed(case, |case| &mut case.claims[claim].1.constraints, &mut found);
        boxed(case, |case| &mut case.claims[claim].1.config, &mut found);
        for request in 0..case.claims[claim].1.requests.len() {
            let alternatives = match &case.claims[claim].1.requests[request].choice {
                RequestChoice::FirstAvailable(list) => list.len(),
                _ => 1,
            };
            if alternatives > 1 {
                boxed(case, |case| list(case, claim, request), &mut found);
            }
            for sub in 0..alternatives {
                let mut one = case.clone();
                simplify(alternative(&mut one, claim, request, sub));
                found.push(one);
                let mut one = case.clone();
                alternative(&mut one, claim, request, sub).selectors = Box::default();
                found.push(one);
            }
        }
    }
    for class in 0..case.classes.len() {
        boxed(case, |case| &mut case.classes[class].1.selectors, &mut found);
        boxed(case, |case| &mut case.classes[class].1.config, &mut found);
    }
    found
}

fn list(case: &mut Case, claim: usize, request: usize) -> &mut Box<[DeviceRequest]> {
    match &mut case.claims[claim].1.requests[request].choice {
        RequestChoice::FirstAvailable(list) => list,
        _ => unreachable!("only lists are shortened"),
    }
}

fn alternative(case: &mut Case, claim: usize, request: usize, sub: usize) -> &mut DeviceRequest {
    match &mut case.claims[claim].1.requests[request].choice {
        RequestChoice::FirstAvailable(list) => &mut list[sub],
        RequestChoice::Exactly(request) => request,
        RequestChoice::Unknown => unreachable!("no such request is made"),
    }
}

fn simplify(request: &mut DeviceRequest) {
    request.tolerations = Box::default();
    request.capacity = None;
    request.admin_access = None;
}

fn without<T: Clone>(case: &Case, list: impl Fn(&mut Case) -> &mut Vec<T>, found: &mut Vec<Case>) {
    let count = list(&mut case.clone()).len();
    for place in 0..count {
        let mut one = case.clone();
        list(&mut one).remove(place);
        found.push(one);
    }
}

fn boxed<T: Clone>(case: &Case, list: impl Fn(&mut Case) -> &mut Box<[T]>, found: &mut Vec<Case>) {
    let count = list(&mut case.clone()).len();
    for place in 0..count {
        let mut one = case.clone();
        let mut items = list(&mut one).to_vec();
        items.remove(place);
        *list(&mut one) = items.into();
        found.push(one);
    }
}
