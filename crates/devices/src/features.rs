//! The feature gates of the allocator.

use supercargo_framework::{Feature as Gate, Features as Gates};

/// What is enabled. Each can be switched off on its own, as upstream's gates can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature gate")]
pub struct Features {
    /// DRAAdminAccess: requests for devices in use.
    pub admin_access: bool,
    /// DRADeviceBindingConditions and DRAResourceClaimDeviceStatus: devices that are ready after
    /// their allocation.
    pub binding_conditions: bool,
    /// DRAConsumableCapacity: devices that claims share.
    pub consumable_capacity: bool,
    /// DRADeviceTaints: taints of devices.
    pub device_taints: bool,
    /// DRAFractionalCapacityRange: ranges of capacity in thousandths.
    pub fractional_capacity_range: bool,
    /// DRAPartitionableDevices: counters, and devices that say where they can be used.
    pub partitionable_devices: bool,
    /// DRAPrioritizedList: alternatives in a request.
    pub prioritized_list: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Self = Self {
        admin_access: true,
        binding_conditions: true,
        consumable_capacity: true,
        device_taints: true,
        fractional_capacity_range: true,
        partitionable_devices: true,
        prioritized_list: true,
    };

    /// What these feature gates enable.
    pub fn of(gates: &Gates) -> Self {
        let enabled = |gate| gates.enabled(gate);
        Self {
            admin_access: enabled(Gate::DRAAdminAccess),
            binding_conditions: enabled(Gate::DRADeviceBindingConditions)
                && enabled(Gate::DRAResourceClaimDeviceStatus),
            consumable_capacity: enabled(Gate::DRAConsumableCapacity),
            device_taints: enabled(Gate::DRADeviceTaints),
            fractional_capacity_range: enabled(Gate::DRAFractionalCapacityRange),
            partitionable_devices: enabled(Gate::DRAPartitionableDevices),
            prioritized_list: enabled(Gate::DRAPrioritizedList),
        }
    }

    /// Whether upstream uses its allocator `stable`, which knows fewer features, and not
    /// `incubating`.
    pub const fn is_stable(self) -> bool {
        !self.binding_conditions && !self.consumable_capacity && !self.fractional_capacity_range
    }
}

/// The defaults of Kubernetes 1.37.
impl Default for Features {
    fn default() -> Self {
        Self { fractional_capacity_range: false, ..Self::ALL }
    }
}
