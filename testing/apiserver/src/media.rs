//! Content types of request bodies and responses.

use http::{HeaderMap, header};

use crate::proto::CONTENT_TYPE as PROTOBUF;
use crate::status::{Result, Status};

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// The requested form of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object itself.
    Whole,
    /// A `meta.k8s.io/v1` Table.
    Table,
    /// PartialObjectMetadata, or a list of it.
    Metadata,
    /// Aggregated discovery (`apidiscovery.k8s.io`) in this version.
    Aggregated(&'static str),
}

/// The encoding and form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) encoding: Encoding,
    pub(crate) form: Form,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
const ALL: [&str; 3] = [JSON, YAML, PROTOBUF];

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Yaml => YAML,
            Self::Protobuf => PROTOBUF,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        match name {
            JSON | "application/*" | "*/*" => Some(Self::Json),
            YAML => Some(Self::Yaml),
            PROTOBUF => Some(Self::Protobuf),
            _ => None,
        }
    }

    /// The encoding of a request's body. Without a content type it is JSON.
    pub(crate) fn of_body(headers: &HeaderMap) -> Result<Self> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let name = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match name {
            "" | JSON => Ok(Self::Json),
            YAML => Ok(Self::Yaml),
            PROTOBUF => Ok(Self::Protobuf),
            _ => Err(Status::unsupported_media_type(&ALL)),
        }
    }
}

impl Media {
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, form: Form::Whole };

    /// The first accepted content type that is available.
    ///
    /// `protobuf`: whether the response is available in protobuf, which custom resources are not.
    pub(crate) fn negotiate(headers: &HeaderMap, protobuf: bool) -> Result<Self> {
        let ranges: Vec<&str> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(',').map(str::trim))
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() {
            return Ok(Self::JSON);
        }
        let all = if protobuf { &ALL[..] } else { &ALL[..2] };
        ranges.iter().find_map(|range| Self::parse(range, protobuf)).ok_or_else(|| {
            // Upstream's router rejects unknown types, its handlers unknown forms.
            let name = |range: &str| range.split(';').next().unwrap_or_default().trim().to_owned();
            let is_known = ranges.iter().any(|range| Encoding::parse(&name(range)).is_some());
            if is_known { Status::form_not_acceptable(all) } else { Status::not_acceptable(all) }
        })
    }

    fn parse(range: &str, protobuf: bool) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let encoding = Encoding::parse(parts.next()?)?;
        if encoding == Encoding::Protobuf && !protobuf {
            return None;
        }
        let (mut group, mut version, mut wanted) = ("", "", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "g" => group = value,
                "v" => version = value,
                "as" => wanted = value,
                _ => {}
            }
        }
        let form = match (wanted, group, version) {
            ("", _, _) => Form::Whole,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                Form::Metadata
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Aggregated("v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Form::Aggregated("v2beta1"),
            _ => return None,
        };
        // Tables and metadata are always JSON; clients that request them in protobuf also accept
        // JSON.
        if encoding == Encoding::Protobuf && form != Form::Whole {
            return None;
        }
        Some(Self { encoding, form })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str, protobuf: bool) -> Option<(Encoding, Form)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Media::negotiate(&headers, protobuf).ok().map(|media| (media.encoding, media.form))
    }

    #[test]
    fn first_available_media_type_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiated(kubectl, true), Some((Encoding::Json, Form::Table)));
        let client_go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiated(client_go, true), Some((Encoding::Protobuf, Form::Whole)));
        assert_eq!(negotiated(client_go, false), Some((Encoding::Json, Form::Whole)));
        assert_eq!(
            negotiated("application/vnd.kubernetes.protobuf;stream=watch", true),
            Some((Encoding::Protobuf, Form::Whole))
        );
        assert_eq!(negotiated("*/*", true), Some((Encoding::Json, Form::Whole)));
        assert_eq!(negotiated("text/html", true), None);
        assert_eq!(negotiated("application/vnd.kubernetes.protobuf", false), None);
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(negotiated(discovery, true), Some((Encoding::Json, Form::Aggregated("v2"))));
    }
}
