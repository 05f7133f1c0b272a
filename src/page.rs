//! The page of a running scheduler, below `/insight/`, and what it reads beside the answers to
//! questions.
//!
//! ```text
//! copy of the scheduler (insight) ──> overview ──> live ──> a stream per tab
//!                                ├──> decisions, devices, groups, node, pod, search
//!                                └──> questions
//! ```
//! The page changes nothing: each of its answers is about a copy.

mod live;
mod proxy;
mod replay;
mod seeks;
pub(crate) mod ui;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;
use supercargo_client::api::full_text;
use supercargo_framework::Timestamp;
use supercargo_page::{ASSETS, Asset, HEADERS, INDEX};
use supercargo_report as report;
use supercargo_scheduler::Fork;
#[cfg(feature = "demo")]
use supercargo_serving::Site;
use supercargo_serving::{QueryPage, QueryResponse};
use tokio::sync::Semaphore;

use self::live::Live;
pub(crate) use crate::insight::endpoint::PATH;
use crate::insight::endpoint::{Insight, not_synced, question_names};

/// The folder of the page's files.
const ASSETS_PATH: &str = "/insight/assets/";
/// The most requests for nodes and names at once.
const MOST_READS: usize = 4;
/// What the page reads beside the answers to questions.
const OVERVIEW: &str = "overview";
const STREAM: &str = "stream";
const READS: [(&str, Read); 6] = [
    ("decisions", |fork, _| Some(report::decisions(fork))),
    ("devices", |fork, _| Some(report::devices(fork))),
    ("groups", |fork, _| Some(report::groups(fork))),
    ("node", |fork, query| report::node(fork, query.get("name")?)),
    ("pod", |fork, query| Some(report::place(fork, query.get("namespace")?, query.get("name")?))),
    ("search", |fork, query| Some(report::search(fork, query.get("text")?))),
];

/// An attribute of the page: no command asks what the page asks.
const NO_COMMAND: &str = "data-options=null";

/// Reads a copy, for a request with these parameters. `None` if there is no such thing.
type Read = fn(&Fork, &Parameters) -> Option<Value>;

/// The parameters of a request, by name.
type Parameters = BTreeMap<String, String>;

/// The page and its data, for a browser of this machine.
#[cfg(feature = "demo")]
pub(crate) fn site(insight: &Arc<Insight>) -> Site {
    Site { open: files(NO_COMMAND), data: data(insight) }
}

/// The page and its data, by path.
pub(crate) fn everything(insight: &Arc<Insight>) -> BTreeMap<String, QueryPage> {
    files("").into_iter().chain(data(insight)).collect()
}

/// The files of the page, by path. They tell nothing about a cluster. `attributes` are those of the
/// document; other programs of the machine can read them, as they can the options of a command.
fn files(attributes: &str) -> BTreeMap<String, QueryPage> {
    let file = |asset: &'static Asset| {
        let page = endpoint(move |_| async { QueryResponse::file(asset.content_type, asset.text) });
        (format!("{ASSETS_PATH}{}", asset.name), page)
    };
    let text = INDEX.text.replacen("<html ", &format!("<html {attributes} "), 1);
    let index = endpoint(move |_| {
        let text = text.clone();
        async move { QueryResponse::file(INDEX.content_type, text) }
    });
    ASSETS.iter().map(file).chain([(PATH.to_owned(), index)]).collect()
}

/// An attribute of the page: these options follow the commands that it shows.
fn with_options(options: &[String]) -> String {
    let json = Value::from(options).to_string();
    let escaped = json.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;");
    format!("data-options='{escaped}'")
}

/// The paths of [`data`].
fn data_paths() -> Vec<String> {
    let names = READS.iter().map(|(name, _)| *name).chain([OVERVIEW, STREAM]).chain(question_names());
    names.map(|name| format!("{PATH}{name}")).collect()
}

/// What the page reads, by path: the answers to questions among it.
fn data(insight: &Arc<Insight>) -> BTreeMap<String, QueryPage> {
    let live = Arc::new(Live::new(Arc::clone(insight)));
    let (snapshots, streams) = (Arc::clone(&live), live);
    let overview = endpoint(move |_| {
        let live = Arc::clone(&snapshots);
        async move { live.snapshot().await }
    });
    let stream = endpoint(move |_| {
        let live = Arc::clone(&streams);
        async move { live.stream().await }
    });
    let places = Arc::new(Semaphore::new(MOST_READS));
    let read = |(name, read): (&str, Read)| {
        let (insight, places) = (Arc::clone(insight), Arc::clone(&places));
        let page = endpoint(move |query| {
            let (insight, places) = (Arc::clone(&insight), Arc::clone(&places));
            async move { answer(&insight, &places, read, query).await }
        });
        (format!("{PATH}{name}"), page)
    };
    let named = [(format!("{PATH}{OVERVIEW}"), overview), (format!("{PATH}{STREAM}"), stream)];
    let questions =
        insight.endpoints().into_iter().map(|(path, answer)| (path, endpoint(move |it| answer(it))));
    READS.into_iter().map(read).chain(named).chain(questions).collect()
}

/// An endpoint whose responses have the headers of the page.
fn endpoint<F>(answer: impl Fn(Vec<(String, String)>) -> F + Send + Sync + 'static) -> QueryPage
where
    F: Future<Output = QueryResponse> + Send + 'static,
{
    Arc::new(move |query| -> BoxFuture<'static, QueryResponse> { Box::pin(answer(query).map(with_headers)) })
}

fn with_headers(response: QueryResponse) -> QueryResponse {
    HEADERS.iter().fold(response, |response, (name, value)| response.with(name, (*value).to_owned()))
}

async fn answer(
    insight: &Arc<Insight>,
    places: &Arc<Semaphore>,
    read: Read,
    query: Vec<(String, String)>,
) -> QueryResponse {
    let Ok(place) = Arc::clone(places).try_acquire_owned() else { return QueryResponse::Busy };
    if !insight.is_synced() {
        return not_synced();
    }
    let parameters = query.into_iter().collect();
    // Reading goes on if nobody waits, and keeps its place.
    let read = move |fork: &Fork, as_of| {
        let _place = place;
        (read(fork, &parameters), as_of)
    };
    let answered = insight.read(read).await;
    match answered {
        Ok((Some(answer), as_of)) => QueryResponse::answer(dated(answer, as_of).to_string(), true),
        Ok((None, _)) => QueryResponse::error(StatusCode::NOT_FOUND, "not found".to_owned()),
        Err(error) => QueryResponse::unavailable(full_text(&*error)),
    }
}

/// An answer with the time of the state that it is about.
fn dated(mut answer: Value, as_of: Timestamp) -> Value {
    answer["asOf"] = report::moment(as_of).into();
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::insight::endpoint::testing::{add_pod, owner};

    #[test]
    fn options_are_an_attribute() {
        let text = with_options(&["--context='a\"<b".to_owned(), "--as=&".to_owned()]);
        assert_eq!(text, "data-options='[\"--context=&#39;a\\\"&lt;b\",\"--as=&amp;\"]'");
        assert_eq!(with_options(&[]), "data-options='[]'");
    }

    #[tokio::test]
    async fn nodes_and_pods_are_found_by_name() {
        let (insight, _owner) = owner();
        add_pod(&insight, "web");
        let read = |fork: &Fork, _| {
            let found = ["WEB", "default/", "x"].map(|text| report::search(fork, text));
            let pods = ["p", "web"].map(|name| report::place(fork, "default", name));
            (report::node(fork, "n"), report::node(fork, "m"), found, pods)
        };
        let (known, unknown, [one, all, none], [waits, placed]) = insight.read(read).await.unwrap();
        assert_eq!((&waits["place"], &waits["attempts"]), (&json!("active"), &json!(0)));
        assert_eq!(placed["place"], Value::Null);
        let known = known.unwrap();
        assert_eq!((&known["pods"][0]["name"], &known["pods"][0]["cpu"]), (&json!("web"), &json!("1")));
        assert_eq!(known["resources"][0]["share"], 50);
        assert!(unknown.is_none());
        assert_eq!(one["pods"], json!([{ "namespace": "default", "name": "web", "pending": false }]));
        // Pending pods come first.
        assert_eq!((&all["pods"][0]["name"], &all["pods"][1]["name"]), (&json!("p"), &json!("web")));
        assert_eq!((&none["pods"], &none["nodes"]), (&json!([]), &json!([])));
    }
}
