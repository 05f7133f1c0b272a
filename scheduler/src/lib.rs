//! supercargo-scheduler
