//! Plugin arguments, with the place of what is wrong in them.

use serde::de::DeserializeOwned;
use serde_json::Value;
use supercargo_framework::registry::ArgsError;

/// Decodes arguments. The error names the field, and the configuration file's line and column are found from that.
pub(crate) fn decode<T: DeserializeOwned>(args: &Value) -> Result<T, ArgsError> {
    serde_path_to_error::deserialize(args)
        .map_err(|error| ArgsError::new(error.path().to_string(), error.into_inner().to_string()))
}
