//! A running control plane.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::apiserver::{self, Launcher};
use crate::assets::{Assets, Program};
use crate::certs::Certs;
use crate::component::{Component, Handle};
use crate::http::{Method, Response};
use crate::kubeconfig::{self, Account, User};
use crate::process::{self, Process, Workspace};
use crate::release::Release;
use crate::{etcd, ports};

/// How to start a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The release of kube-apiserver; the baseline by default.
    pub release: Release,
    /// Users besides `admin`, `system:kube-scheduler` and `system:kube-controller-manager`.
    pub users: Vec<User>,
    /// Whether kube-apiserver writes an audit log; off by default.
    pub audit: bool,
    /// Disabled admission plugins. By default `ServiceAccount`, because no service accounts exist,
    /// and `TaintNodesByCondition`, which would taint each new node as not ready.
    pub disabled_admission_plugins: Vec<String>,
    /// Feature gates of kube-apiserver, as `Name=true`.
    pub feature_gates: Vec<String>,
    /// Further flags of kube-apiserver. They override ours, except for the port.
    pub apiserver_args: Vec<String>,
    /// Further flags of etcd. They override ours.
    pub etcd_args: Vec<String>,
    /// Go's `GOGC` of both: the growth of the heap in percent until the next garbage collection.
    /// `None` leaves it to the environment. The default costs memory and saves a fifth of the CPU
    /// time.
    pub gogc: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            release: Release::default(),
            users: Vec::new(),
            audit: false,
            disabled_admission_plugins: ["ServiceAccount", "TaintNodesByCondition"]
                .map(String::from)
                .to_vec(),
            feature_gates: Vec::new(),
            apiserver_args: Vec::new(),
            etcd_args: Vec::new(),
            gogc: Some(400),
        }
    }
}

/// etcd and kube-apiserver with further programs. Dropping it ends all of them and removes their
/// files, and so does the end of this process.
#[derive(Debug)]
pub struct ControlPlane {
    pub(crate) assets: Assets,
    pub(crate) certs: Certs,
    accounts: Vec<Account>,
    audit: bool,
    url: String,
    launcher: Launcher,
    components: Mutex<Vec<Arc<Component>>>,
    apiserver: Mutex<Option<Process>>,
    etcd: Mutex<Process>,
    etcd_port: u16,
    // Last: it is removed when no program runs any more.
    workspace: Workspace,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver, builds them first if they are missing, and waits until they
    /// are ready.
    pub fn start(options: Options) -> Result<Self> {
        let assets = Assets::locate()?;
        let etcd = assets.path(Program::Etcd)?;
        let server = assets.path(Program::KubeApiserver(options.release))?;
        let workspace = Workspace::create()?;
        let dir = workspace.path();
        let accounts: Vec<Account> =
            User::defaults().into_iter().chain(options.users.iter().cloned()).map(Account::new).collect();
        kubeconfig::write_tokens(&dir.join("tokens.csv"), &accounts)?;
        let certs = Certs::create(dir)?;
        let (etcd, etcd_port) = etcd::start(&etcd, &workspace, &options.etcd_args, options.gogc)?;
        let args = apiserver::args(dir, etcd_port, &certs, &options)?;
        let (launcher, apiserver, url) = ports::retry_while_taken(|| {
            let port = ports::free()?;
            let token = accounts[0].token.clone();
            let launcher =
                Launcher::new(server.clone(), args.clone(), options.gogc, port, &certs.ca_pem, token)?;
            let apiserver = launcher.start(&workspace)?;
            Ok((launcher, apiserver, format!("https://127.0.0.1:{port}")))
        })?;
        let plane = Self {
            assets,
            certs,
            accounts,
            audit: options.audit,
            url,
            launcher,
            components: Mutex::default(),
            apiserver: Mutex::new(Some(apiserver)),
            etcd: Mutex::new(etcd),
            etcd_port,
            workspace,
        };
        plane.write_kubeconfigs()?;
        Ok(plane)
    }

    /// The API server's URL, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The authority of the API server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.certs.ca_pem
    }

    /// The bearer token of a user.
    pub fn token(&self, user: &str) -> Result<&str> {
        let account = self.accounts.iter().find(|account| account.user.name == user);
        let account = account.with_context(|| format!("{user} is no user: add it to Options::users"))?;
        Ok(&account.token)
    }

    /// The kubeconfig file of a user. `admin` has all permissions.
    pub fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        self.token(user)?;
        let file = user.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        Ok(self.dir().join(format!("{file}.kubeconfig")))
    }

    /// Sends one request as `admin`.
    pub fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response> {
        self.request_as("admin", method, path, body)
    }

    /// Sends one request as any user.
    pub fn request_as(
        &self,
        user: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response> {
        self.launcher.client().send(method, path, Some(self.token(user)?), body)
    }

    /// Reads the events of a watch as `admin`, up to the one that is the end.
    pub fn watch(&self, path: &str, is_end: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        self.launcher.client().watch(path, Some(self.token("admin")?), is_end)
    }

    /// Ends kube-apiserver gracefully; etcd keeps its data. It waits for open connections, so with
    /// watches this takes the 5 s until SIGKILL. A stopped kube-apiserver is left alone.
    pub fn stop_apiserver(&self) {
        if let Some(mut process) = self.apiserver().take() {
            self.launcher.client().hang_up();
            process.stop();
        }
    }

    /// Kills kube-apiserver, like a crash.
    pub fn kill_apiserver(&self) {
        // Dropping a process kills it.
        drop(self.apiserver().take());
    }

    /// Starts kube-apiserver again on the same port and data, and waits until it is ready. A
    /// running kube-apiserver is left alone.
    pub fn start_apiserver(&self) -> Result<()> {
        let mut apiserver = self.apiserver();
        let runs = match apiserver.as_mut() {
            Some(process) => process.exited()?.is_none(),
            None => false,
        };
        if !runs {
            *apiserver = Some(ports::retry_while_taken(|| self.launcher.start(&self.workspace))?);
        }
        Ok(())
    }

    /// Compacts etcd to its newest revision, which is returned. Watches from older revisions fail
    /// in etcd, but kube-apiserver's watch cache may still serve them.
    pub fn compact_etcd(&self) -> Result<u64> {
        etcd::compact(self.etcd_port)
    }

    /// The audit events so far. The server logs an event just after its response, so tests must
    /// poll.
    pub fn audit_log(&self) -> Result<Vec<Value>> {
        ensure!(self.audit, "there is no audit log: set Options::audit");
        let log = process::read_log(&self.audit_log_path());
        // A last line without a newline is still being written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(|line| serde_json::from_str(line).context("read an audit event")).collect()
    }

    /// The path of the audit log.
    pub fn audit_log_path(&self) -> PathBuf {
        apiserver::audit_log(self.dir())
    }

    /// The log of a program so far: `etcd`, `kube-apiserver` or the name of a [`Handle`].
    pub fn log_of(&self, name: &str) -> String {
        process::read_log(&self.log_path(name))
    }

    /// The working folder: logs, keys and data.
    pub fn dir(&self) -> &Path {
        self.workspace.path()
    }

    /// Starts a program beside the API server. `args` gets its unique name.
    pub(crate) fn start_component(
        &self,
        program: Program,
        args: impl FnOnce(&str) -> Result<Vec<String>>,
    ) -> Result<Handle> {
        let path = self.assets.path(program)?;
        let mut components = self.components.lock().unwrap_or_else(PoisonError::into_inner);
        let before = components.iter().filter(|component| component.program == program).count();
        let name = match before {
            0 => program.name().to_owned(),
            _ => format!("{}-{}", program.name(), before + 1),
        };
        let log = self.log_path(&name);
        let process = Process::start(&path, args(&name)?, None, &log, &self.workspace)?;
        let component = Component::new(program, name, log, process);
        components.push(component.clone());
        drop(components);
        component.settle()?;
        Ok(Handle(component))
    }

    fn write_kubeconfigs(&self) -> Result<()> {
        self.accounts.iter().try_for_each(|account| {
            let path = self.kubeconfig(&account.user.name)?;
            kubeconfig::write(&path, &self.url, &self.certs.ca_pem, account)
        })
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.log"))
    }

    fn apiserver(&self) -> MutexGuard<'_, Option<Process>> {
        self.apiserver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The data is not needed any more, so no graceful end.
        for component in self.components.get_mut().unwrap_or_else(PoisonError::into_inner) {
            component.process().kill();
        }
        self.kill_apiserver();
        self.etcd.get_mut().unwrap_or_else(PoisonError::into_inner).kill();
    }
}
