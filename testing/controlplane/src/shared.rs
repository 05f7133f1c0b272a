//! One control plane for all tests of a process, and the choice between skipping and failing.

use std::sync::OnceLock;

use crate::assets::Assets;
use crate::controlplane::{ControlPlane, Options};

/// Whether a test must fail, not skip, where there is no control plane: `SUPERCARGO_REQUIRE_CONTROLPLANE=1`.
pub fn required() -> bool {
    std::env::var_os("SUPERCARGO_REQUIRE_CONTROLPLANE").is_some_and(|value| value == "1")
}

/// The programs for a control plane of a test's own, or `None` after saying on stderr why the test is skipped.
///
/// # Panics
///
/// When there are none and they are [`required`].
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

/// The control plane that all tests of this process share, with the audit log on; started on first use. Nobody
/// drops a static, so it is the end of the process that ends it.
///
/// # Panics
///
/// When it does not start.
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

/// [`shared`], or `None` after saying on stderr why the test is skipped.
///
/// # Panics
///
/// When there are no programs and they are [`required`], or the control plane does not start with them.
pub fn shared_or_skip() -> Option<&'static ControlPlane> {
    assets_or_skip().map(|_| shared())
}
