//! A short notation for cases, one thing per line: `behaviours.txt` explains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use supercargo_devices::Features;
use supercargo_framework::TaintEffect;
use supercargo_framework::affinity::{NodeSelectorTerm, RawRequirement};
use supercargo_framework::objects::*;

use super::case::{Case, Outcome, toleration_json};

/// A case with its name and what is expected on the node `n0`.
pub struct Behaviour {
    pub name: String,
    pub case: Case,
    pub expected: String,
    /// Of upstream's search.
    pub steps: Option<u64>,
}

/// The only case of a text, without its first line.
pub fn read_one(text: &str) -> Case {
    read(&format!("\ncase x\n{text}")).remove(0).case
}

/// Reads all cases.
pub fn read(text: &str) -> Vec<Behaviour> {
    let mut found = Vec::new();
    for part in text.split("\ncase ").skip(1) {
        let (name, lines) = part.split_once('\n').unwrap();
        let labels = [("zone", "east"), ("rack", "first")].map(|(key, value)| (key.into(), value.into()));
        let node = ("n0".into(), labels.into());
        let case = Case { nodes: vec![node], ..Case::default() };
        let mut behaviour = Behaviour { name: name.into(), case, expected: String::new(), steps: None };
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            add(&mut behaviour, line);
        }
        behaviour.case.slices.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.push(behaviour);
    }
    found
}

fn add(behaviour: &mut Behaviour, line: &str) {
    let (line, selector) = match line.split_once(" where ") {
        Some((line, selector)) => (line, Some(Arc::from(selector))),
        None => (line, None),
    };
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let case = &mut behaviour.case;
    match kind {
        "gives" => behaviour.expected = rest.into(),
        "steps" => behaviour.steps = Some(rest.parse().unwrap()),
        "features" => case.features = features(&words),
        "slice" => case.slices.push(slice(&words)),
        "dev" => {
            let devices = &mut case.slices.last_mut().unwrap().1.devices;
            for name in names(words[0]) {
                push(devices, device(name, &words[1..]));
            }
        }
        "counters" => {
            let set = CounterSet { name: words[0].into(), counters: pairs(&words[1..], '=') };
            push(&mut case.slices.last_mut().unwrap().1.shared_counters, set);
        }
        "class" => {
            let config = words[1..].iter().map(|number| config(number)).collect();
            let class = DeviceClass {
                selectors: selector.map(Some).into_iter().collect(),
                config,
                ..DeviceClass::default()
            };
            case.classes.push((words[0].into(), class));
        }
        "rule" => case.rules.push((format!("rule{}", case.rules.len()), rule(&words))),
        "allocated" => case.allocated.push(allocated(&words)),
        "claim" => case.claims.push((words[0].into(), ResourceClaim::default())),
        _ => add_to_claim(&mut case.claims.last_mut().unwrap().1, kind, &words, selector),
    }
}

fn add_to_claim(claim: &mut ResourceClaim, kind: &str, words: &[&str], selector: Option<Arc<str>>) {
    match kind {
        "request" => {
            let choice = RequestChoice::Exactly(request("", &words[1..], selector));
            push(&mut claim.requests, ClaimRequest { name: words[0].into(), choice });
        }
        "first" => {
            let choice = RequestChoice::FirstAvailable(Box::default());
            push(&mut claim.requests, ClaimRequest { name: words[0].into(), choice });
        }
        "or" => match &mut claim.requests.last_mut().unwrap().choice {
            RequestChoice::FirstAvailable(list) => push(list, request(words[0], &words[1..], selector)),
            _ => panic!("an alternative stands after `first`"),
        },
        "match" | "distinct" | "unknown" => {
            let attribute = words.first().map_or(Arc::default(), |name| full(name).into());
            let rule = match kind {
                "match" => ConstraintRule::Match(attribute),
                "distinct" => ConstraintRule::Distinct(attribute),
                _ => ConstraintRule::Unknown,
            };
            let requests = words.iter().skip(1).map(|name| Arc::from(*name)).collect();
            push(&mut claim.constraints, ClaimConstraint { requests, rule });
        }
        "config" => {
            let requests = words[1..].iter().map(|name| Arc::from(*name)).collect();
            push(&mut claim.config, ClaimConfig { requests, raw: config(words[0]) });
        }
        other => panic!("{other}?"),
    }
}

fn push<T>(list: &mut Box<[T]>, item: T) {
    let mut items = std::mem::take(list).into_vec();
    items.push(item);
    *list = items.into();
}

/// `dev1-4` is four devices.
fn names(word: &str) -> Vec<String> {
    let range = word.split_once('-').and_then(|(first, last)| {
        let digits = first.find(|c: char| c.is_ascii_digit())?;
        Some((first[..digits].to_owned(), first[digits..].parse::<u32>().ok()?, last.parse::<u32>().ok()?))
    });
    match range {
        Some((name, first, last)) => (first..=last).map(|number| format!("{name}{number}")).collect(),
        None => vec![word.into()],
    }
}

/// `a` is the driver a.example.com, `a/numa` an attribute in its domain.
fn full(name: &str) -> String {
    match name.split_once('/') {
        Some((domain, id)) if domain.len() == 1 => format!("{domain}.example.com/{id}"),
        _ => name.into(),
    }
}

fn driver(name: &str) -> Arc<str> {
    format!("{name}.example.com").into()
}

fn features(words: &[&str]) -> Features {
    let mut features = Features::default();
    for word in words {
        let is_on = !word.starts_with('-');
        match word.trim_start_matches(['-', '+']) {
            "stable" => (features.binding_conditions, features.consumable_capacity) = (false, false),
            "admin" => features.admin_access = is_on,
            "binding" => features.binding_conditions = is_on,
            "consumable" => features.consumable_capacity = is_on,
            "taints" => features.device_taints = is_on,
            "fractional" => features.fractional_capacity_range = is_on,
            "partitionable" => features.partitionable_devices = is_on,
            "prioritized" => features.prioritized_list = is_on,
            other => panic!("{other}?"),
        }
    }
    features
}

fn place(word: &str) -> DevicePlace {
    match word.split_once('=') {
        None if word == "all" => DevicePlace::AllNodes,
        None if word == "each" => DevicePlace::PerDevice,
        None if word == "nowhere" => DevicePlace::Unset,
        None => DevicePlace::Node(word.into()),
        Some((key, value)) => {
            let requirement =
                RawRequirement { key: key.into(), operator: "In".into(), values: vec![value.into()] };
            let (kind, term) = match key {
                "metadata.name" => ("matchFields", NodeSelectorTerm::parse(Vec::new(), vec![requirement])),
                _ => ("matchExpressions", NodeSelectorTerm::parse(vec![requirement], Vec::new())),
            };
            let raw = json!({ "nodeSelectorTerms": [{
                kind: [{ "key": key, "operator": "In", "values": [value] }],
            }] });
            let terms = [term].into();
            DevicePlace::Selector(DeviceNodeSelector { terms, raw: Arc::new(raw) })
        }
    }
}

fn slice(words: &[&str]) -> (String, ResourceSlice) {
    let (of, pool) = words[1].split_once('/').unwrap();
    let mut slice = ResourceSlice {
        driver: driver(of),
        pool: pool.into(),
        generation: 1,
        slice_count: 1,
        place: place(words[2]),
        ..ResourceSlice::default()
    };
    for word in &words[3..] {
        match word.split_once('=').unwrap() {
            ("of", count) => slice.slice_count = count.parse().unwrap(),
            ("gen", generation) => slice.generation = generation.parse().unwrap(),
            other => panic!("{other:?}?"),
        }
    }
    (words[0].into(), slice)
}

fn pairs(words: &[&str], by: char) -> Quantities {
    words
        .iter()
        .map(|word| word.split_once(by).unwrap())
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn device(name: String, words: &[&str]) -> Device {
    let mut device = Device { name: name.into(), ..Device::default() };
    let list = |text: &str| -> Box<[Arc<str>]> {
        text.split(',').filter(|it| !it.is_empty()).map(Arc::from).collect()
    };
    for word in words {
        match word.split_once(':') {
            None if *word == "binds" => device.binds_to_node = true,
            None if *word == "shared" => device.allows_multiple_allocations = true,
            None => {
                let (name, value) = word.split_once('=').unwrap();
                push(&mut device.attributes, (full(name).into(), attribute(value)));
                device.attributes.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            Some(("uses", used)) => {
                let (set, counters) = used.split_once('.').unwrap();
                let counters = pairs(&counters.split(',').collect::<Vec<_>>(), '=');
                let counter_set = set.trim_end_matches('+').into();
                let has_compatibility_groups = set.ends_with('+');
                let used = CounterConsumption { counter_set, counters, has_compatibility_groups };
                push(&mut device.consumes_counters, used);
            }
            Some(("taint", text)) => push(&mut device.taints, taint(text)),
            Some(("waits", conditions)) => device.binding_conditions = Some(list(conditions)),
            Some(("fails", conditions)) => device.binding_failure_conditions = list(conditions),
            Some(("at", text)) => device.place = place(text),
            Some(("default", value)) => policy(&mut device).default = Some(value.into()),
            Some(("values", values)) => policy(&mut device).valid_values = list(values),
            Some(("range", values)) => {
                let mut values = values.split(',').map(|value| (!value.is_empty()).then(|| Arc::from(value)));
                let mut next = || values.next().flatten();
                policy(&mut device).valid_range =
                    Some(CapacityRange { min: next(), max: next(), step: next() });
            }
            Some((name, value)) => {
                push(
                    &mut device.capacity,
                    (name.into(), DeviceCapacity { value: value.into(), policy: None }),
                );
            }
        }
    }
    device
}

fn policy(device: &mut Device) -> &mut CapacityPolicy {
    device.capacity.last_mut().unwrap().1.policy.get_or_insert_default()
}

fn attribute(value: &str) -> DeviceAttribute {
    match value {
        "?" => DeviceAttribute::Unsupported,
        "true" | "false" => DeviceAttribute::Bool(value == "true"),
        _ if value.starts_with('v') => DeviceAttribute::Version(value[1..].into()),
        _ => value.parse().map_or_else(|_| DeviceAttribute::String(value.into()), DeviceAttribute::Int),
    }
}

fn taint(text: &str) -> DeviceTaint {
    let (taint, effect) = text.split_once(':').unwrap();
    let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
    DeviceTaint { key: key.into(), value: value.into(), effect: TaintEffect::from_api(effect) }
}

fn rule(words: &[&str]) -> DeviceTaintRule {
    let mut selector = TaintRuleSelector::default();
    let mut is_selecting = true;
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("driver", name)) => selector.driver = Some(driver(name)),
            Some(("pool", name)) => selector.pool = Some(name.into()),
            Some(("device", name)) => selector.device = Some(name.into()),
            _ => is_selecting = false,
        }
    }
    DeviceTaintRule { selector: is_selecting.then_some(selector), taint: taint(words[0]) }
}

fn allocated(words: &[&str]) -> AllocationResult {
    let id: Vec<&str> = words[0].split('/').collect();
    let mut result = AllocationResult {
        device: DeviceId { driver: driver(id[0]), pool: id[1].into(), device: id[2].into() },
        ..AllocationResult::default()
    };
    for word in &words[1..] {
        match *word {
            "admin" => result.admin_access = true,
            "shared" => result.share_id = Some("share".into()),
            capacity => result.consumed = pairs(&[capacity], ':'),
        }
    }
    result
}

fn config(number: &str) -> Arc<serde_json::Value> {
    let number: u32 = number.parse().unwrap();
    Arc::new(json!({ "opaque": { "driver": "a.example.com", "parameters": { "number": number } } }))
}

fn request(name: &str, words: &[&str], selector: Option<Arc<str>>) -> DeviceRequest {
    let class = if words[0] == "-" { "" } else { words[0] };
    let mut request = DeviceRequest { name: name.into(), class: class.into(), ..DeviceRequest::default() };
    request.selectors = selector.map(Some).into_iter().collect();
    for word in &words[1..] {
        match word.split_once(':') {
            None => match *word {
                "all" => request.count = DeviceCount::All,
                "some" => request.count = DeviceCount::Unknown("Some".into()),
                "admin" => request.admin_access = Some(true),
                "no-admin" => request.admin_access = Some(false),
                "derived" => request.has_derived_attributes = true,
                "strange" => push(&mut request.selectors, None),
                number => request.count = DeviceCount::Exact(number.parse().unwrap()),
            },
            Some(("wants", list)) => {
                let list: Vec<&str> = list.split(',').filter(|it| !it.is_empty()).collect();
                request.capacity = Some(pairs(&list, '='));
            }
            Some(("tolerates", text)) => {
                let (text, effect) = text
                    .split_once(':')
                    .map_or((text, None), |(text, effect)| (text, Some(TaintEffect::from_api(effect))));
                let (operator, key, value) = match text.split_once('=') {
                    Some((key, value)) => (DeviceTolerationOperator::Equal, key, value),
                    None => (DeviceTolerationOperator::Exists, text, ""),
                };
                let (key, value) = (key.into(), value.into());
                let mut toleration = DeviceToleration { key, operator, value, effect, raw: Arc::default() };
                toleration.raw = Arc::new(toleration_json(&toleration));
                push(&mut request.tolerations, toleration);
            }
            Some(other) => panic!("{other:?}?"),
        }
    }
    request
}

/// An outcome in this notation.
pub fn write(outcome: &Outcome) -> String {
    if !outcome.error.is_empty() {
        let kind = if outcome.node_only { "here" } else { "error" };
        return format!("{kind}: {}", outcome.error.replace('\n', "\\n"));
    }
    if outcome.results.is_empty() {
        return "nothing".into();
    }
    let short = |text: &serde_json::Value| text.as_str().unwrap().replace(".example.com", "");
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let claims = outcome.results.iter().map(|claim| {
        let mut words: Vec<String> = Vec::new();
        for result in list(&claim["devices"]["results"]) {
            let [driver, pool, device, request] =
                ["driver", "pool", "device", "request"].map(|name| short(&result[name]));
            let mut word = format!("{request}={driver}/{pool}/{device}");
            if result["adminAccess"] == true {
                word += "!admin";
            }
            if !result["shareID"].is_null() {
                let consumed: BTreeMap<String, String> =
                    serde_json::from_value(result["consumedCapacity"].clone()).unwrap_or_default();
                let consumed: Vec<String> =
                    consumed.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                word += &format!("{{{}}}", consumed.join(","));
            }
            for condition in list(&result["bindingConditions"]) {
                word += &format!("+{}", short(&condition));
            }
            for condition in list(&result["bindingFailureConditions"]) {
                word += &format!("-{}", short(&condition));
            }
            words.push(word);
        }
        for term in list(&claim["nodeSelector"]["nodeSelectorTerms"]) {
            for requirement in list(&term["matchFields"]).iter().chain(&list(&term["matchExpressions"])) {
                words.push(format!("@{}={}", short(&requirement["key"]), short(&requirement["values"][0])));
            }
        }
        for config in list(&claim["devices"]["config"]) {
            let requests: Vec<String> = list(&config["requests"]).iter().map(short).collect();
            let number = &config["opaque"]["parameters"]["number"];
            words.push(format!("{}:{number}({})", short(&config["source"]), requests.join(",")));
        }
        words.join(" ")
    });
    claims.collect::<Vec<_>>().join(" | ")
}
