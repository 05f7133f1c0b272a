//! Faults on request.
