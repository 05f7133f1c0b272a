//! Users, their tokens, and their kubeconfig files.

use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

/// A user that authenticates with a static token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// Its groups; `system:authenticated` is added by kube-apiserver.
    pub groups: Vec<String>,
}

impl User {
    /// A user in no group.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), groups: Vec::new() }
    }

    /// Adds a group.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// The users of every control plane: `admin`, `system:kube-scheduler` and
    /// `system:kube-controller-manager`.
    pub(crate) fn defaults() -> Vec<Self> {
        vec![
            Self::new("admin").in_group("system:masters"),
            Self::new("system:kube-scheduler"),
            Self::new("system:kube-controller-manager"),
        ]
    }
}

/// A user and the user's token.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) user: User,
    pub(crate) token: String,
}

impl Account {
    /// Creates a token for `user`.
    pub(crate) fn new(user: User) -> Self {
        let token = (0..2).fold(String::new(), |mut token, part| {
            let random = RandomState::new().hash_one(part);
            write!(token, "{random:016x}").expect("writing to a String cannot fail");
            token
        });
        Self { user, token }
    }
}

/// Writes kube-apiserver's `--token-auth-file`.
pub(crate) fn write_tokens(path: &Path, accounts: &[Account]) -> Result<()> {
    let line = |(uid, Account { user, token }): (usize, &Account)| {
        format!("{token},{},{uid},\"{}\"", user.name, user.groups.join(","))
    };
    let lines: Vec<String> = accounts.iter().enumerate().map(line).collect();
    fs::write(path, lines.join("\n")).with_context(|| format!("write {}", path.display()))
}

/// Writes the kubeconfig of an account. JSON is YAML, so every client reads it.
pub(crate) fn write(path: &Path, server: &str, ca_pem: &str, account: &Account) -> Result<()> {
    let name = &account.user.name;
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "test",
            "cluster": { "server": server, "certificate-authority-data": base64(ca_pem.as_bytes()) },
        }],
        "users": [{ "name": name, "user": { "token": account.token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": name } }],
        "current-context": "test",
    });
    let text = serde_json::to_string_pretty(&config).context("serialize the kubeconfig")?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_pads() {
        let encoded = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
