//! The flags of `supercargo run`: upstream's, by their names and with their defaults, and a few of our own.
//!
//! Each group of flags is a plain struct. Its `Default` is what a command line without any of them means, and the
//! command line itself is where those defaults stand.

mod authentication;
mod authorization;
mod serving;
mod value;

use clap::{Args, Command};

pub use authentication::{AuthenticationOptions, RequestHeaderOptions};
pub use authorization::AuthorizationOptions;
pub use serving::{ServingOptions, TlsVersion};
pub use value::FlagError;

/// These flags as a command line without any leaves them.
fn defaults<T: Args>() -> T {
    let matches = T::augment_args(Command::new("supercargo").no_binary_name(true)).get_matches_from([""; 0]);
    T::from_arg_matches(&matches).expect("every flag can be left out")
}
