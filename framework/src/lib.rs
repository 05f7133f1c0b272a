//! supercargo-framework
