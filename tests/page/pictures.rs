//! Pictures of all views, which are kept in docs/page: each view at three widths, light and dark.
//!
//! They show the record of [`scene`](super::scene), so they are always the same. With
//! `SUPERCARGO_PICTURES=1`, they are written again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::bed::Door;
use super::browser::{self, Browser};
use super::{scene, size};
use crate::support::eventually;

/// The variable that writes pictures instead of comparing them.
pub(crate) const REWRITE: &str = "SUPERCARGO_PICTURES";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/page");
/// A file of Debian's package fonts-dejavu-core.
const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
const SIZES: [(u32, u32); 3] = [(1440, 900), (1024, 768), (360, 740)];
const SCHEMES: [&str; 2] = ["light", "dark"];
/// Of the encoder; the texts stay sharp.
const QUALITY: u32 = 62;
/// The largest part of a picture that may differ. Versions of the browser draw edges differently.
const MOST_DIFFERENT: f64 = 0.001;
/// The most bytes of all pictures.
const MOST_BYTES: u64 = 3_000_000;
/// The most rows of pixels: a pod's timeline can be long.
const MOST_ROWS: u64 = 2000;
const PATIENCE: Duration = Duration::from_secs(40);

/// The name of a view, its fragment, and a part of its sentence.
const VIEWS: [(&str, &str, &str); 12] = [
    ("overview", "#/overview", "48 nodes hold"),
    ("pending", "#/pending", "pods of"),
    ("pod", "#/pod/data/backfill-00", "data/backfill-00 is pending"),
    ("placed", "#/pod/shop/checkout-07", "shop/checkout-07 is on node"),
    ("decisions", "#/decisions", "The last 200 decisions"),
    ("groups", "#/groups", "1 of 2 groups waits"),
    ("devices", "#/devices", "9 claims have devices; 1 claim waits"),
    ("node", "#/node/general-a1", "general-a1 (zone eu-1a, pool general) holds"),
    ("what-if", "#/what-if?fail=general-b2&copy=shop%2Fstorefront-50%3D12", "get a node"),
    ("compared", "#/what-if?drain=general-a2&beside=fail%3Dgeneral-b1&beside=fail%3Dspot-a1", "node"),
    ("capacity", "#/capacity?pod=shop%2Fcheckout-07&by=topology.kubernetes.io%2Fzone", "How much more fits"),
    ("health", "#/health", "The scheduler answers"),
];

/// Views of which there is also a picture of what is further down, and its width.
const WHOLE: [(&str, u32); 4] = [("pod", 1024), ("placed", 1024), ("capacity", 1024), ("pod", 360)];

/// What a view says while it has no answer.
const UNANSWERED: [&str; 3] = ["Simulating …", "Asking the scheduler …", "Waiting for the scheduler …"];

/// Moves through a record to this part of it.
const SCRUB: &str = "
    const bar = document.querySelector('.scrub input');
    bar.value = Number(bar.min) + 0.66 * (bar.max - bar.min);
    bar.dispatchEvent(new Event('input'));
    bar.dispatchEvent(new Event('change'));";

/// The share of pixels that differ visibly, and a picture that shows them.
const COMPARE: &str = r"
    const read = async (text) => {
        const bytes = Uint8Array.from(atob(text), (it) => it.charCodeAt(0));
        const image = await createImageBitmap(new Blob([bytes], { type: 'image/webp' }));
        const context = new OffscreenCanvas(image.width, image.height).getContext('2d', { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, image.width, image.height);
    };
    const compare = async (one, other) => {
        const [old, fresh] = await Promise.all([one, other].map(read));
        if (old.width !== fresh.width || old.height !== fresh.height) return { share: 1, shown: other };
        let different = 0;
        for (let at = 0; at < old.data.length; at += 4) {
            const most = Math.max(...[0, 1, 2].map((i) => Math.abs(old.data[at + i] - fresh.data[at + i])));
            const isSame = most <= 64;
            if (!isSame) different += 1;
            const grey = 224 + fresh.data[at + 1] / 8;
            fresh.data.set(isSame ? [grey, grey, grey] : [200, 0, 0], at);
        }
        const canvas = new OffscreenCanvas(old.width, old.height);
        canvas.getContext('2d').putImageData(fresh, 0, 0);
        const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer());
        const shown = btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ''));
        return { share: different / (old.width * old.height), shown };
    };";

/// The pictures of a test, by name.
struct Album {
    taken: Vec<(String, Vec<u8>)>,
}

impl Album {
    /// Takes a picture of a window that no longer changes.
    fn take(&mut self, browser: &Browser, name: &str) {
        let mut last = Vec::new();
        let still = || {
            let text = browser.text("main");
            let fresh = browser.webp(QUALITY);
            let is_still = fresh == last && !UNANSWERED.iter().any(|it| text.contains(it));
            last = fresh;
            is_still.then_some(())
        };
        eventually(&format!("{name} is still"), PATIENCE, still, || browser.text("main"));
        self.taken.push((name.to_owned(), last));
    }

    /// Takes a picture of what windows of these sizes do not show.
    fn take_whole(&mut self, browser: &Browser, name: &str, width: u32) {
        browser.look((width, 100), "light");
        let mut last = 0;
        let settled = || {
            let height = browser.run("return document.documentElement.scrollHeight").as_u64().unwrap();
            let height = height.min(MOST_ROWS);
            (std::mem::replace(&mut last, height) == height).then_some(height)
        };
        let height = eventually(&format!("{name} is complete"), PATIENCE, settled, String::new);
        browser.look((width, u32::try_from(height).unwrap()), "light");
        self.take(browser, name);
    }

    /// Writes the pictures, or panics if one looks different from the one that is kept.
    fn close(self, browser: &Browser) {
        let path = |name: &str| Path::new(FOLDER).join(format!("{name}.webp"));
        if std::env::var_os(REWRITE).is_some_and(|value| value == "1") {
            for (name, picture) in &self.taken {
                std::fs::write(path(name), picture).unwrap();
            }
            return;
        }
        let differences: Vec<String> = self
            .taken
            .iter()
            .filter_map(|(name, fresh)| {
                let kept = std::fs::read(path(name)).unwrap_or_default();
                let (share, shown) = difference(browser, &kept, fresh);
                if share <= MOST_DIFFERENT {
                    return None;
                }
                let [fresh, shown] = [("new.webp", &**fresh), ("difference.png", &*shown)]
                    .map(|(kind, bytes)| keep(name, kind, bytes));
                let percent = 100.0 * share;
                Some(format!("{name}: {percent:.2} % differ: {}, {}", fresh.display(), shown.display()))
            })
            .collect();
        assert!(
            differences.is_empty(),
            "if these pictures are right, write them with {REWRITE}=1:\n{}",
            differences.join("\n")
        );
    }
}

/// The share of pixels that differ, and a picture that shows which.
fn difference(browser: &Browser, kept: &[u8], fresh: &[u8]) -> (f64, Vec<u8>) {
    if kept == fresh {
        return (0.0, Vec::new());
    }
    if kept.is_empty() {
        return (1.0, Vec::new());
    }
    let [kept, fresh] = [kept, fresh].map(|bytes| STANDARD.encode(bytes));
    let found = browser.run(&format!("{COMPARE} return compare({}, {});", json!(kept), json!(fresh)));
    (found["share"].as_f64().unwrap(), STANDARD.decode(found["shown"].as_str().unwrap()).unwrap())
}

/// Writes a file for the person who reads the failure.
fn keep(name: &str, kind: &str, bytes: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join("supercargo-pictures");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}-{kind}"));
    std::fs::write(&file, bytes).unwrap();
    file
}

/// A browser that draws as on every other machine.
fn start() -> Option<Browser> {
    if !Path::new(FONT).exists() {
        browser::skip("no fonts: install the Debian package fonts-dejavu-core");
        return None;
    }
    Browser::start()
}

/// Each size and scheme, as the end of a name.
fn looks() -> impl Iterator<Item = ((u32, u32), &'static str, String)> {
    SIZES.into_iter().flat_map(|size| SCHEMES.map(|scheme| (size, scheme, format!("{}-{scheme}", size.0))))
}

#[test]
fn views_look_as_in_their_pictures() {
    let Some(browser) = start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    scene::record(&record);
    let page = Door::open(&["ui", "--from", &record.display().to_string(), scene::GATES]);
    browser.look(SIZES[0], "light");
    browser.hide_scrollbars();
    browser.open(&page.link);
    browser.wait_for("h1", VIEWS[0].2);
    browser.wait_for("#state", "replay");
    let mut album = Album { taken: Vec::new() };
    // The pictures of views are those of a running scheduler, which has no bar.
    browser.run("document.querySelector('.scrub').hidden = true");
    for (size, scheme, look) in looks() {
        browser.look(size, scheme);
        for (view, fragment, sentence) in VIEWS {
            browser.open(&format!("{}{fragment}", page.page()));
            browser.wait_for("h1", sentence);
            album.take(&browser, &format!("{view}-{look}"));
        }
    }
    for (view, width) in WHOLE {
        let (_, fragment, sentence) = VIEWS.into_iter().find(|(name, ..)| *name == view).unwrap();
        browser.open(&format!("{}{fragment}", page.page()));
        browser.wait_for("h1", sentence);
        let is_answered = || !UNANSWERED.iter().any(|it| browser.text("main").contains(it));
        eventually(view, PATIENCE, || is_answered().then_some(()), || browser.text("main"));
        album.take_whole(&browser, &format!("{view}-{width}-whole"), width);
    }
    browser.open(&format!("{}#/overview", page.page()));
    browser.run("document.querySelector('.scrub').hidden = false");
    let now = browser.text("h1");
    browser.run(SCRUB);
    let has_moved = || (browser.text("h1") != now).then_some(());
    eventually("the state of another time", PATIENCE, has_moved, || browser.text("main"));
    for (size, scheme, look) in looks() {
        browser.look(size, scheme);
        album.take(&browser, &format!("replay-{look}"));
    }
    browser.open("about:blank");
    album.close(&browser);
}

#[test]
fn a_large_cluster_looks_as_in_its_picture() {
    let Some(browser) = start() else { return };
    let mut album = Album { taken: Vec::new() };
    browser.hide_scrollbars();
    for scheme in SCHEMES {
        browser.look(SIZES[0], scheme);
        size::with_still_cluster(&browser, || album.take(&browser, &format!("large-1440-{scheme}")));
    }
    album.close(&browser);
}

/// Every picture is one of these tests', and together they are small.
#[test]
fn pictures_are_small_and_none_is_left_over() {
    let views = VIEWS.map(|(view, ..)| view);
    let names = views
        .into_iter()
        .chain(["replay"])
        .flat_map(|view| looks().map(move |(.., look)| format!("{view}-{look}")));
    let large = SCHEMES.map(|scheme| format!("large-1440-{scheme}"));
    let whole = WHOLE.map(|(view, width)| format!("{view}-{width}-whole"));
    let expected: BTreeSet<String> =
        names.chain(large).chain(whole).map(|name| format!("{name}.webp")).collect();
    let files = std::fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap());
    let mut found = BTreeSet::new();
    let mut bytes = 0;
    for file in files {
        bytes += file.metadata().unwrap().len();
        found.insert(file.file_name().into_string().unwrap());
    }
    assert_eq!(found, expected);
    assert!(bytes <= MOST_BYTES, "{bytes}");
}

/// A difference that a person sees is found, and one that nobody sees is none.
#[test]
fn pictures_that_differ_are_noticed() {
    let Some(browser) = Browser::start() else { return };
    browser.open("about:blank");
    browser.look((360, 740), "light");
    browser.run("document.body.textContent = '48 nodes hold 300 pods'");
    let first = browser.webp(QUALITY);
    let same = difference(&browser, &first, &browser.webp(QUALITY - 2)).0;
    assert!(same <= MOST_DIFFERENT, "{same}");
    browser.run("document.body.textContent = '48 nodes hold 301 pods; 9 pods wait for nodes'");
    let other = difference(&browser, &first, &browser.webp(QUALITY)).0;
    assert!(other > MOST_DIFFERENT, "{other}");
    browser.look((361, 740), "light");
    assert!(difference(&browser, &first, &browser.webp(QUALITY)).0 > 0.99);
}
