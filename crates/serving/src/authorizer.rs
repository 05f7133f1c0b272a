//! Authorization of requests to the endpoints.

use std::time::Duration;

use serde_json::{Value, json};

use super::answers::{Answers, Key};
use super::review::{ReviewError, Reviewer};
use super::user::User;
use supercargo_config::flags::AuthorizationOptions;

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// API servers allow this group everything, so no review is needed.
const MASTERS: &str = "system:masters";

/// Maximum number of cached SubjectAccessReview results.
const MOST_ANSWERS: usize = 1024;

/// The result of an authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_allowed: bool,
    /// The reason given by the API server; often empty.
    pub(super) reason: String,
}

/// Authorizes requests.
pub(super) struct Authorizer {
    open: OpenPaths,
    reviewer: Reviewer,
    answers: Answers<Verdict>,
    authorized_ttl: Duration,
    unauthorized_ttl: Duration,
}

impl Authorizer {
    pub(super) fn new(options: &AuthorizationOptions, reviewer: Reviewer) -> Self {
        Self {
            open: OpenPaths::new(&options.always_allow_paths),
            reviewer,
            answers: Answers::new(MOST_ANSWERS, |verdict: &Verdict| verdict.is_allowed),
            authorized_ttl: options.authorized_ttl,
            unauthorized_ttl: options.unauthorized_ttl,
        }
    }

    /// Whether the path is served without authorization.
    pub(super) fn is_open(&self, path: &str) -> bool {
        self.open.contains(path)
    }

    /// Whether the user may do this. `verb` is the method in lower case.
    pub(super) async fn review(&self, user: &User, verb: &str, path: &str) -> Result<Verdict, ReviewError> {
        if user.is_in(MASTERS) {
            return Ok(Verdict { is_allowed: true, reason: String::new() });
        }
        // A user consists of strings, lists and string-keyed maps, so it always serializes.
        let mut spec = serde_json::to_value(user).unwrap_or_default();
        spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
        let key = Key::of(spec.to_string().as_bytes());
        let ask = async {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            });
            let verdict = verdict(&self.reviewer.review(ACCESS_REVIEWS, &review).await?);
            let time_to_live = if verdict.is_allowed { self.authorized_ttl } else { self.unauthorized_ttl };
            Ok((verdict, time_to_live))
        };
        self.answers.get(key, ask).await
    }
}

fn verdict(review: &Value) -> Verdict {
    let status = &review["status"];
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    Verdict { is_allowed: status["allowed"] == true && status["denied"] != true, reason }
}

/// A path without the first `/`.
fn from_root(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

/// Paths and prefixes that are served without authorization.
#[derive(Debug, Default)]
struct OpenPaths {
    paths: Vec<String>,
    beginnings: Vec<String>,
}

impl OpenPaths {
    /// A trailing `*` matches any suffix. The leading `/` is optional.
    fn new(given: &[String]) -> Self {
        let mut open = Self::default();
        for path in given.iter().map(|path| from_root(path)) {
            match path.strip_suffix('*') {
                Some(beginning) => open.beginnings.push(beginning.to_owned()),
                None => open.paths.push(path.to_owned()),
            }
        }
        open
    }

    fn contains(&self, path: &str) -> bool {
        let path = from_root(path);
        self.paths.iter().any(|open| open == path)
            || self.beginnings.iter().any(|open| path.starts_with(open.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, access_review};

    fn authorizer(server: &Server) -> Authorizer {
        Authorizer::new(&AuthorizationOptions::default(), Reviewer::new(server.api(), "access"))
    }

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    #[test]
    fn open_paths_match_exactly_or_by_prefix() {
        let open = OpenPaths::new(&["/healthz", "livez/*", "/"].map(str::to_owned));
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/livez", false),
            ("/livez/ping", true),
            ("/", true),
            ("/metrics", false),
            ("//healthz", false),
        ] {
            assert_eq!(open.contains(path), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_are_cached_for_ten_seconds() {
        let server = Server::default();
        server.answer(|request| access_review(request["spec"]["user"] == "jane", "because"));
        let authorizer = authorizer(&server);
        for _ in 0..3 {
            let verdict = authorizer.review(&user("jane", &["g"]), "get", "/metrics").await.unwrap();
            assert!(verdict.is_allowed);
            let verdict = authorizer.review(&user("joe", &[]), "get", "/metrics").await.unwrap();
            assert_eq!((verdict.is_allowed, verdict.reason.as_str()), (false, "because"));
        }
        assert_eq!(server.requests().len(), 2);
        authorizer.review(&user("jane", &["g"]), "put", "/metrics").await.unwrap();
        authorizer.review(&user("jane", &["h"]), "get", "/metrics").await.unwrap();
        assert_eq!(server.requests().len(), 4);
        tokio::time::advance(Duration::from_secs(10)).await;
        authorizer.review(&user("jane", &["g"]), "get", "/metrics").await.unwrap();
        let (method, path, body) = server.requests().pop().unwrap();
        assert_eq!((method.as_str(), path.as_str()), ("POST", ACCESS_REVIEWS));
        let spec = json!({
            "user": "jane", "groups": ["g"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        });
        assert_eq!(body["spec"], spec);
        assert_eq!(server.requests().len(), 5);
    }

    #[tokio::test]
    async fn system_masters_are_allowed_without_review() {
        let server = Server::default();
        let verdict = authorizer(&server).review(&user("root", &[MASTERS]), "put", "/x").await.unwrap();
        assert!(verdict.is_allowed && server.requests().is_empty());
    }

    #[tokio::test]
    async fn denials_take_precedence_and_errors_are_not_verdicts() {
        let server = Server::default();
        server.answer(|_| (201, json!({"status": {"allowed": true, "denied": true}})));
        let verdict = authorizer(&server).review(&user("jane", &[]), "get", "/x").await.unwrap();
        assert!(!verdict.is_allowed);
        server.answer(|_| (201, json!({"status": "allowed"})));
        assert!(!authorizer(&server).review(&user("jane", &[]), "get", "/x").await.unwrap().is_allowed);
        server.answer(|_| (500, json!({})));
        assert!(authorizer(&server).review(&user("jane", &[]), "get", "/x").await.is_err());
    }
}
