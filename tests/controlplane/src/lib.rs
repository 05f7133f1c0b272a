//! supercargo-controlplane
