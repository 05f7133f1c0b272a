//! From Permit to the API server's word.
