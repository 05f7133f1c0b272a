//! Metric families.

use std::sync::Arc;

use parking_lot::Mutex;

use super::spec::Spec;
use super::text::Text;
use super::value::Value;

/// A family: its values by labels.
pub struct Family<V> {
    spec: &'static Spec,
    /// Sorted by labels.
    children: Mutex<Vec<Child<V>>>,
}

type Child<V> = (Box<[Box<str>]>, Arc<V>);

impl<V: Value> Family<V> {
    /// An empty family. Without labels its single series exists from the start, as upstream.
    pub fn new(spec: &'static Spec) -> Self {
        let family = Self { spec, children: Mutex::default() };
        if spec.labels.is_empty() {
            family.with(&[]);
        }
        family
    }

    /// The series with these label values, in the declared order. Frequent users should keep it.
    pub fn with(&self, labels: &[&str]) -> Arc<V> {
        debug_assert_eq!(labels.len(), self.spec.labels.len(), "{}", self.spec.name);
        let mut children = self.children.lock();
        let place = children
            .binary_search_by(|(known, _)| known.iter().map(|value| &**value).cmp(labels.iter().copied()));
        match place {
            Ok(place) => Arc::clone(&children[place].1),
            Err(place) => {
                let value = Arc::new(V::new(&self.spec.kind));
                let labels = labels.iter().map(|value| Box::from(*value)).collect();
                children.insert(place, (labels, Arc::clone(&value)));
                value
            }
        }
    }

    /// Removes all series. Updates of series kept elsewhere are lost.
    pub fn clear(&self) {
        self.children.lock().clear();
    }

    /// Writes the family, unless it is empty.
    pub fn write(&self, text: &mut Text) {
        let children = self.children.lock();
        if !children.is_empty() {
            text.family(self.spec);
        }
        for (labels, value) in &*children {
            let labels: Vec<&str> = labels.iter().map(|value| &**value).collect();
            value.write(text, self.spec, &labels);
        }
    }
}
