//! Access and token reviews. Every caller with the token may do everything.

use serde_json::{Value, json};

use super::checks::{Shown, invalid_shown, shown};
use super::path::Path;
use crate::json::{list, object_mut, present, set_default, text, text_at};
use crate::kinds::Kind;
use crate::status::{Result, Status, StatusCause};

/// An authenticated user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// For example `admin`.
    pub name: String,
    /// For example `system:masters`.
    pub groups: Vec<String>,
}

const SPEC: Path<'static> = Path::root("spec");

/// Completes a review: the request with its status. `token` reports whether this server accepts a
/// token.
pub(crate) fn answer(
    kind: &Kind,
    mut review: Value,
    namespace: &str,
    user: &User,
    token: impl Fn(&str) -> bool,
) -> Result<Value> {
    review["kind"] = kind.kind.as_ref().into();
    review["apiVersion"] = kind.api_version().into();
    object_mut(&mut review, "metadata");
    let status = match kind.resource.as_ref() {
        "selfsubjectreviews" => json!({"userInfo": user_info(user)}),
        "tokenreviews" => {
            let asked = text_at(&review, "/spec/token");
            if asked.is_empty() {
                return Err(Status::bad_request("token is required for TokenReview in authentication"));
            }
            if token(asked) {
                let audiences = json!(["https://kubernetes.default.svc"]);
                json!({"authenticated": true, "user": user_info(user), "audiences": audiences})
            } else {
                json!({"user": {}, "error": "invalid bearer token"})
            }
        }
        "selfsubjectrulesreviews" => {
            if text_at(&review, "/spec/namespace").is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            review["spec"] = json!({});
            rules()
        }
        _ => {
            check_access(kind, &review, namespace)?;
            json!({"allowed": true})
        }
    };
    if kind.resource == "localsubjectaccessreviews" {
        set_default(&mut review["metadata"], "namespace", namespace);
    }
    review["status"] = status;
    Ok(review)
}

fn user_info(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}

fn rules() -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn check_access(kind: &Kind, review: &Value, namespace: &str) -> Result<()> {
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let (resource, path) = (present(spec, "resourceAttributes"), present(spec, "nonResourceAttributes"));
    let mut causes: Vec<StatusCause> = Vec::new();
    match (resource, path) {
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            causes.push(SPEC.child("resourceAttributes").invalid(Value::Null, why));
        }
        (Some(_), Some(path)) => {
            let shown = shown(path, &[("Path", "path", Shown::Text), ("Verb", "verb", Shown::Text)]);
            let why = "cannot be specified in combination with resourceAttributes";
            causes.push(invalid_shown(&SPEC.child("nonResourceAttributes"), &shown, why));
        }
        _ => {}
    }
    let is_self = kind.resource == "selfsubjectaccessreviews";
    if !is_self && text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
        causes.push(SPEC.child("user").invalid("", "at least one of user or group must be specified"));
    }
    if kind.resource == "localsubjectaccessreviews" {
        check_local(resource, path, namespace, &mut causes);
    }
    if causes.is_empty() {
        return Ok(());
    }
    // Upstream's error lacks the kind here.
    Err(Status::invalid(&Kind { kind: "".into(), ..kind.clone() }, "", causes))
}

fn check_local(
    resource: Option<&Value>,
    path: Option<&Value>,
    namespace: &str,
    causes: &mut Vec<StatusCause>,
) {
    if let Some(resource) = resource
        && text(resource, "namespace") != namespace
    {
        let attributes = SPEC.child("resourceAttributes");
        let asked = text(resource, "namespace");
        causes.push(attributes.child("namespace").invalid(asked, "must match metadata.namespace"));
    }
    if path.is_some() {
        let why = "disallowed on this kind of request";
        causes.push(SPEC.child("nonResourceAttributes").invalid(path.cloned().unwrap_or_default(), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;

    fn ask(resource: &str, review: Value) -> Result<Value> {
        let kind = built_in().iter().find(|kind| kind.resource == resource).unwrap();
        let user = User { name: "admin".into(), groups: vec!["system:masters".into()] };
        answer(kind, review, "default", &user, |token| token == "sound")
    }

    #[test]
    fn every_caller_is_allowed_everything() {
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
        for resource in ["selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews"] {
            let review = json!({"spec": {"resourceAttributes": attributes, "user": "u"}});
            let answered = ask(resource, review).unwrap();
            assert_eq!(answered["status"], json!({"allowed": true}), "{resource}");
            assert_eq!(answered["apiVersion"], "authorization.k8s.io/v1");
        }
        let answered = ask("selfsubjectrulesreviews", json!({"spec": {"namespace": "default"}})).unwrap();
        assert_eq!(answered["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    }

    #[test]
    fn reviews_identify_the_caller_and_check_tokens() {
        let answered = ask("selfsubjectreviews", json!({})).unwrap();
        assert_eq!(answered["status"]["userInfo"]["username"], "admin");
        assert_eq!(answered["kind"], "SelfSubjectReview");
        let answered = ask("tokenreviews", json!({"spec": {"token": "sound"}})).unwrap();
        assert_eq!(answered["status"]["authenticated"], true);
        let answered = ask("tokenreviews", json!({"spec": {"token": "bad"}})).unwrap();
        assert_eq!(answered["status"], json!({"user": {}, "error": "invalid bearer token"}));
    }

    #[test]
    fn invalid_reviews_have_upstream_errors() {
        let refused = |resource, spec| ask(resource, json!({"spec": spec})).unwrap_err();
        let attributes = json!({"verb": "get", "resource": "pods"});
        let path = json!({"path": "/x", "verb": "get"});
        for (resource, spec, message) in [
            (
                "selfsubjectaccessreviews",
                json!({}),
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#,
            ),
            (
                "selfsubjectaccessreviews",
                json!({"resourceAttributes": attributes, "nonResourceAttributes": path}),
                r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes"#,
            ),
            (
                "subjectaccessreviews",
                json!({"resourceAttributes": attributes}),
                r#".authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified"#,
            ),
            (
                "localsubjectaccessreviews",
                json!({"user": "u", "resourceAttributes": {"namespace": "foo"}}),
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "foo": must match metadata.namespace"#,
            ),
            ("selfsubjectrulesreviews", json!({}), "no namespace on request"),
            ("tokenreviews", json!({}), "token is required for TokenReview in authentication"),
        ] {
            assert_eq!(refused(resource, spec).message, message);
        }
    }
}
