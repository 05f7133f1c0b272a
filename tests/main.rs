//! The one integration-test binary: one link for everything that needs more than one crate.

#![allow(clippy::disallowed_methods, reason = "tests measure the machine's time")]

mod apiserver;
mod config;
mod e2e;
mod informers;
mod kind;
mod mechanisms;
mod metrics;
mod oracle;
mod packaging;
mod page;
mod parity;
mod rbac;
mod support;

/// libtest starts tests in the order of their names. This one takes longest, so it starts first.
mod ahead {
    mod parity {
        #[test]
        fn scenarios_match_kube_scheduler() {
            crate::parity::scenarios_match_kube_scheduler();
        }
    }
}
