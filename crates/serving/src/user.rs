//! Users.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Tag, Tagged as _};

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The `extra` key with the fingerprint of the client certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
/// Kubernetes' object identifier for the UID of a user.
const UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

/// A Kubernetes user, read from a TokenReview and written into a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct User {
    /// The name.
    #[serde(rename(deserialize = "username", serialize = "user"))]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a certificate: common name, with organizations as groups. `None` without a
    /// common name.
    pub(super) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let subject = Subject::of(certificate)?;
        let name = subject.common_name().filter(|name| !name.is_empty())?.to_owned();
        let fingerprint = digest(&SHA256, certificate);
        let id =
            fingerprint.as_ref().iter().fold("X509SHA256=".to_owned(), |id, byte| format!("{id}{byte:02x}"));
        Some(Self {
            name,
            uid: subject.values(UID).next_back().unwrap_or_default().to_owned(),
            groups: subject.values(ORGANIZATION).map(str::to_owned).collect(),
            extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]),
        })
    }

    /// Adds the group of authenticated users.
    pub(super) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|of| of == group)
    }
}

/// The subject of a certificate, in order.
pub(super) struct Subject(Vec<(ObjectIdentifier, String)>);

impl Subject {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let names = certificate.tbs_certificate.subject.0.iter().flat_map(|names| names.0.iter());
        Some(Self(names.filter_map(|name| Some((name.oid, text(name)?))).collect()))
    }

    /// The common name; the last one if there are several, as in Go.
    pub(super) fn common_name(&self) -> Option<&str> {
        self.values(COMMON_NAME).next_back()
    }

    fn values(&self, oid: ObjectIdentifier) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().filter(move |(of, _)| *of == oid).map(|(_, text)| text.as_str())
    }
}

fn text(name: &AttributeTypeAndValue) -> Option<String> {
    let bytes = name.value.value();
    match name.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => String::from_utf8(bytes.to_vec()).ok(),
        // Read as Latin-1, as is common practice.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn certificates_name_a_user_and_groups() {
        let names = [(DnType::CommonName, "jane"), (DnType::OrganizationName, "ops")];
        let user = User::of_certificate(&certificate(&names)).unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jane", ["ops".to_owned()].as_slice()));
        let id = &user.extra[CREDENTIAL_ID][0];
        assert_eq!((&id[..11], id.len()), ("X509SHA256=", 11 + 64));
        let groups = user.authenticated().authenticated().groups;
        assert_eq!(groups, ["ops", "system:authenticated"]);
    }

    #[test]
    fn certificates_without_common_name_or_invalid_name_no_user() {
        assert_eq!(User::of_certificate(&certificate(&[(DnType::OrganizationName, "system:masters")])), None);
        assert_eq!(User::of_certificate(&certificate(&[(DnType::CommonName, "")])), None);
        assert_eq!(User::of_certificate(&CertificateDer::from(vec![1, 2, 3])), None);
    }

    #[test]
    fn users_round_trip_between_reviews() {
        let read: User = serde_json::from_str(
            r#"{"username": "sa", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}, "new": 1}"#,
        )
        .unwrap();
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(written, r#"{"user":"sa","uid":"1","groups":["g"],"extra":{"k":["v"]}}"#);
    }
}
