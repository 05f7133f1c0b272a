//! Pseudonyms for the texts of JSON values, except those that say nothing about a cluster, and
//! device selectors with other texts.

mod selector;
mod texts;
mod words;

pub use self::texts::{Problem, Pseudonyms, Texts};
