//! supercargo
