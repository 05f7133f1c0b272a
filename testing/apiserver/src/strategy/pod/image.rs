//! Parses image names to find their tag.

/// The default pull policy of an image: `Always` if its tag is `latest`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// The tag of an image; `latest` without tag and digest. `None` if the name is invalid or only has
/// a digest.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].find(':') {
        Some(colon) => (&name[..path_start + colon], Some(&name[path_start + colon + 1..])),
        None => (name, None),
    };
    if !is_repository(repository) || tag.is_some_and(|tag| !is_tag(tag)) {
        return None;
    }
    let is_identifier = repository.len() == 64 && repository.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (tag, digest) {
        (None, None) if is_identifier => None,
        (None, None) => Some("latest"),
        (tag, _) => tag,
    }
}

fn is_repository(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if host == "localhost" || host.contains(['.', ':']) || has_capitals(host) => {
            let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_known) {
                return false;
            }
            path
        }
        _ => name,
    };
    path.split('/').all(is_component)
}

fn has_capitals(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Lower-case letters and digits, with single separators between them.
fn is_component(component: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut separator = String::new();
    let mut has_letter = false;
    for byte in component.bytes() {
        if is_letter(byte) {
            let is_known = matches!(separator.as_str(), "" | "." | "_" | "__")
                || separator.bytes().all(|byte| byte == b'-');
            if !is_known || (!has_letter && !separator.is_empty()) {
                return false;
            }
            has_letter = true;
            separator.clear();
        } else if b"._-".contains(&byte) {
            separator.push(char::from(byte));
        } else {
            return false;
        }
    }
    has_letter && separator.is_empty()
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let length = match algorithm {
            "sha256" => hex.len() == 64,
            "sha384" => hex.len() == 96,
            "sha512" => hex.len() == 128,
            _ => hex.len() >= 32 && algorithm.starts_with(|first: char| first.is_ascii_alphabetic()),
        };
        is_hex && length
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_without_a_tag_is_latest() {
        for image in ["a", "a/b", "localhost:5000/a", "registry.example/a__b/c-d", "a:latest"] {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
    }

    #[test]
    fn other_images_are_pulled_if_not_present() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for image in ["a:1", "localhost:5000/a:v1", &digest, "", "A", "a b", "a:", "a/", "a@b", "_a", "a:é"]
        {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
