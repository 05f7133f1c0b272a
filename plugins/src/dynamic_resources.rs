//! Dynamic resource allocation: the arguments of upstream's plugin DynamicResources.
//!
//! The plugin itself is not there yet, so profiles cannot configure it.

pub mod args;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";
