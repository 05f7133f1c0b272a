//! One control plane for all tests of a process, and the choice between skipping and failing.

use std::sync::OnceLock;

use crate::assets::Assets;
use crate::controlplane::{ControlPlane, Options};

/// Whether tests must fail instead of being skipped without a control plane:
/// `SUPERCARGO_REQUIRE_CONTROLPLANE=1`.
pub fn required() -> bool {
    std::env::var_os("SUPERCARGO_REQUIRE_CONTROLPLANE").is_some_and(|value| value == "1")
}

/// The programs for a test's own control plane, or `None` after printing to stderr why the test is
/// skipped.
///
/// # Panics
///
/// If they are not available and [`required`].
pub fn assets_or_skip() -> Option<Assets> {
    match Assets::available() {
        Ok(assets) => Some(assets),
        Err(why) if required() => panic!("{why}"),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// The control plane that all tests of this process share, with the audit log on. It starts on
/// first use. A static is never dropped, so it ends with the process.
///
/// # Panics
///
/// If it does not start.
pub fn shared() -> &'static ControlPlane {
    static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let start = || {
        let options = Options { audit: true, ..Options::default() };
        ControlPlane::start(options).map_err(|error| format!("{error:#}"))
    };
    match SHARED.get_or_init(start) {
        Ok(plane) => plane,
        Err(error) => panic!("the shared control plane does not start: {error}"),
    }
}

/// [`shared`], or `None` after printing to stderr why the test is skipped.
///
/// # Panics
///
/// If the programs are not available and [`required`], or if the control plane does not start.
pub fn shared_or_skip() -> Option<&'static ControlPlane> {
    assets_or_skip().map(|_| shared())
}
