//! supercargo-plugins
