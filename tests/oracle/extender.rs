//! The extenders of histories. Their answers depend on names only. Upstream's side asks over HTTP,
//! ours asks directly.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_scheduler::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec, ExtenderVictims};

use crate::support::Extender;

/// The URL of extenders in configurations. Upstream's side replaces the host by the address.
pub(super) const URL: &str = "http://extender.test";

static EXTENDER: LazyLock<Extender> = LazyLock::new(|| Extender::start(respond));

/// The address of the extenders, for another history.
pub(super) fn address() -> String {
    EXTENDER.forget();
    EXTENDER.address()
}

/// The verb of an extender: the question and the extender's number.
pub(super) fn verb(question: &str, extender: usize) -> String {
    format!("{question}-{extender}")
}

/// The answer about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fits,
    Failed,
    Unresolvable,
}

/// Whether the extender fails at a question about a pod: one in `of` does.
fn fails(verb: &str, pod: &str, of: u64) -> bool {
    mixed(&[verb, pod]).is_multiple_of(of)
}

fn verdict(verb: &str, pod: &str, node: &str) -> Verdict {
    // Preemption is tried on nodes that failed. If it cannot help there, that is an error, and
    // upstream lists several in random order. So only one node fails for a pod.
    let may_fail = node == format!("n{}", 1 + mixed(&[pod]) % 6);
    match mixed(&[verb, pod, node]) % 8 {
        0..=5 if may_fail => Verdict::Failed,
        0..=2 => Verdict::Unresolvable,
        _ => Verdict::Fits,
    }
}

fn reason(verdict: Verdict) -> &'static str {
    if verdict == Verdict::Failed { "the extender is full" } else { "the extender is closed" }
}

fn score(verb: &str, pod: &str, node: &str) -> i64 {
    i64::try_from(mixed(&[verb, pod, node]) % 11).unwrap_or(0)
}

fn agrees(verb: &str, pod: &str, node: &str) -> bool {
    !mixed(&[verb, pod, node]).is_multiple_of(3)
}

/// FNV-1a of words.
fn mixed(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 16
}

/// The answer to an HTTP request of upstream's side.
fn respond(verb: &str, body: &Value) -> (u16, Value) {
    let pod = text(&body["Pod"]["metadata"]["name"]);
    let nodes = || body["NodeNames"].as_array().into_iter().flatten().map(text);
    let answer = match verb.split('-').next() {
        Some("filter") if fails(verb, pod, 25) => json!({ "Error": "no pods today" }),
        Some("filter") => {
            let failed = |wanted| {
                let nodes = nodes().filter(|node| verdict(verb, pod, node) == wanted);
                nodes.map(|node| (node.to_owned(), reason(wanted).into())).collect::<serde_json::Map<_, _>>()
            };
            let fit: Vec<_> = nodes().filter(|node| verdict(verb, pod, node) == Verdict::Fits).collect();
            json!({
                "NodeNames": fit,
                "FailedNodes": failed(Verdict::Failed),
                "FailedAndUnresolvableNodes": failed(Verdict::Unresolvable),
            })
        }
        Some("prioritize") if !fails(verb, pod, 9) => {
            nodes().map(|node| json!({ "Host": node, "Score": score(verb, pod, node) })).collect()
        }
        Some("preempt") if !fails(verb, pod, 9) => {
            let all = body["NodeNameToMetaVictims"].as_object().into_iter().flatten();
            let agreed = all.filter(|(node, _)| agrees(verb, pod, node));
            let agreed = agreed.map(|(node, victims)| (node.clone(), victims.clone()));
            json!({ "NodeNameToMetaVictims": agreed.collect::<serde_json::Map<_, _>>() })
        }
        _ => return (500, json!({})),
    };
    (200, answer)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The calls of our side.
pub(super) struct Answers;

impl Calls for Answers {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let broken = |verb: &str| Err(format!("failed {verb} with extender at URL {URL}/{verb}, code 500"));
        match question {
            ExtenderQuestion::Filter { pod, nodes } => {
                let verb = verb("filter", extender.id);
                if fails(&verb, &pod.name, 25) {
                    return Err("no pods today".to_owned());
                }
                let with = |wanted| {
                    let names = nodes.iter().map(|node| Arc::clone(&node.name));
                    names.filter(|node| verdict(&verb, &pod.name, node) == wanted).collect::<Vec<_>>()
                };
                let failed =
                    |wanted| with(wanted).into_iter().map(|node| (node, reason(wanted).to_owned())).collect();
                Ok(ExtenderAnswer::Filtered {
                    nodes: with(Verdict::Fits),
                    failed: failed(Verdict::Failed),
                    failed_and_unresolvable: failed(Verdict::Unresolvable),
                })
            }
            ExtenderQuestion::Prioritize { pod, nodes } => {
                let verb = verb("prioritize", extender.id);
                if fails(&verb, &pod.name, 9) {
                    return broken(&verb);
                }
                let scored =
                    nodes.iter().map(|node| (Arc::clone(&node.name), score(&verb, &pod.name, &node.name)));
                Ok(ExtenderAnswer::Prioritized(scored.collect()))
            }
            ExtenderQuestion::Preempt { pod, candidates } => {
                let verb = verb("preempt", extender.id);
                if fails(&verb, &pod.name, 9) {
                    return broken(&verb);
                }
                let agreed = candidates.iter().filter(|candidate| agrees(&verb, &pod.name, &candidate.node));
                let agreed = agreed.map(|candidate| ExtenderVictims {
                    node: Arc::clone(&candidate.node),
                    victims: candidate.victims.iter().map(|pod| pod.uid.clone()).collect::<Vec<Uid>>(),
                    pdb_violations: i64::try_from(candidate.pdb_violations).unwrap_or(0),
                });
                Ok(ExtenderAnswer::Preempted(agreed.collect()))
            }
        }
    }
}
