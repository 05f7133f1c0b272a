use std::fs;

use http::HeaderValue;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::testing::{Authority, Server, token_review};
use supercargo_config::flags::{AuthenticationOptions, RequestHeaderOptions};

const TTL: Duration = Duration::from_secs(10);

/// Trusts clients of one CA, and front proxies named `proxy` of another.
struct TestBed {
    server: Server,
    clients: Authority,
    proxies: Authority,
    authenticator: Authenticator,
    _folder: TempDir,
}

fn bed() -> TestBed {
    let (server, clients, proxies) = (Server::default(), Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        fs::write(&path, pem).unwrap();
        Some(path)
    };
    let options = AuthenticationOptions {
        client_ca_file: file("clients", &clients.pem),
        request_header: RequestHeaderOptions {
            client_ca_file: file("proxies", &proxies.pem),
            allowed_names: vec!["proxy".to_owned()],
            ..RequestHeaderOptions::default()
        },
        ..AuthenticationOptions::default()
    };
    let trust = Arc::new(Trust::new(&options).unwrap());
    assert!(!trust.needs_lookup());
    let reviewer = Arc::new(Reviewer::new(server.api(), "token"));
    let authenticator = Authenticator::new(trust, reviewer, TTL);
    TestBed { server, clients, proxies, authenticator, _folder: folder }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn token(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

#[tokio::test]
async fn requests_without_credentials_have_no_user() {
    let bed = bed();
    for shown in ["", "Basic am9lOnNlY3JldA==", "Bearer", "Bearer ", "Bearer  x"] {
        let user = bed.authenticator.user(&[], &headers(&[("authorization", shown)])).await;
        assert_eq!(user, Ok(None), "{shown}");
    }
    assert!(bed.server.requests().is_empty());
}

#[tokio::test]
async fn a_certificate_of_a_trusted_ca_is_enough() {
    let bed = bed();
    let user = bed.authenticator.user(&bed.clients.client("jane"), &HeaderMap::new()).await.unwrap().unwrap();
    assert_eq!(
        (user.name.as_str(), user.groups.as_slice()),
        ("jane", ["system:authenticated".to_owned()].as_slice())
    );
    // Even with an invalid token.
    bed.server.answer(|_| token_review(None));
    let user = bed.authenticator.user(&bed.clients.client("jane"), &token("wrong")).await.unwrap().unwrap();
    assert_eq!(user.name, "jane");
}

#[tokio::test]
async fn untrusted_certificates_are_rejected_but_a_token_is_accepted() {
    let bed = bed();
    let stranger = Authority::new();
    for chain in [stranger.client("jane"), bed.clients.server("jane"), vec![vec![1, 2, 3].into()]] {
        let unknown = bed.authenticator.user(&chain, &HeaderMap::new()).await.unwrap_err().to_string();
        assert!(unknown.contains("client certificate: "), "{unknown}");
    }
    bed.server.answer(|_| token_review(Some("sa")));
    let user = bed.authenticator.user(&stranger.client("jane"), &token("right")).await.unwrap().unwrap();
    assert_eq!(user.name, "sa");
}

#[tokio::test]
async fn only_a_front_proxy_can_name_users() {
    let bed = bed();
    let reported = headers(&[
        ("x-remote-user", "joe"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-example.org%2fkey", "value"),
    ]);
    let user = bed.authenticator.user(&bed.proxies.client("proxy"), &reported).await.unwrap().unwrap();
    assert_eq!(user.name, "joe");
    assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(user.extra["example.org/key"], ["value"]);

    let user = bed.authenticator.user(&bed.clients.client("jane"), &reported).await.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.groups.len()), ("jane", 1));
    assert_eq!(bed.authenticator.user(&[], &reported).await, Ok(None));
    let unknown =
        bed.authenticator.user(&bed.proxies.client("other"), &reported).await.unwrap_err().to_string();
    assert!(unknown.contains("\"other\" is not an allowed front proxy"), "{unknown}");
    // The proxy itself is not a user: clients have another CA.
    assert!(bed.authenticator.user(&bed.proxies.client("proxy"), &HeaderMap::new()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn token_reviews_are_cached_and_tokens_never_printed() {
    let bed = bed();
    bed.server.answer(|review| token_review((review["spec"]["token"] == "s3cret").then_some("sa")));
    for _ in 0..3 {
        let user = bed.authenticator.user(&[], &token("s3cret")).await.unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("sa", ["system:authenticated".to_owned()].as_slice())
        );
        let unknown = bed.authenticator.user(&[], &token("wr0ng")).await.unwrap_err();
        assert_eq!(unknown.to_string(), "no valid bearer token");
    }
    assert_eq!(bed.server.requests().len(), 2);
    let (method, path, body) = bed.server.requests().remove(0);
    assert_eq!((method.as_str(), path.as_str()), ("POST", TOKEN_REVIEWS));
    assert_eq!(body["spec"], json!({"token": "s3cret"}));
    // The token is revoked.
    bed.server.answer(|_| token_review(None));
    assert!(bed.authenticator.user(&[], &token("s3cret")).await.is_ok());
    tokio::time::advance(TTL).await;
    assert!(bed.authenticator.user(&[], &token("s3cret")).await.is_err());
}

#[tokio::test]
async fn tokens_for_supercargo_are_reviewed_for_its_audience() {
    let of = |claims: Value| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let bed = bed();
    for (claims, reviewed) in [
        (json!({"aud": ["supercargo"]}), json!({"audiences": ["supercargo"]})),
        (json!({"aud": "supercargo"}), json!({"audiences": ["supercargo"]})),
        (json!({"aud": ["https://kubernetes"]}), json!({})),
    ] {
        let token_of_case = of(claims);
        bed.server.answer(|review| {
            let (status, mut answer) = token_review(Some("sa"));
            answer["status"]["audiences"] = review["spec"]["audiences"].clone();
            (status, answer)
        });
        assert!(bed.authenticator.user(&[], &token(&token_of_case)).await.is_ok());
        let (.., body) = bed.server.requests().pop().unwrap();
        assert_eq!(body["spec"].get("audiences"), reviewed.get("audiences"), "{body}");
    }
    // A server that does not know audiences.
    bed.server.answer(|_| token_review(Some("sa")));
    let other = of(json!({"aud": ["supercargo"], "jti": "other"}));
    assert!(bed.authenticator.user(&[], &token(&other)).await.is_err());
}

#[tokio::test]
async fn unavailable_reviews_reject_the_caller() {
    let bed = bed();
    // Not even if the response echoes the request.
    for (status, body) in [
        (500, json!({"message": "s3cret"})),
        (403, json!({})),
        (201, json!({"status": {"authenticated": true}})),
    ] {
        bed.server.answer(move |_| (status, body.clone()));
        let unknown = bed.authenticator.user(&[], &token("s3cret")).await.unwrap_err().to_string();
        assert!(!unknown.contains("s3cret"), "{unknown}");
    }
}
