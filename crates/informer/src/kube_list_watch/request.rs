//! Query parameters and headers of requests.

use std::fmt::Write as _;

use super::Selectors;
use crate::kind::Accept;
use crate::list_watch::{ListOptions, VersionMatch};
use crate::protobuf::MEDIA_TYPE;

/// The `Accept` header, in order of preference. It ends with whole objects in JSON, which every
/// server supports. A watch in protobuf must ask for a stream.
pub(super) fn accept_header(accept: Accept, watch: bool) -> String {
    const JSON: &str = "application/json";
    let form = match (accept.metadata_only, watch) {
        (false, _) => "",
        (true, false) => ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        (true, true) => ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    };
    let mut header = String::new();
    if accept.protobuf {
        let stream = if watch { ";stream=watch" } else { "" };
        let _ = write!(header, "{MEDIA_TYPE}{form}{stream},");
    }
    if accept.metadata_only {
        let _ = write!(header, "{JSON}{form},");
    }
    header.push_str(JSON);
    header
}

/// Appends parameters in alphabetical order, as client-go sends them.
pub(super) fn append_query(uri: &mut String, selectors: &Selectors, options: &ListOptions, watch: bool) {
    let flag = |on: bool| (watch && on).then(|| "true".to_owned());
    let version_match = options.version_match.map(|version_match| match version_match {
        VersionMatch::NotOlderThan => "NotOlderThan".to_owned(),
        VersionMatch::Exact => "Exact".to_owned(),
    });
    let version = Some(options.resource_version.clone()).filter(|version| !version.is_empty());
    let parameters = [
        ("allowWatchBookmarks", flag(options.allow_bookmarks)),
        ("continue", options.continue_token.clone()),
        ("fieldSelector", selectors.fields.clone()),
        ("labelSelector", selectors.labels.clone()),
        ("limit", options.limit.map(|limit| limit.to_string())),
        ("resourceVersion", version),
        ("resourceVersionMatch", version_match),
        ("sendInitialEvents", flag(options.send_initial_events)),
        ("timeoutSeconds", options.timeout.map(|timeout| timeout.as_secs().to_string())),
        ("watch", flag(true)),
    ];
    let mut separator = '?';
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        uri.push(separator);
        uri.push_str(name);
        uri.push('=');
        percent_encode(uri, &value);
        separator = '&';
    }
}

fn percent_encode(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_lists_preferred_form_first_and_json_last() {
        let accept = |protobuf, metadata_only| Accept { protobuf, metadata_only };
        let list = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let one = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let protobuf = "application/vnd.kubernetes.protobuf";
        let json = "application/json";
        for (wanted, watch, expected) in [
            (accept(false, false), false, json.to_owned()),
            (accept(false, false), true, json.to_owned()),
            (accept(true, false), false, format!("{protobuf},{json}")),
            (accept(true, false), true, format!("{protobuf};stream=watch,{json}")),
            (accept(true, true), false, format!("{protobuf}{list},{json}{list},{json}")),
            (accept(true, true), true, format!("{protobuf}{one};stream=watch,{json}{one},{json}")),
            (accept(false, true), false, format!("{json}{list},{json}")),
        ] {
            assert_eq!(accept_header(wanted, watch), expected);
        }
    }
}
