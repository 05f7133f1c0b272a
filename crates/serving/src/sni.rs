//! Selects the serving certificate by the requested host name (SNI).

use std::iter;
use std::sync::Arc;

use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificate::Serving;
use super::error::ServeError;
use supercargo_config::flags::ServingOptions;

/// All serving certificates.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The default certificate, for other names or no name.
    usual: Serving,
    named: Vec<Named>,
}

#[derive(Debug)]
struct Named {
    /// If empty, the names in the certificate apply.
    names: Vec<String>,
    serving: Serving,
}

impl Certificates {
    /// Reads the given files. The default certificate is generated if necessary.
    pub(super) fn new(options: &ServingOptions, hostname: &str) -> Result<Self, ServeError> {
        let named = options.tls_sni_cert_key.iter().map(|pair| {
            let serving = Serving::read(&pair.certificate, &pair.key)?;
            Ok(Named { names: pair.names.clone(), serving })
        });
        Ok(Self { named: named.collect::<Result<_, ServeError>>()?, usual: Serving::new(options, hostname)? })
    }

    /// Reloads all files. An invalid file keeps its certificate and does not block the others.
    pub(super) fn reload(&self) -> Result<(), ServeError> {
        let all = iter::once(&self.usual).chain(self.named.iter().map(|named| &named.serving));
        let results: Vec<_> = all.map(Serving::reload).collect();
        results.into_iter().collect()
    }

    /// Configured names take precedence over names in certificates, and exact names over patterns.
    fn for_name(&self, name: &str) -> &Serving {
        let find = |serves: &dyn Fn(&Named) -> bool| self.named.iter().find(|named| serves(named));
        let found = find(&|named: &Named| named.names.iter().any(|given| given.eq_ignore_ascii_case(name)))
            .or_else(|| find(&|named: &Named| named.names.iter().any(|given| covers(given, name))))
            .or_else(|| find(&|named: &Named| named.names.is_empty() && named.serving.is_made_out_to(name)));
        found.map_or(&self.usual, |named| &named.serving)
    }
}

/// Whether a pattern such as `*.example.com` matches the name; the star is one label.
fn covers(pattern: &str, name: &str) -> bool {
    let (domain, rest) = (pattern.strip_prefix("*."), name.split_once('.'));
    domain.zip(rest).is_some_and(|(domain, (_, rest))| domain.eq_ignore_ascii_case(rest))
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let serving = hello.server_name().map_or(&self.usual, |name| self.for_name(name));
        Some(serving.current())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use supercargo_config::flags::NamedPair;

    /// A certificate for `localhost` and this name.
    fn pair(folder: &Path, made_out_to: &str, names: &[&str]) -> NamedPair {
        let folder = folder.join(made_out_to);
        let options = ServingOptions { cert_dir: Some(folder.clone()), ..ServingOptions::default() };
        Serving::new(&options, made_out_to).unwrap();
        NamedPair {
            certificate: folder.join("kube-scheduler.crt"),
            key: folder.join("kube-scheduler.key"),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn the_certificate_is_selected_by_requested_name() {
        let folder = tempfile::tempdir().unwrap();
        let options = ServingOptions {
            tls_sni_cert_key: vec![
                pair(folder.path(), "own.example.com", &[]),
                pair(folder.path(), "pattern.example", &["*.example.com"]),
                pair(folder.path(), "whole.example", &["whole.example.com", "localhost"]),
            ],
            ..ServingOptions::default()
        };
        let certificates = Certificates::new(&options, "host").unwrap();
        for (name, made_out_to) in [
            ("whole.example.com", Some("whole.example")),
            ("WHOLE.example.com", Some("whole.example")),
            ("other.example.com", Some("pattern.example")),
            ("a.b.example.com", None),
            ("localhost", Some("whole.example")),
            ("own.example.com", Some("pattern.example")),
            ("nobody.example", None),
        ] {
            let serving = certificates.for_name(name);
            match made_out_to {
                Some(expected) => assert!(serving.is_made_out_to(expected), "{name}"),
                None => assert!(serving.is_made_out_to("host"), "{name}"),
            }
        }
        let own = ServingOptions { tls_sni_cert_key: options.tls_sni_cert_key[..1].to_vec(), ..options };
        let certificates = Certificates::new(&own, "host").unwrap();
        assert!(certificates.for_name("own.example.com").is_made_out_to("own.example.com"));
        assert!(certificates.for_name("other.example.com").is_made_out_to("host"));
    }

    #[test]
    fn each_certificate_is_followed_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) =
            (pair(folder.path(), "first.example", &[]), pair(folder.path(), "second.example", &[]));
        let other = pair(folder.path(), "other.example", &[]);
        let options = ServingOptions {
            tls_sni_cert_key: vec![first.clone(), second.clone()],
            ..ServingOptions::default()
        };
        let certificates = Certificates::new(&options, "host").unwrap();
        std::fs::write(&first.key, "no key").unwrap();
        for (from, to) in [(&other.certificate, &second.certificate), (&other.key, &second.key)] {
            std::fs::copy(from, to).unwrap();
        }
        let error = certificates.reload().unwrap_err().to_string();
        assert!(error.contains("first.example"), "{error}");
        assert!(certificates.for_name("first.example").is_made_out_to("first.example"));
        assert!(certificates.for_name("other.example").is_made_out_to("other.example"));
    }
}
