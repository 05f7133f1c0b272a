//! The control plane's certificate authority, serving certificate and service account key.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::KeyUsagePurpose;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// The certificate files of one control plane.
#[derive(Debug)]
pub(crate) struct Certs {
    /// The authority of the serving certificate.
    pub(crate) ca: PathBuf,
    /// The authority as PEM text.
    pub(crate) ca_pem: String,
    /// kube-apiserver's serving certificate.
    pub(crate) serving: PathBuf,
    /// Its key.
    pub(crate) serving_key: PathBuf,
    /// Signs service account tokens.
    pub(crate) service_account_key: PathBuf,
    /// Verifies service account tokens. (kube-apiserver derives no public key from a PKCS #8 file.)
    pub(crate) service_account_public_key: PathBuf,
}

impl Certs {
    /// Creates all files in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let ca_params = authority()?;
        let ca_pem = ca_params.self_signed(&ca_key)?.pem();
        let serving_key = KeyPair::generate()?;
        let serving = serving()?.signed_by(&serving_key, &Issuer::new(ca_params, ca_key))?;
        let service_account = KeyPair::generate()?;
        let write = |name: &str, pem: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::write(&path, pem).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            ca: write("ca.crt", &ca_pem)?,
            serving: write("apiserver.crt", &serving.pem())?,
            serving_key: write("apiserver.key", &serving_key.serialize_pem())?,
            service_account_key: write("sa.key", &service_account.serialize_pem())?,
            service_account_public_key: write("sa.pub", &service_account.public_key_pem())?,
            ca_pem,
        })
    }
}

fn authority() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "supercargo test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn serving() -> Result<CertificateParams> {
    let names = ["localhost", "kubernetes", "kubernetes.default.svc", "127.0.0.1"];
    let mut params = CertificateParams::new(names.map(String::from))?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}
