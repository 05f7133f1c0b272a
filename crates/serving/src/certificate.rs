//! Serving certificates.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, SanType};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{DnsName, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::error::ServeError;
use super::tls::provider;
use supercargo_client::key_pair::KeyPair;
use supercargo_config::flags::ServingOptions;

/// The file name in `--cert-dir`, as upstream's, so that kube-scheduler's files can be reused.
const PAIR_NAME: &str = "kube-scheduler";

/// A certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
    /// Generates a self-signed certificate.
    fn generate(hostname: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        // Host names that are invalid in certificates are omitted.
        if DnsName::try_from(hostname).is_ok()
            && let Ok(name) = hostname.try_into()
        {
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.distinguished_name.push(DnType::CommonName, "supercargo");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = rcgen::KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
    }

    fn certified(&self, files: Option<&Files>) -> Result<Arc<CertifiedKey>, ServeError> {
        let name = |path: fn(&Files) -> &PathBuf| {
            files.map_or_else(|| "generated".to_owned(), |files| path(files).display().to_string())
        };
        let (certificate, key) = (name(|files| &files.certificate), name(|files| &files.key));
        let pair = KeyPair {
            certificate: &certificate,
            certificate_pem: &self.certificate,
            key: &key,
            key_pem: &self.key,
        };
        Ok(Arc::new(pair.parse(&provider())?))
    }
}

/// The files of a pair.
#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(options: &ServingOptions) -> Option<Self> {
        if let (Some(certificate), Some(key)) = (&options.tls_cert_file, &options.tls_private_key_file) {
            return Some(Self { certificate: certificate.clone(), key: key.clone() });
        }
        options.cert_dir.as_deref().map(Self::in_folder)
    }

    fn in_folder(folder: &Path) -> Self {
        let file = |end| folder.join(format!("{PAIR_NAME}.{end}"));
        Self { certificate: file("crt"), key: file("key") }
    }

    fn read(&self) -> Result<Pair, ServeError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| ServeError::Certificate {
                path: path.to_owned(),
                problem: error.to_string(),
            })
        };
        Ok(Pair { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    /// Generates a pair if both files are missing. If only one is missing, reading fails and names
    /// it.
    fn make_if_missing(&self, hostname: &str) -> Result<(), ServeError> {
        if self.certificate.exists() || self.key.exists() {
            return Ok(());
        }
        let pair = Pair::generate(hostname).map_err(ServeError::Generate)?;
        for (path, pem) in [(&self.key, &pair.key), (&self.certificate, &pair.certificate)] {
            write_private(path, pem).map_err(|error| ServeError::Certificate {
                path: path.clone(),
                problem: error.to_string(),
            })?;
        }
        Ok(())
    }
}

/// Writes a file that only its owner can read. It is renamed into place once it is complete, so that
/// a crash or a full disk leaves no half of it.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error says more.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A serving certificate that follows its files.
pub(super) struct Serving {
    files: Option<Files>,
    now: RwLock<(Pair, Arc<CertifiedKey>)>,
}

impl Serving {
    /// Reads the given files, or generates a certificate.
    pub(super) fn new(options: &ServingOptions, hostname: &str) -> Result<Self, ServeError> {
        let files = Files::of(options);
        let pair = match &files {
            Some(files) => {
                if options.tls_cert_file.is_none() {
                    files.make_if_missing(hostname)?;
                }
                files.read()?
            }
            None => Pair::generate(hostname).map_err(ServeError::Generate)?,
        };
        let certified = pair.certified(files.as_ref())?;
        Ok(Self { files, now: RwLock::new((pair, certified)) })
    }

    /// Reads these files.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, ServeError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let pair = files.read()?;
        let certified = pair.certified(Some(&files))?;
        Ok(Self { files: Some(files), now: RwLock::new((pair, certified)) })
    }

    /// The current certificate.
    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.now.read().1)
    }

    /// Whether the certificate is valid for this host name.
    pub(super) fn is_made_out_to(&self, name: &str) -> bool {
        let current = self.current();
        let certificate = current.cert.first().and_then(|first| ParsedCertificate::try_from(first).ok());
        let name = ServerName::try_from(name).ok();
        certificate
            .zip(name)
            .is_some_and(|(certificate, name)| verify_server_name(&certificate, &name).is_ok())
    }

    /// Reloads the files if they have changed. An invalid pair leaves the current one in use.
    pub(super) fn reload(&self) -> Result<(), ServeError> {
        let Some(files) = &self.files else { return Ok(()) };
        let pair = files.read()?;
        if self.now.read().0 == pair {
            return Ok(());
        }
        let certified = pair.certified(Some(files))?;
        *self.now.write() = (pair, certified);
        tracing::info!(certificate = %files.certificate.display(), "reloaded serving certificate");
        Ok(())
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the key.
        f.debug_struct("Serving").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tokio_rustls::rustls::pki_types::CertificateDer;

    use super::*;

    fn served(serving: &Serving) -> CertificateDer<'static> {
        serving.now.read().1.cert[0].clone()
    }

    fn options(folder: &Path) -> ServingOptions {
        ServingOptions { cert_dir: Some(folder.to_owned()), ..ServingOptions::default() }
    }

    #[test]
    fn each_process_generates_a_certificate_without_files() {
        let new = || Serving::new(&ServingOptions::default(), "not a name!").unwrap();
        let (one, two) = (new(), new());
        assert_ne!(served(&one), served(&two));
        one.reload().unwrap();
        let named = Serving::new(&ServingOptions::default(), "machine.example").unwrap();
        for name in [&b"localhost"[..], &b"machine.example"[..], &[127, 0, 0, 1]] {
            assert!(served(&named).windows(name.len()).any(|part| part == name), "{name:?}");
        }
        assert!(!format!("{one:?}").contains("PRIVATE"));
    }

    #[test]
    fn missing_files_in_cert_dir_are_generated_once() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("pki");
        let one = Serving::new(&options(&below), "host").unwrap();
        let two = Serving::new(&options(&below), "host").unwrap();
        assert_eq!(served(&one), served(&two));
        let mode = fs::metadata(below.join("kube-scheduler.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        fs::remove_file(below.join("kube-scheduler.key")).unwrap();
        let error = Serving::new(&options(&below), "host").unwrap_err().to_string();
        assert!(error.contains("kube-scheduler.key"), "{error}");
    }

    #[test]
    fn failed_write_leaves_no_part_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pki").join("kube-scheduler.key");
        fs::create_dir_all(path.join("in the way")).unwrap();
        write_private(&path, b"key").unwrap_err();
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [path]);
    }

    #[test]
    fn changed_files_are_reloaded_unless_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let serving = Serving::new(&options(folder.path()), "host").unwrap();
        let first = served(&serving);
        let files = Files::in_folder(folder.path());
        let pair = Pair::generate("host").unwrap();

        // In the middle of a renewal, key and certificate do not match.
        fs::write(&files.certificate, &pair.certificate).unwrap();
        assert!(serving.reload().is_err());
        assert_eq!(served(&serving), first);

        fs::write(&files.key, &pair.key).unwrap();
        serving.reload().unwrap();
        let second = served(&serving);
        assert_ne!(second, first);

        fs::write(&files.key, "-----BEGIN hunter2").unwrap();
        let error = serving.reload().unwrap_err().to_string();
        assert!(error.contains("kube-scheduler.key") && !error.contains("hunter2"), "{error}");
        assert_eq!(served(&serving), second);
    }
}
