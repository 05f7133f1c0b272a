//! What selectors see of a device.

use supercargo_cel::{Attribute, Device as CelDevice, EvalError, Reads};
use supercargo_framework::objects::{Device, DeviceAttribute, ResourceSlice};

/// A device, as a list of selectors sees it.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) reads: &'a Reads,
    pub(crate) spec: &'a ResourceSlice,
    pub(crate) device: &'a Device,
    /// Whether it hides that the device can be shared.
    pub(crate) hides_sharing: bool,
}

impl<'a> Sight<'a> {
    fn is_shared(&self) -> bool {
        self.device.allows_multiple_allocations && !self.hides_sharing
    }

    /// The attributes that selectors read, and those that may be invalid: then every selector
    /// fails.
    fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a DeviceAttribute)> {
        let Self { reads, spec, device, .. } = *self;
        let attributes = device.attributes.iter().map(|(name, value)| (&**name, value));
        attributes.filter(move |(name, value)| match value {
            DeviceAttribute::Version(_) | DeviceAttribute::Unsupported => true,
            DeviceAttribute::Int(_) | DeviceAttribute::Bool(_) | DeviceAttribute::String(_) => {
                reads.has_name(name, &spec.driver)
            }
        })
    }

    fn capacity(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.device.capacity.iter().map(|(name, capacity)| (&**name, &*capacity.value))
    }

    /// Writes all of it. Devices with the same bytes have the same answers.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.push(u8::from(self.is_shared()));
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        text(bytes, &self.spec.driver);
        for (name, value) in self.attributes() {
            text(bytes, name);
            match value {
                DeviceAttribute::Int(value) => {
                    bytes.push(0);
                    bytes.extend(value.to_le_bytes());
                }
                DeviceAttribute::Bool(value) => bytes.extend([1, u8::from(*value)]),
                DeviceAttribute::String(value) => {
                    bytes.push(2);
                    text(bytes, value);
                }
                DeviceAttribute::Version(value) => {
                    bytes.push(3);
                    text(bytes, value);
                }
                DeviceAttribute::Unsupported => bytes.push(4),
            }
        }
        // No attribute has such a long name.
        bytes.extend(u32::MAX.to_le_bytes());
        for (name, value) in self.capacity() {
            text(bytes, name);
            text(bytes, value);
        }
    }

    /// The device for evaluations.
    pub(crate) fn device(&self) -> Result<CelDevice, EvalError> {
        let attributes: Vec<_> = self.attributes().map(|(name, value)| (name, attribute(value))).collect();
        let attributes = attributes.iter().map(|(name, value)| (*name, value));
        CelDevice::reading(self.reads, &self.spec.driver, self.is_shared(), attributes, self.capacity())
    }
}

fn attribute(value: &DeviceAttribute) -> Attribute {
    match value {
        DeviceAttribute::Int(value) => Attribute::Int(*value),
        DeviceAttribute::Bool(value) => Attribute::Bool(*value),
        DeviceAttribute::String(text) => Attribute::String(text.clone()),
        DeviceAttribute::Version(text) => Attribute::Version(text.clone()),
        DeviceAttribute::Unsupported => Attribute::Unset,
    }
}
