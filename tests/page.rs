//! The page in a real browser: headless Chromium, by WebDriver. Debian's packages `chromium` and
//! `chromium-driver` are all that it needs.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]

mod answers;
mod bed;
mod browser;
mod checks;
mod clockwork;
mod doors;
mod hostile;
mod outage;
mod pictures;
mod replay;
mod scene;
mod size;
mod tour;

pub(crate) use bed::Door;
pub(crate) use pictures::REWRITE;
