//! What runs for an overload.

use crate::eval_failure::Steps;
use crate::value::{Outcome, Value};

/// The code of an overload.
pub(crate) type Code = fn(&[Value], &mut Steps) -> Outcome;
