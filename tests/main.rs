//! The one integration-test binary: one link, one control plane for all.
