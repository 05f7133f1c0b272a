//! Constraints over the devices of a claim.

use std::sync::Arc;

use supercargo_framework::objects::{ConstraintRule, Device, DeviceAttribute};

/// A constraint, and what it covers.
#[derive(Debug)]
pub(crate) struct Constraint {
    is_distinct: bool,
    attribute: Arc<str>,
    /// The requests: names of requests, or `request/subrequest`. Empty is all.
    requests: Box<[Arc<str>]>,
}

/// A constraint in a search: the values of the devices so far.
#[derive(Debug, Default)]
pub(crate) struct Values<'a>(Vec<&'a DeviceAttribute>);

impl Constraint {
    /// `None` for rules that are unknown. The allocator `stable` does not know distinct attributes.
    pub(crate) fn new(rule: &ConstraintRule, requests: &[Arc<str>], is_stable: bool) -> Option<Self> {
        let (is_distinct, attribute) = match rule {
            ConstraintRule::Match(attribute) => (false, attribute),
            ConstraintRule::Distinct(attribute) if !is_stable => (true, attribute),
            ConstraintRule::Distinct(_) | ConstraintRule::Unknown => return None,
        };
        Some(Self { is_distinct, attribute: Arc::clone(attribute), requests: requests.into() })
    }

    /// Whether it covers a request, or a request's alternative with its full name.
    pub(crate) fn covers(&self, request: &str, full_name: &str) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| **name == *request || **name == *full_name)
    }

    /// Takes a device that it covers, unless the device violates it.
    pub(crate) fn add<'a>(&self, values: &mut Values<'a>, device: &'a Device, driver: &str) -> bool {
        let Some(value) = lookup(device, driver, &self.attribute) else { return false };
        let fits = if self.is_distinct {
            values.0.iter().all(|other| is_comparable(value) && value != *other)
        } else {
            values.0.first().is_none_or(|first| is_comparable(value) && value == *first)
        };
        if fits {
            values.0.push(value);
        }
        fits
    }
}

impl Values<'_> {
    /// Takes the last device back.
    pub(crate) fn undo(&mut self) {
        self.0.pop();
    }
}

/// Whether the value can be compared: lists and missing values cannot.
const fn is_comparable(value: &DeviceAttribute) -> bool {
    !matches!(value, DeviceAttribute::Unsupported)
}

/// An attribute by its full name; without its domain, it belongs to the driver's.
fn lookup<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a DeviceAttribute> {
    let get = |name: &str| {
        let place = device.attributes.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(&device.attributes[place].1)
    };
    get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == driver).then(|| get(id)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(attributes: &[(&str, DeviceAttribute)]) -> Device {
        let attributes = attributes.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect();
        Device { attributes, ..Device::default() }
    }

    /// Which of the devices a constraint takes, in order.
    fn taken(rule: &ConstraintRule, devices: &[Device]) -> Vec<bool> {
        let constraint = Constraint::new(rule, &[], false).unwrap();
        let mut values = Values::default();
        devices.iter().map(|device| constraint.add(&mut values, device, "d.example.com")).collect()
    }

    #[test]
    fn attribute_without_domain_belongs_to_the_driver() {
        let bare = device(&[("numa", DeviceAttribute::Int(1))]);
        let both =
            device(&[("d.example.com/numa", DeviceAttribute::Int(2)), ("numa", DeviceAttribute::Int(1))]);
        let of = |device, name| lookup(device, "d.example.com", name).cloned();
        assert_eq!(of(&bare, "d.example.com/numa"), Some(DeviceAttribute::Int(1)));
        assert_eq!(of(&both, "d.example.com/numa"), Some(DeviceAttribute::Int(2)));
        assert_eq!(of(&bare, "other.example.com/numa"), None);
    }

    #[test]
    fn matching_needs_the_same_type_and_value() {
        use DeviceAttribute::{Int, String, Unsupported, Version};
        let rule = ConstraintRule::Match("a".into());
        let values = [Int(1), String("1".into()), Int(1), Version("1.0.0".into()), Int(2), Unsupported];
        let devices: Vec<_> = values.into_iter().map(|value| device(&[("a", value)])).collect();
        assert_eq!(taken(&rule, &devices), [true, false, true, false, false, false]);
        assert_eq!(taken(&rule, &[device(&[])]), [false]);
    }

    #[test]
    fn distinct_values_are_remembered_until_undone() {
        let constraint = Constraint::new(&ConstraintRule::Distinct("a".into()), &[], false).unwrap();
        let devices: Vec<_> = (0..3).map(|i| device(&[("a", DeviceAttribute::Int(i))])).collect();
        let mut values = Values::default();
        assert!(
            constraint.add(&mut values, &devices[0], "d") && constraint.add(&mut values, &devices[1], "d")
        );
        assert!(!constraint.add(&mut values, &devices[0], "d"), "all devices count, not only the last");
        values.undo();
        assert!(constraint.add(&mut values, &devices[1], "d"), "the undone value is free again");
        assert!(Constraint::new(&ConstraintRule::Distinct("a".into()), &[], true).is_none());
    }

    #[test]
    fn constraint_covers_a_request_or_one_alternative() {
        let rule = ConstraintRule::Match("a".into());
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| Arc::from(*name)).collect();
            Constraint::new(&rule, &names, false).unwrap()
        };
        assert!(of(&[]).covers("r", "r"));
        assert!(of(&["r"]).covers("r", "r/s"));
        assert!(of(&["r/s"]).covers("r", "r/s") && !of(&["r/s"]).covers("r", "r/t"));
    }
}
