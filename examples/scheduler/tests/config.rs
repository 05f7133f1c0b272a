//! The example's configuration enables its plugins.

use std::path::Path;

use example_scheduler::{gang, node_cost};
use supercargo::config::{Catalog, Config};

#[test]
fn the_configuration_enables_both_plugins() {
    let catalog = Catalog::in_tree()
        .with_plugin(node_cost::NAME, node_cost::from_args)
        .with_plugin(gang::NAME, gang::from_args);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.yaml");
    let config = Config::load(&path, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    let plugins = &config.profiles[0].plugins;
    assert!(plugins.filter.contains(&node_cost::NAME.to_owned()));
    assert!(plugins.score.contains(&(node_cost::NAME.to_owned(), 5)));
    assert!(plugins.permit.contains(&gang::NAME.to_owned()));
}
