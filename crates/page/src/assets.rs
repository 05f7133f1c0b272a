//! The files of the page.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its name, without a folder.
    pub name: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// Its content.
    pub text: &'static str,
}

/// The page itself, which names the others.
pub const INDEX: Asset = Asset {
    name: "index.html",
    content_type: "text/html; charset=utf-8",
    text: include_str!("assets/index.html"),
};

/// All other files.
pub const ASSETS: &[Asset] = &[
    Asset {
        name: "page.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("assets/page.css"),
    },
    script("api.js", include_str!("assets/api.js")),
    script("asked.js", include_str!("assets/asked.js")),
    script("capacity.js", include_str!("assets/capacity.js")),
    script("decisions.js", include_str!("assets/decisions.js")),
    script("devices.js", include_str!("assets/devices.js")),
    script("dom.js", include_str!("assets/dom.js")),
    script("groups.js", include_str!("assets/groups.js")),
    script("health.js", include_str!("assets/health.js")),
    script("live.js", include_str!("assets/live.js")),
    script("main.js", include_str!("assets/main.js")),
    script("model.js", include_str!("assets/model.js")),
    script("node.js", include_str!("assets/node.js")),
    script("overview.js", include_str!("assets/overview.js")),
    script("pending.js", include_str!("assets/pending.js")),
    script("pod.js", include_str!("assets/pod.js")),
    script("replay.js", include_str!("assets/replay.js")),
    script("search.js", include_str!("assets/search.js")),
    script("tiles.js", include_str!("assets/tiles.js")),
    script("timeline.js", include_str!("assets/timeline.js")),
    script("what-if.js", include_str!("assets/what-if.js")),
    script("why-there.js", include_str!("assets/why-there.js")),
];

const fn script(name: &'static str, text: &'static str) -> Asset {
    Asset { name, content_type: "text/javascript; charset=utf-8", text }
}

/// Headers of the page, its files and its data. Nothing but the page's own files runs, nothing from
/// elsewhere is loaded, and no text becomes markup.
pub const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of all files, uncompressed. Compressed they are about a third: 70 KB.
    const MOST_BYTES: usize = 200 * 1024;

    #[test]
    fn files_are_few_and_small() {
        let bytes: usize = ASSETS.iter().chain([&INDEX]).map(|asset| asset.text.len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes}");
    }

    /// A name in quotes of a file: `./NAME` in a script, `assets/NAME` in the page.
    fn names<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
        let before = format!("\"{prefix}");
        let parts = text.split(&before).skip(1);
        parts.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name).collect()
    }

    #[test]
    fn files_name_only_files_of_the_page() {
        let scripts = ASSETS.iter().flat_map(|asset| names(asset.text, "./"));
        let used: Vec<&str> = names(INDEX.text, "assets/").into_iter().chain(scripts).collect();
        for name in &used {
            assert!(ASSETS.iter().any(|asset| asset.name == *name), "{name} is missing");
        }
        for asset in ASSETS {
            assert!(used.contains(&asset.name), "nothing uses {}", asset.name);
        }
    }

    /// Names and messages come from strangers.
    #[test]
    fn no_text_becomes_markup() {
        for asset in ASSETS.iter().chain([&INDEX]) {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "://",
            ] {
                let found = asset.text.replace("http://www.w3.org/2000/svg", "").contains(word);
                assert!(!found, "{} has {word}", asset.name);
            }
        }
    }
}
