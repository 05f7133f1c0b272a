//! supercargo
fn main() {}
