//! What runs for an overload.

use crate::fault::Steps;
use crate::value::{Outcome, Value};

/// The code of an overload.
pub(crate) type Code = fn(&[Value], &mut Steps) -> Outcome;
