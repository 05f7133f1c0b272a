//! State of plugins within one scheduling cycle.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// Data that a plugin passes from one extension point of a cycle to the next.
///
/// Implemented for every `Clone + Send + Sync + 'static` type. Dry runs (nominated pods,
/// preemption) work on a clone, which is made when the dry run first changes the data.
pub trait StateData: Any + Send + Sync {
    /// A copy for a dry run that changes the data.
    fn boxed_clone(&self) -> Box<dyn StateData>;
    /// For downcasting.
    fn as_any(&self) -> &dyn Any;
    /// For downcasting.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> StateData for T {
    fn boxed_clone(&self) -> Box<dyn StateData> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The state of one scheduling cycle: one slot per type.
///
/// A cycle has about ten entries, and a plugin looks one up for every node: scanning a short vector
/// is faster than a hash map. The type is the key, so use a private type per plugin and extension
/// point.
#[derive(Default)]
pub struct CycleState {
    slots: SmallVec<[Arc<dyn StateData>; 8]>,
}

impl CycleState {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores `data`, replacing any value of its type.
    pub fn write<T: StateData>(&mut self, data: T) {
        match self.position::<T>() {
            Some(i) => self.slots[i] = Arc::new(data),
            None => self.slots.push(Arc::new(data)),
        }
    }

    /// The value of type `T`.
    pub fn read<T: StateData>(&self) -> Option<&T> {
        self.slots.iter().find_map(|slot| (**slot).as_any().downcast_ref())
    }

    /// The value of type `T`, mutable.
    pub fn read_mut<T: StateData>(&mut self) -> Option<&mut T> {
        let i = self.position::<T>()?;
        let slot = &mut self.slots[i];
        if Arc::get_mut(slot).is_none() {
            *slot = (**slot).boxed_clone().into();
        }
        Arc::get_mut(slot)?.as_any_mut().downcast_mut()
    }

    /// Stores all values of another state, replacing values of their types.
    pub fn absorb(&mut self, other: &Self) {
        for slot in &other.slots {
            let of_type = (**slot).as_any().type_id();
            match self.slots.iter().position(|own| (**own).as_any().type_id() == of_type) {
                Some(i) => self.slots[i] = Arc::clone(slot),
                None => self.slots.push(Arc::clone(slot)),
            }
        }
    }

    fn position<T: StateData>(&self) -> Option<usize> {
        self.slots.iter().position(|slot| (**slot).as_any().is::<T>())
    }
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone() }
    }
}

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CycleState({} entries)", self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Ports(Vec<u16>);

    #[test]
    fn changing_a_clone_keeps_the_original() {
        let mut state = CycleState::new();
        state.write(Ports(vec![80]));
        let mut dry_run = state.clone();
        if let Some(ports) = dry_run.read_mut::<Ports>() {
            ports.0.push(81);
        }
        assert_eq!(state.read::<Ports>(), Some(&Ports(vec![80])));
        assert_eq!(dry_run.read::<Ports>(), Some(&Ports(vec![80, 81])));
    }

    #[test]
    fn writing_again_replaces_the_value() {
        let mut state = CycleState::new();
        state.write(Ports(vec![1]));
        state.write(Ports(vec![2]));
        assert_eq!(state.read::<Ports>(), Some(&Ports(vec![2])));
        assert_eq!(state.read::<u8>(), None);
    }
}
