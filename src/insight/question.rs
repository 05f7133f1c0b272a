//! Questions about a cluster's state.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;
use supercargo_config::Config;
use supercargo_framework::pod::PodKey;
use supercargo_framework::{PodInfo, Timestamp};
use supercargo_scheduler::Fork;

use supercargo_report::words::printable;
use supercargo_report::{UID_OF_MANIFEST, Width};

use super::manifest::Subject;
use super::progress::Deadline;
use crate::informers::kinds;
use supercargo_owner::options::scheduler_options;

/// How long an answer may take.
pub(super) const SHORT: Duration = Duration::from_secs(30);
/// The same for one that tries many changes.
pub(super) const LONG: Duration = Duration::from_hours(1);

/// A question about a cluster's state: the arguments of a command, and the query of an endpoint.
pub(crate) trait Question: Args + Serialize + Send + Sync + 'static {
    /// The name of the command, and the end of the endpoint's path.
    const NAME: &'static str;
    /// How long an answer may take.
    const TIMEOUT: Duration = SHORT;
    /// Whether only a running supercargo can answer.
    const NEEDS_RUNNING: bool = false;
    /// Whether the answer is a file, which is written as it is.
    const IS_FILE: bool = false;

    /// Reads the files that the arguments of a command name.
    fn read_files(&mut self) -> Result<()> {
        Ok(())
    }

    /// The answer.
    fn answer(&self, state: State, view: &View) -> Result<Answer>;
}

/// The exit code if no answer is possible.
pub(crate) const NO_ANSWER: u8 = 3;

/// An answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(super) text: String,
    /// Whether it is a good one.
    pub(super) is_good: bool,
    /// Whether there is nothing more to wait for.
    pub(super) is_settled: bool,
}

impl Answer {
    /// The answer with the time of the state.
    pub(super) fn dated(self, time: Timestamp, format: Format) -> Self {
        let time = time.to_rfc3339();
        let text = match format {
            Format::Table | Format::Wide => format!("As of {time}\n\n{}", self.text),
            // An answer for programs is an object with a field in each line.
            Format::Json | Format::Yaml => {
                self.text.replacen('{', &format!("{{\n  \"asOf\": \"{time}\","), 1)
            }
            Format::Name => self.text,
        };
        Self { text, ..self }
    }

    /// The answer as people and programs get it: questions answer with JSON instead of YAML.
    pub(super) fn formatted(self, format: Format) -> Result<Self> {
        let text = if format == Format::Yaml { yaml(&self.text)? } else { self.text };
        Ok(Self { text, ..self })
    }
}

/// The same answer in YAML.
pub(crate) fn yaml(json: &str) -> Result<String> {
    Ok(supercargo_config::to_yaml(&serde_json::from_str(json).context("the answer is not JSON")?))
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct NoAnswer {
    pub(super) error: anyhow::Error,
    /// Whether it stays so, however often the question is asked.
    pub(super) is_final: bool,
}

/// Most errors are about the moment.
impl From<anyhow::Error> for NoAnswer {
    fn from(error: anyhow::Error) -> Self {
        Self { error, is_final: false }
    }
}

impl From<(String, bool)> for Answer {
    fn from((text, is_good): (String, bool)) -> Self {
        Self { text, is_good, is_settled: false }
    }
}

/// How to read names and to write an answer.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = None::<&str>)]
pub(crate) struct View {
    /// Namespace of pods. Defaults to the context's (with --server, to `default`; for `pending`, to
    /// all). `resilience` and `empty` always consider all
    #[arg(long, short, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// The context's namespace, for an endpoint
    #[arg(long, hide = true, value_name = "NAME")]
    pub(super) context_namespace: Option<String>,
    /// Output format. `wide` has all rows and whole names, `name` the names of pods or nodes alone
    #[arg(long, short, value_enum, default_value = "table")]
    pub(super) output: Format,
    /// The most nodes of a list, for the page
    #[arg(long, hide = true, value_name = "COUNT")]
    pub(super) rows: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

impl Format {
    /// Writes an answer: for people, for programs, or the names that it is about, such as
    /// `node/NAME`. YAML is made of JSON at the end.
    pub(crate) fn write(
        self,
        table: impl FnOnce(Width) -> String,
        json: impl FnOnce() -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> String {
        match self {
            Self::Table => table(Width::Usual),
            Self::Wide => table(Width::Wide),
            Self::Json | Self::Yaml => json(),
            Self::Name => names().iter().map(|name| printable(name) + "\n").collect(),
        }
    }

    /// The media type of an answer.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Table | Self::Wide | Self::Name => "text/plain; charset=utf-8",
        }
    }
}

/// The name of a pod, as kubectl writes it.
pub(crate) fn pod_name(pod: &PodKey) -> String {
    format!("pod/{}", pod.name)
}

/// The same of a node.
pub(super) fn node_name(node: &str) -> String {
    format!("node/{node}")
}

/// A cluster's state.
pub(crate) struct State {
    pub(super) fork: Fork,
    pub(super) config: Arc<Config>,
    /// The namespace of pods that are named without one.
    pub(super) namespace: String,
    pub(super) deadline: Deadline,
    /// The longest answer, in bytes.
    pub(super) most_bytes: usize,
}

impl State {
    /// A copy of the state.
    pub(super) fn fork(&self) -> Result<Fork> {
        let deadline = self.deadline;
        Ok(self.fork.fork(scheduler_options(&self.config))?.stop_when(move || deadline.is_over()))
    }

    /// The key of a pod that someone names.
    pub(super) fn key(&self, pod: &str, view: &View) -> Result<PodKey> {
        key(pod, view.namespace.as_deref(), self.usual_namespace(view))
    }

    fn usual_namespace<'a>(&'a self, view: &'a View) -> &'a str {
        view.context_namespace.as_deref().unwrap_or(&self.namespace)
    }

    /// The pod of a question.
    pub(super) fn subject(&self, subject: &Subject, view: &View) -> Result<Arc<PodInfo>> {
        match (&subject.pod, &subject.manifest) {
            (Some(pod), _) => self.pod(pod, view),
            (None, Some(json)) => self.imagined(json, view),
            (None, None) => bail!("neither a pod nor a manifest is given"),
        }
    }

    /// The pod of a manifest.
    fn imagined(&self, json: &str, view: &View) -> Result<Arc<PodInfo>> {
        let mut pod: Value = serde_json::from_str(json).context("the manifest is not JSON")?;
        let key = key_of_manifest(&pod["metadata"], view.namespace.as_deref(), self.usual_namespace(view))?;
        pod["metadata"]["namespace"] = (*key.namespace).into();
        // No pod of the cluster has it, whatever the sender says.
        pod["metadata"]["uid"] = UID_OF_MANIFEST.into();
        let (pods, _) = kinds(false);
        let pod = pods.features(self.config.features.clone()).decode(pod.to_string().as_bytes());
        Ok(Arc::new(pod.context("the manifest")?))
    }

    /// The pod that someone names.
    pub(super) fn pod(&self, pod: &str, view: &View) -> Result<Arc<PodInfo>> {
        let key = self.key(pod, view)?;
        self.fork.pod(&key).cloned().with_context(|| format!("pod {key} does not exist or has ended"))
    }
}

/// A count that is small enough to imagine as many pods.
pub(super) fn at_most_100_000(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count <= 100_000 => Ok(count),
        Ok(_) => Err("must be at most 100,000".to_owned()),
        Err(_) => Err(format!("{text} is not a number")),
    }
}

/// The key of the pod that someone names.
pub(crate) fn key(pod: &str, namespace: Option<&str>, usual: &str) -> Result<PodKey> {
    let (before, name) = pod.split_once('/').unwrap_or(("pod", pod));
    let is_kind = ["pod", "pods", "po"].contains(&before);
    let namespace = match namespace {
        Some(other) if !is_kind && other != before => {
            bail!("the namespace {before} of {pod} conflicts with --namespace {other}")
        }
        _ if !is_kind => before,
        namespace => namespace.unwrap_or(usual),
    };
    Ok(PodKey { namespace: namespace.into(), name: name.into() })
}

/// The key of a manifest's pod. The namespace may have any name, such as `pod`.
fn key_of_manifest(metadata: &Value, namespace: Option<&str>, usual: &str) -> Result<PodKey> {
    let name = metadata["name"].as_str().context("the manifest has no metadata.name")?;
    let own = match &metadata["namespace"] {
        Value::Null => None,
        Value::String(own) => Some(&**own).filter(|own| !own.is_empty()),
        other => bail!("the manifest's metadata.namespace is {other}, not a string"),
    };
    if let (Some(own), Some(other)) = (own, namespace) {
        ensure!(own == other, "the namespace {own} of {name} conflicts with --namespace {other}");
    }
    let namespace = own.or(namespace).unwrap_or(usual);
    Ok(PodKey { namespace: namespace.into(), name: name.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_from_a_file_has_its_time() {
        let answer = |text: &str| Answer::from((text.to_owned(), true));
        let time = Timestamp(1_767_225_600_000_000);
        let table = answer("p fits\n").dated(time, Format::Table).text;
        assert_eq!(table, "As of 2026-01-01T00:00:00Z\n\np fits\n");
        let text = supercargo_report::document("Why", json!({ "pods": {} }));
        let object = answer(&text).dated(time, Format::Json).text;
        let object: Value = serde_json::from_str(&object).unwrap();
        assert_eq!((&object["asOf"], &object["kind"]), (&json!("2026-01-01T00:00:00Z"), &json!("Why")));
        let yaml = answer(&text).dated(time, Format::Yaml).formatted(Format::Yaml).unwrap().text;
        assert!(yaml.contains("asOf: \"2026-01-01T00:00:00Z\"\n") && yaml.contains("kind: Why\n"), "{yaml}");
    }

    /// Names and messages may come from strangers.
    #[test]
    fn yaml_has_the_fields_of_json_and_moves_no_cursor() {
        let hostile = "a\u{1b}[31m\u{202e}\u{e0041}: no\n- ü\"";
        let fields = json!({ "pods": { hostile: [hostile, 1, null] } });
        let json = supercargo_report::document("Pending", fields);
        let shown = yaml(&json).unwrap();
        assert!(shown.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{shown}");
        let read: Value = serde_saphyr::from_str(&shown).unwrap();
        assert_eq!(read, serde_json::from_str::<Value>(&json).unwrap());
    }

    #[test]
    fn names_are_a_line_each() {
        let names =
            || vec![node_name("n\u{1b}"), pod_name(&PodKey { namespace: "a".into(), name: "p".into() })];
        let text = Format::Name.write(|_| String::new(), String::new, names);
        assert_eq!(text, "node/n\u{fffd}\npod/p\n");
    }

    #[test]
    fn pods_are_named_as_kubectl_or_logs_name_them() {
        let cases = [
            ("p", None, "usual/p"),
            ("pod/p", None, "usual/p"),
            ("pod/p", Some("n"), "n/p"),
            ("p", Some("n"), "n/p"),
            ("n/p", None, "n/p"),
        ];
        for (pod, namespace, expected) in cases {
            assert_eq!(key(pod, namespace, "usual").unwrap().to_string(), expected);
        }
        assert!(key("n/p", Some("other"), "usual").is_err());
    }

    #[test]
    fn a_pod_of_a_manifest_is_in_its_own_namespace() {
        for (own, namespace, expected) in [
            (json!(null), None, "usual/p"),
            (json!(""), Some("n"), "n/p"),
            (json!("pod"), None, "pod/p"),
            (json!("po"), Some("po"), "po/p"),
        ] {
            let metadata = json!({ "name": "p", "namespace": own });
            assert_eq!(key_of_manifest(&metadata, namespace, "usual").unwrap().to_string(), expected);
        }
        let slash = key_of_manifest(&json!({ "name": "a/b" }), None, "usual").unwrap();
        assert_eq!((&*slash.namespace, &*slash.name), ("usual", "a/b"));
        for (own, problem) in [(json!(123), "is 123, not a string"), (json!("pod"), "conflicts with")] {
            let metadata = json!({ "name": "p", "namespace": own });
            let error = key_of_manifest(&metadata, Some("n"), "usual").unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
