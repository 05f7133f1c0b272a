//! What is served: plain and aggregated discovery, and the version.
