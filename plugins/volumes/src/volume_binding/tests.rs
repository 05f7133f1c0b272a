//! The plugin as a scheduler drives it.

mod binding;
mod filtering;
mod hints;
mod plain_rules;
mod property;
mod scoring;
mod world;
