//! The kubeconfig file, and what is wrong with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use thiserror::Error;
use tokio_rustls::rustls::crypto::ring;

use crate::key_pair::{KeyPair, KeyPairError};

/// Why a kubeconfig cannot be used.
#[derive(Debug, Error)]
pub enum KubeconfigProblem {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// The file cannot be parsed. The content is not printed: it may be a token.
    #[error("not a kubeconfig{}", .0.as_ref().map_or_else(String::new, |place| format!(" (line {place})")))]
    Malformed(Option<String>),
    /// No context is selected. Holds the contexts.
    #[error("no current-context is set; {}", names("context", .0))]
    NoContext(Vec<String>),
    /// The context that the file selects does not exist.
    #[error("current-context {name:?} does not exist; {}", names("context", .existing))]
    UnknownContext {
        /// The name.
        name: String,
        /// The contexts that exist.
        existing: Vec<String>,
    },
    /// What a [`Choice`] names does not exist.
    #[error("{kind} {name:?} does not exist; {}", names(.kind, .existing))]
    UnknownChoice {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// A file that it is merged with cannot be used.
    #[error("merged with {path}: {problem}")]
    Merged {
        /// The file.
        path: String,
        /// What is wrong.
        problem: Box<KubeconfigProblem>,
    },
    /// A file that the kubeconfig names cannot be read.
    #[error("{field} {path}: {error}")]
    File {
        /// The field, such as `client-certificate`.
        field: &'static str,
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The client certificate or its key cannot be used.
    #[error(transparent)]
    KeyPair(#[from] KeyPairError),
    /// The CA bundle is malformed. Holds the field and the problem.
    #[error("{0}")]
    Authority(&'static str),
    /// Any other error.
    #[error("{0}")]
    Other(Box<KubeconfigError>),
}

/// The names of a kind that a kubeconfig has.
fn names(kind: &str, names: &[String]) -> String {
    if names.is_empty() {
        format!("it has no {kind}s")
    } else {
        format!("its {kind}s are {}", names.join(", "))
    }
}

/// The parts of a kubeconfig to use instead of those that it selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The context.
    pub context: Option<String>,
    /// The cluster, instead of the context's.
    pub cluster: Option<String>,
    /// The user, instead of the context's.
    pub user: Option<String>,
    /// Further files. Of what several files name, the first one counts, as in kubectl.
    pub more_files: Vec<PathBuf>,
    /// Whom to act as: a user, and groups. Without groups, those of the kubeconfig stay, as in
    /// kubectl. The server must permit it.
    pub impersonate: Option<(String, Vec<String>)>,
}

impl Choice {
    /// Whether it chooses from a kubeconfig.
    pub fn needs_kubeconfig(&self) -> bool {
        self.context.is_some() || self.cluster.is_some() || self.user.is_some()
    }

    /// Makes requests act as the user that was chosen.
    pub(crate) fn impersonate(&self, credentials: &mut AuthInfo) {
        let Some((user, groups)) = &self.impersonate else { return };
        credentials.impersonate = Some(user.clone());
        if !groups.is_empty() {
            credentials.impersonate_groups = Some(groups.clone());
        }
    }

    /// Makes the file select these parts.
    fn apply(&self, file: &mut Kubeconfig) -> Result<(), KubeconfigProblem> {
        let Kubeconfig { current_context, contexts, clusters, auth_infos, .. } = file;
        if let Some(name) = &self.context {
            check("context", name, contexts.iter().map(|it| &it.name))?;
            *current_context = Some(name.clone());
        }
        if let Some(name) = &self.cluster {
            check("cluster", name, clusters.iter().map(|it| &it.name))?;
        }
        if let Some(name) = &self.user {
            check("user", name, auth_infos.iter().map(|it| &it.name))?;
        }
        let context = contexts.iter_mut().find(|it| Some(&it.name) == current_context.as_ref());
        if let Some(context) = context.and_then(|it| it.context.as_mut()) {
            if let Some(name) = &self.cluster {
                context.cluster.clone_from(name);
            }
            if let Some(name) = &self.user {
                context.user = Some(name.clone());
            }
        }
        Ok(())
    }
}

fn check<'a>(
    kind: &'static str,
    name: &str,
    mut all: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), KubeconfigProblem> {
    let existing = all.clone();
    if all.any(|it| it == name) {
        return Ok(());
    }
    let (name, existing) = (name.to_owned(), existing.cloned().collect());
    Err(KubeconfigProblem::UnknownChoice { kind, name, existing })
}

/// Reads the connection to the API server from a kubeconfig and the files that it names.
pub(crate) async fn read(path: &Path, choice: &Choice) -> Result<Config, KubeconfigProblem> {
    let mut file = Kubeconfig::read_from(path).map_err(problem)?;
    for path in &choice.more_files {
        // kubectl writes an empty name if none is current.
        file.current_context.take_if(|name| name.is_empty());
        let merged = Kubeconfig::read_from(path).and_then(|more| file.merge(more));
        file = merged.map_err(|error| KubeconfigProblem::Merged {
            path: path.display().to_string(),
            problem: Box::new(problem(error)),
        })?;
    }
    choice.apply(&mut file)?;
    include_files(&mut file)?;
    let contexts = file.contexts.iter().map(|context| context.name.clone()).collect();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.map_err(|error| match error {
        KubeconfigError::CurrentContextNotSet => KubeconfigProblem::NoContext(contexts),
        // An empty name selects no context either.
        KubeconfigError::LoadContext(name) if name.is_empty() => KubeconfigProblem::NoContext(contexts),
        KubeconfigError::LoadContext(name) => KubeconfigProblem::UnknownContext { name, existing: contexts },
        error => problem(error),
    })
}

fn problem(error: KubeconfigError) -> KubeconfigProblem {
    match error {
        KubeconfigError::ReadConfig(error, _) => KubeconfigProblem::Unreadable(error),
        KubeconfigError::Parse(error) => {
            KubeconfigProblem::Malformed(error.location().map(|at| format!("{}:{}", at.line(), at.column())))
        }
        KubeconfigError::LoadCertificateAuthority(LoadDataError::DecodeBase64(_)) => {
            KubeconfigProblem::Authority("certificate-authority-data: not base64")
        }
        KubeconfigError::ParseCertificates(_) => KubeconfigProblem::Authority(
            "certificate-authority, or certificate-authority-data: malformed PEM",
        ),
        error => KubeconfigProblem::Other(Box::new(error)),
    }
}

/// Replaces the files that the current context names by their content, so that all of a connection
/// is of one moment. kube's errors do not name the files.
fn include_files(file: &mut Kubeconfig) -> Result<(), KubeconfigProblem> {
    let Kubeconfig { current_context, contexts, clusters, auth_infos, .. } = file;
    let context = contexts.iter().find(|context| Some(&context.name) == current_context.as_ref());
    let Some(context) = context.and_then(|context| context.context.as_ref()) else { return Ok(()) };
    let cluster = clusters.iter_mut().find(|cluster| cluster.name == context.cluster);
    if let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_mut()) {
        let data = &mut cluster.certificate_authority_data;
        include("certificate-authority", &mut cluster.certificate_authority, data)?;
    }
    let user = auth_infos.iter_mut().find(|user| Some(&user.name) == context.user.as_ref());
    user.and_then(|user| user.auth_info.as_mut()).map_or(Ok(()), include_user)
}

fn include_user(user: &mut AuthInfo) -> Result<(), KubeconfigProblem> {
    let data = &mut user.client_certificate_data;
    let certificate = include("client-certificate", &mut user.client_certificate, data)?;
    let key = include("client-key", &mut user.client_key, &mut user.client_key_data)?;
    if let (Some((certificate, certificate_pem)), Some((key, key_pem))) = (&certificate, &key) {
        KeyPair { certificate, certificate_pem, key, key_pem }.parse(&ring::default_provider())?;
    }
    // kube reads tokens again itself.
    match user.token_file.as_deref().filter(|path| user.token.is_none() && !path.is_empty()) {
        Some(path) => read_file("tokenFile", path).map(drop),
        None => Ok(()),
    }
}

/// Replaces a file by its content, and returns its name with the content. Data takes precedence.
fn include<T: From<String>>(
    field: &'static str,
    file: &mut Option<String>,
    data: &mut Option<T>,
) -> Result<Option<(String, Vec<u8>)>, KubeconfigProblem> {
    let Some(path) = file.take().filter(|path| data.is_none() && !path.is_empty()) else { return Ok(None) };
    let content = read_file(field, &path)?;
    *data = Some(BASE64.encode(&content).into());
    Ok(Some((path, content)))
}

fn read_file(field: &'static str, path: &str) -> Result<Vec<u8>, KubeconfigProblem> {
    fs::read(path).map_err(|error| KubeconfigProblem::File { field, path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair as GeneratedKey};
    use serde_json::{Value, json};

    use super::*;

    /// The error of a kubeconfig with these fields, in a folder with a certificate and two keys.
    async fn error_of(change: impl FnOnce(&mut Value, &str)) -> String {
        error_with(change, Choice::default()).await
    }

    async fn error_with(change: impl FnOnce(&mut Value, &str), choice: Choice) -> String {
        let folder = tempfile::tempdir().unwrap();
        let name = |file: &str| folder.path().join(file).display().to_string();
        let key = GeneratedKey::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        fs::write(name("a.crt"), certificate).unwrap();
        fs::write(name("a.key"), key.serialize_pem()).unwrap();
        fs::write(name("b.key"), GeneratedKey::generate().unwrap().serialize_pem()).unwrap();
        let user = json!({ "client-certificate": name("a.crt"), "client-key": name("a.key") });
        let mut kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": {
                "server": "https://127.0.0.1:1", "certificate-authority": name("a.crt"),
            } }],
            "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u" } },
                         { "name": "two", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "one",
        });
        let folder_name = folder.path().display().to_string();
        change(&mut kubeconfig, &folder_name);
        let path = folder.path().join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let error = read(&path, &choice).await.map_or_else(|error| error.to_string(), |_| String::new());
        error.replace(&format!("{folder_name}/"), "")
    }

    #[tokio::test]
    async fn errors_name_contexts_and_files() {
        assert_eq!(error_of(|_, _| {}).await, "");
        let unknown = error_of(|file, _| file["current-context"] = json!("y")).await;
        assert_eq!(unknown, r#"current-context "y" does not exist; its contexts are one, two"#);
        let unset = error_of(|file, _| file["current-context"] = Value::Null).await;
        assert_eq!(unset, "no current-context is set; its contexts are one, two");
        let none = error_of(|file, _| *file = json!({ "apiVersion": "v1", "kind": "Config" })).await;
        assert_eq!(none, "no current-context is set; it has no contexts");

        let user = |field: &'static str, file: &'static str| {
            error_of(move |config, folder| {
                config["users"][0]["user"][field] = json!(format!("{folder}/{file}"));
            })
        };
        let missing = "No such file or directory (os error 2)";
        assert_eq!(user("client-certificate", "x.crt").await, format!("client-certificate x.crt: {missing}"));
        assert_eq!(user("client-key", "x.key").await, format!("client-key x.key: {missing}"));
        assert_eq!(user("client-key", "b.key").await, "b.key does not belong to a.crt");
        assert_eq!(user("client-key", "a.crt").await, "a.crt: no PEM private key found");
        let authority = error_of(|config, folder| {
            config["clusters"][0]["cluster"]["certificate-authority"] = json!(format!("{folder}/ca.crt"));
        });
        assert_eq!(authority.await, format!("certificate-authority ca.crt: {missing}"));
    }

    #[tokio::test]
    async fn further_files_have_what_the_first_one_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: Value| {
            let path = folder.path().join(name);
            fs::write(&path, content.to_string()).unwrap();
            path
        };
        let first = file("first", json!({ "current-context": "", "users": [{ "name": "u", "user": {} }] }));
        let second = json!({
            "current-context": "one",
            "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
            "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u", "namespace": "n" } }],
        });
        let mut choice = Choice { more_files: vec![file("second", second)], ..Choice::default() };
        assert_eq!(read(&first, &choice).await.unwrap().default_namespace, "n");

        choice.more_files.push(file("third", json!([])));
        let error = read(&first, &choice).await.unwrap_err().to_string();
        let third = choice.more_files[1].display();
        assert!(error.starts_with(&format!("merged with {third}: ")), "{error}");
    }

    #[test]
    fn requests_act_as_the_chosen_user() {
        let mut credentials = AuthInfo { impersonate: Some("of-the-file".to_owned()), ..AuthInfo::default() };
        Choice::default().impersonate(&mut credentials);
        assert_eq!(credentials.impersonate.as_deref(), Some("of-the-file"));
        let impersonate = Some(("u".to_owned(), vec!["g".to_owned()]));
        Choice { impersonate, ..Choice::default() }.impersonate(&mut credentials);
        assert_eq!(credentials.impersonate.as_deref(), Some("u"));
        assert_eq!(credentials.impersonate_groups, Some(vec!["g".to_owned()]));
    }

    #[tokio::test]
    async fn a_choice_takes_precedence_over_the_file() {
        let some = |name: &str| Some(name.to_owned());
        let broken = |file: &mut Value, _: &str| file["current-context"] = json!("y");
        let two = Choice { context: some("two"), cluster: some("c"), user: some("u"), ..Choice::default() };
        assert_eq!(error_with(broken, two).await, "");
        for (choice, expected) in [
            (
                Choice { context: some("three"), ..Choice::default() },
                r#"context "three" does not exist; its contexts are one, two"#,
            ),
            (
                Choice { cluster: some("d"), ..Choice::default() },
                r#"cluster "d" does not exist; its clusters are c"#,
            ),
            (Choice { user: some("v"), ..Choice::default() }, r#"user "v" does not exist; its users are u"#),
        ] {
            assert_eq!(error_with(|_, _| {}, choice).await, expected);
        }
        // The files of the chosen user count, not those of the context's.
        let other = |file: &mut Value, _: &str| {
            let users = file["users"].as_array_mut().unwrap();
            users.push(json!({ "name": "v", "user": { "client-key": "/nowhere" } }));
        };
        let choice = Choice { user: some("v"), ..Choice::default() };
        assert!(error_with(other, choice).await.starts_with("client-key /nowhere: "));
    }

    #[tokio::test]
    async fn unreadable_and_malformed_files_are_named_once() {
        let missing = read(Path::new("/nowhere"), &Choice::default()).await.unwrap_err().to_string();
        assert_eq!(missing, "No such file or directory (os error 2)");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        fs::write(&path, "users: 7\n").unwrap();
        let malformed = read(&path, &Choice::default()).await.unwrap_err().to_string();
        assert!(malformed.starts_with("not a kubeconfig (line 1:"), "{malformed}");
    }
}
