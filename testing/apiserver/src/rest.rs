//! The implementation of each verb on the store.

mod create;
mod delete;
mod garbage;
mod groups;
mod list;
mod update;
mod writer;

pub(crate) use delete::{DeleteOptions, Deleted};
pub(crate) use list::{
    List, ListOptions, inconsistent_token, invalid_options, invalid_write_options, parse_version, too_large,
};
pub(crate) use update::{Part, Updated};
pub(crate) use writer::{Cascade, State, Writer};
