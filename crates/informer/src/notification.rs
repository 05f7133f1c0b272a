//! A change as a value.

use std::sync::Arc;

use crate::handler::EventHandler;
use crate::key::Deleted;

/// One change, as an [`EventStream`](crate::EventStream) delivers it. Each variant is a method of
/// [`EventHandler`]. Cheap to clone; the objects are shared.
#[derive(Debug)]
pub enum Notification<T> {
    /// See [`EventHandler::on_add`].
    Add {
        /// The new object.
        object: Arc<T>,
        /// Whether the object belongs to the initial list.
        is_in_initial_list: bool,
    },
    /// See [`EventHandler::on_update`].
    Update {
        /// The previous state.
        old: Arc<T>,
        /// The new state; the same `Arc` in a resync.
        new: Arc<T>,
    },
    /// See [`EventHandler::on_delete`].
    Delete(Deleted<T>),
}

impl<T> Notification<T> {
    /// Calls the handler's method for this change.
    pub fn deliver_to(&self, handler: &mut (impl EventHandler<T> + ?Sized)) {
        match self {
            Self::Add { object, is_in_initial_list } => handler.on_add(object, *is_in_initial_list),
            Self::Update { old, new } => handler.on_update(old, new),
            Self::Delete(deleted) => handler.on_delete(deleted),
        }
    }

    /// The object's state after the change. For a deletion, the last known state, if any.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Add { object, .. } | Self::Update { new: object, .. } => Some(object),
            Self::Delete(deleted) => deleted.object(),
        }
    }
}

// A derived implementation would require `T: Clone`; cloning the `Arc`s does not.
impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: Arc::clone(object), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new } => Self::Update { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Delete(deleted) => Self::Delete(deleted.clone()),
        }
    }
}
