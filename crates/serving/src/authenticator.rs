//! Authentication: front proxy, client certificate, bearer token, in this order, as upstream. The
//! first success wins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::answers::{Answers, Key};
use super::review::{ReviewError, Reviewer};
use super::trust::{Chain, Trust};
use super::user::User;

/// The audience of tokens that only supercargo accepts, and the API server does not.
pub const AUDIENCE: &str = "supercargo";

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Maximum number of cached TokenReview results. Each is a user with groups, a few hundred bytes.
const MOST_TOKENS: usize = 1024;

/// Why the presented credentials were rejected. Contains no token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    reasons: Vec<String>,
    /// Whether they may be right, but too many others wait for reviews.
    pub(super) is_busy: bool,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))
    }
}

/// Authenticates requests.
pub(super) struct Authenticator {
    trust: Arc<Trust>,
    reviewer: Arc<Reviewer>,
    tokens: Answers<Option<Arc<User>>>,
    token_time_to_live: Duration,
}

impl Authenticator {
    pub(super) fn new(trust: Arc<Trust>, reviewer: Arc<Reviewer>, token_time_to_live: Duration) -> Self {
        Self { trust, reviewer, tokens: Answers::new(MOST_TOKENS, Option::is_some), token_time_to_live }
    }

    /// The user with these headers and client certificates; `None` without credentials. One
    /// accepted credential is enough.
    pub(super) async fn user(
        &self,
        chain: &Chain,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<User>>, Unknown> {
        let mut unknown = Unknown::default();
        if !chain.is_empty() {
            match self.of_certificate(chain, headers) {
                Ok(user) => return Ok(Some(Arc::new(user.authenticated()))),
                Err(reasons) => unknown.reasons.extend(reasons),
            }
        }
        if let Some(token) = bearer_token(headers) {
            match self.of_token(token).await {
                Ok(Some(user)) => return Ok(Some(user)),
                Ok(None) => unknown.reasons.push("no valid bearer token".to_owned()),
                Err(error) => {
                    unknown.is_busy = error == ReviewError::Busy;
                    unknown.reasons.push(format!("bearer token: {error}"));
                }
            }
        }
        if unknown.reasons.is_empty() { Ok(None) } else { Err(unknown) }
    }

    fn of_certificate(&self, chain: &Chain, headers: &HeaderMap) -> Result<User, Vec<String>> {
        let mut reasons = Vec::new();
        if let Some(proxies) = self.trust.proxies() {
            match proxies.user(chain, headers) {
                Ok(Some(user)) => return Ok(user),
                // The proxy sends the request for itself.
                Ok(None) => {}
                Err(reason) => reasons.push(format!("front proxy: {reason}")),
            }
        }
        if let Some(clients) = self.trust.clients() {
            match clients.verify(chain) {
                Ok(()) => match chain.first().and_then(User::of_certificate) {
                    Some(user) => return Ok(user),
                    None => reasons.push("client certificate: it has no common name".to_owned()),
                },
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons)
    }

    async fn of_token(&self, token: &str) -> Result<Option<Arc<User>>, ReviewError> {
        let ask = async {
            let is_ours = names_audience(token);
            let mut spec = json!({"token": token});
            if is_ours {
                spec["audiences"] = json!([AUDIENCE]);
            }
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": spec,
            });
            let answer = self.reviewer.review(TOKEN_REVIEWS, &review).await?;
            // A server that does not know audiences does not check them.
            let is_checked = !is_ours || has_audience(&answer["status"]["audiences"]);
            Ok((user_of(&answer).filter(|_| is_checked), self.token_time_to_live))
        };
        self.tokens.get(Key::of(token.as_bytes()), ask).await
    }
}

/// Whether a token says that it is for supercargo: the API server checks the token.
fn names_audience(token: &str) -> bool {
    let payload = token.split('.').nth(1).and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    let claims = payload.and_then(|payload| serde_json::from_slice::<Value>(&payload).ok());
    claims.is_some_and(|claims| has_audience(&claims["aud"]))
}

fn has_audience(audiences: &Value) -> bool {
    *audiences == AUDIENCE || audiences.as_array().is_some_and(|all| all.iter().any(|one| one == AUDIENCE))
}

/// The user of a TokenReview. A malformed review names no user.
fn user_of(review: &Value) -> Option<Arc<User>> {
    let status = &review["status"];
    if status["authenticated"] != true {
        return None;
    }
    let user: User = serde_json::from_value(status["user"].clone()).ok()?;
    (!user.name.is_empty()).then(|| Arc::new(user.authenticated()))
}

/// The bearer token of a request, if any.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

#[cfg(test)]
mod tests;
