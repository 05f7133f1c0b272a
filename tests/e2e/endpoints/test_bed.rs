//! A control plane whose API server has a client CA, with servers of supercargo beside it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;

use futures::FutureExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use serde_json::{Value, json};
use supercargo_client::connection::Connection;
use supercargo_config::flags::{AuthenticationOptions, AuthorizationOptions, ServingOptions};
use supercargo_controlplane::{ControlPlane, Method, Options, User, assets_or_skip};
use supercargo_serving::{Checks, Endpoints, Server, Setup, TextPage};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, Https, Identity, Supercargo, eventually, free_port};

use super::PATIENCE;

/// The role in every cluster that allows reading the client CA.
const READER: &str = "extension-apiserver-authentication-reader";

/// The control plane that the tests of this module share.
pub(super) struct TestBed {
    pub(super) plane: ControlPlane,
    cluster: Mutex<Cluster>,
    /// Signs client certificates that the API server accepts.
    pub(super) authority: Authority,
    pub(super) folder: TempDir,
}

/// The control plane, or `None` if none is available. It ends with the last test that uses it.
pub(super) fn bed_or_skip() -> Option<Arc<TestBed>> {
    static BED: Mutex<Weak<TestBed>> = Mutex::new(Weak::new());
    assets_or_skip()?;
    let mut shared = BED.lock().unwrap_or_else(PoisonError::into_inner);
    let bed = shared.upgrade().unwrap_or_else(|| Arc::new(TestBed::start()));
    *shared = Arc::downgrade(&bed);
    Some(bed)
}

impl TestBed {
    fn start() -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let file = folder.path().join("client-ca.crt");
        fs::write(&file, &authority.pem).unwrap();
        let users = ["supercargo", "only-tokens", "only-access"].map(User::new).to_vec();
        let apiserver_args = vec![format!("--client-ca-file={}", file.display())];
        let plane = ControlPlane::start(Options { users, apiserver_args, ..Options::default() }).unwrap();
        let cluster = Cluster::of(&plane);
        cluster.allow_supercargo("supercargo");
        let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/{READER}");
        eventually("the cluster has its roles", PATIENCE, || cluster.find(&role), String::new);
        let group = "rbac.authorization.k8s.io";
        cluster.create(&json!({
            "apiVersion": format!("{group}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": "supercargo", "namespace": "kube-system"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "supercargo"}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": READER},
        }));
        Self { plane, cluster: Mutex::new(cluster), authority, folder }
    }

    /// Creates a service account and returns its token.
    pub(super) fn account(&self, name: &str) -> String {
        let metadata = json!({"name": name, "namespace": "default"});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        self.cluster.lock().unwrap().create(&account);
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.plane.request(Method::Post, &path, Some(&request)).unwrap().json().unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Grants these rules to a service account.
    pub(super) fn allow(&self, account: &str, rules: &Value) {
        self.allow_user(&format!("system:serviceaccount:default:{account}"), rules);
    }

    /// Grants these rules to a user.
    pub(super) fn allow_user(&self, user: &str, rules: &Value) {
        self.cluster.lock().unwrap().allow(user, "endpoints", rules);
    }

    /// Options for loopback with a temporary certificate folder; the others are defaults.
    pub(super) fn options(&self) -> ServeOptions {
        ServeOptions::in_folder(self.folder.path())
    }

    /// Serves with this user's permissions.
    pub(super) fn serve(&self, user: &str, options: &ServeOptions) -> Served {
        self.try_serve(user, options).unwrap()
    }

    pub(super) fn try_serve(&self, user: &str, options: &ServeOptions) -> Result<Served, String> {
        Served::start(Some(&self.plane.kubeconfig(user).unwrap()), options)
    }

    /// Starts a scheduler with this user on a free port and waits until it is ready. Also returns
    /// the URL, and the file with the certificate.
    pub(super) fn process(&self, user: &str, more: &[&str]) -> (Supercargo, Https, [String; 2]) {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        let port = free_port();
        let port_flag = format!("--secure-port={port}");
        let folder_flag = format!("--cert-dir={}", folder.display());
        let args = [&[port_flag.as_str(), "--bind-address=127.0.0.1", &folder_flag], more].concat();
        let supercargo = Supercargo::start(&self.plane.kubeconfig(user).unwrap(), None, &args);
        let client = ready(port, &folder, || supercargo.log_tail());
        let certificate = folder.join("kube-scheduler.crt").display().to_string();
        (supercargo, client, [format!("https://127.0.0.1:{port}"), certificate])
    }

    pub(super) fn create(&self, object: &Value) {
        self.cluster.lock().unwrap().create(object);
    }
}

/// Waits until a process that creates its certificate in this folder is ready, and returns a
/// client.
pub(super) fn ready(port: u16, folder: &Path, state: impl Fn() -> String) -> Https {
    let certificate = || fs::read_to_string(folder.join("kube-scheduler.crt")).ok();
    let certificate = eventually("it has made a certificate", PATIENCE, certificate, &state);
    let client = Https::to(port, &certificate, None);
    let answer = || client.try_send(http::Method::GET, "/readyz", None, "");
    let is_ready = || answer().ok().filter(|answered| answered.status == 200);
    eventually("it is ready", PATIENCE, is_ready, || format!("{:?}\n{}", answer(), state()));
    client
}

/// Serves without a reachable API server. The certificate is read once, and then its folder is
/// removed.
pub(super) fn serve_nowhere() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let mut options = ServeOptions::in_folder(folder.path());
    options.authentication.skip_lookup = true;
    Served::start(None, &options).unwrap()
}

/// The options of a server.
#[derive(Clone, Default)]
pub(super) struct ServeOptions {
    pub(super) serving: ServingOptions,
    pub(super) authentication: AuthenticationOptions,
    pub(super) authorization: AuthorizationOptions,
}

impl ServeOptions {
    fn in_folder(folder: &Path) -> Self {
        let serving = ServingOptions {
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            cert_dir: Some(tempfile::tempdir_in(folder).unwrap().keep()),
            ..ServingOptions::default()
        };
        Self { serving, ..Self::default() }
    }
}

/// A server that ends with this value.
pub(super) struct Served {
    port: u16,
    certificate: String,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(kubeconfig: Option<&Path>, options: &ServeOptions) -> Result<Self, String> {
        let stop = CancellationToken::new();
        let (kubeconfig, options, stopped) = (kubeconfig.map(Path::to_owned), options.clone(), stop.clone());
        let (started, start) = mpsc::channel();
        let folder = options.serving.cert_dir.clone().unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let serve = runtime.block_on(async {
                let connection = match &kubeconfig {
                    Some(path) => Connection::open(None, Some(path)).await.unwrap(),
                    None => kube::Config::new("https://127.0.0.1:1/".parse().unwrap()).into(),
                };
                let setup = Setup {
                    serving: &options.serving,
                    authentication: &options.authentication,
                    authorization: &options.authorization,
                    connection: &connection,
                    hostname: "machine.example",
                };
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                Server::on(listener, setup).await
            });
            let server = match serve {
                Ok(server) => server,
                Err(error) => return started.send(Err(error.to_string())).unwrap(),
            };
            started.send(Ok(server.local_addr().port())).unwrap();
            runtime.block_on(server.serve(endpoints(), stopped));
        });
        let port = start.recv().unwrap()?;
        let certificate = fs::read_to_string(folder.join("kube-scheduler.crt")).unwrap();
        Ok(Self { port, certificate, stop, thread: Some(thread) })
    }

    /// A client of this server with this identity.
    pub(super) fn client(&self, identity: Option<&Identity>) -> Https {
        Https::to(self.port, &self.certificate, identity)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// The endpoints of a scheduler that has synced and does not lead.
fn endpoints() -> Endpoints {
    let text = |text: &'static str| -> TextPage { Arc::new(move || async move { text.to_owned() }.boxed()) };
    let mut checks = Checks::default();
    checks.readyz.add("shutdown", || Ok(()));
    checks.readyz.add("sched-handler-sync", || Ok(()));
    Endpoints {
        checks,
        metrics: text("a_metric 1\n"),
        resource_metrics: text(""),
        configz: Arc::new(|| json!({"kind": "KubeSchedulerConfiguration"})),
        flagz: Arc::new(String::new),
        debug: BTreeMap::from([("/debug/cache", Arc::new(|| async { json!({}) }.boxed()) as _)]),
        queries: BTreeMap::new(),
        log_level: None,
        emulated_version: "1.37".to_owned(),
        started: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// Signs client certificates.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a user of this name in this group.
    pub(super) fn client(&self, name: &str, group: Option<&str>) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}
