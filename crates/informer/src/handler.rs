//! Event handlers, which receive changes, and ways to combine them.

use std::sync::Arc;

use crate::key::Deleted;

/// Receives the changes of one registration, in order, one at a time.
///
/// Handlers are synchronous, and each has its own task. A handler needs no locks, and never delays
/// the informer or another handler. Put slow work on a queue: blocking the thread blocks a worker
/// of the runtime, unless the handler has [its own](field@crate::HandlerOptions::own_thread).
/// Asynchronous consumers use [`EventStream`](crate::EventStream).
///
/// Per object, the calls are `on_add`, any number of `on_update`, then `on_delete`. The `old` of an
/// update is the `new` of the previous call. A handler sees some of the real states, in order. An
/// object that is deleted and recreated during a gap of the watch arrives as one update, so compare
/// UIDs if identity matters. After relists and during resyncs, updates can have equal resource
/// versions.
///
/// Objects are shared with the store and other handlers. They cannot be modified, so there is no
/// counterpart of client-go's mutation detector:
///
/// ```
/// kube_informers::HandlerFuncs::<String>::new().with_add(|object, _| assert!(object.is_empty()));
/// ```
/// ```compile_fail,E0596
/// kube_informers::HandlerFuncs::<String>::new().with_add(|object, _| object.push('x'));
/// ```
/// ```compile_fail,E0596
/// kube_informers::HandlerFuncs::<String>::new().with_update(|old, _| old.push('x'));
/// ```
/// ```compile_fail,E0596
/// kube_informers::HandlerFuncs::<String>::new().with_delete(|gone| gone.object().unwrap().push('x'));
/// ```
///
/// The same holds for objects from stores and listers:
///
/// ```
/// # fn test(store: kube_informers::Store<String>, lister: kube_informers::Lister<String>) {
/// store.get("a").unwrap().len();
/// lister.list()[0].len();
/// # }
/// ```
/// ```compile_fail,E0596
/// # fn test(store: kube_informers::Store<String>) {
/// store.get("a").unwrap().push('x');
/// # }
/// ```
/// ```compile_fail,E0596
/// # fn test(lister: kube_informers::Lister<String>) {
/// lister.list()[0].push('x');
/// # }
/// ```
pub trait EventHandler<T>: Send + 'static {
    /// An object that is new to this handler. `is_in_initial_list` is set for objects of the first
    /// list, or of the store when the handler was added. Does nothing by default.
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let _ = (object, is_in_initial_list);
    }

    /// A new state of a known object. Does nothing by default.
    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let _ = (old, new);
    }

    /// A deleted object. The handler knows it, unless its addition was lost and the informer's
    /// [`QueueKind`](crate::QueueKind) delivers such deletions. Does nothing by default.
    fn on_delete(&mut self, deleted: &Deleted<T>) {
        let _ = deleted;
    }
}

impl<T> EventHandler<T> for Box<dyn EventHandler<T>>
where
    T: 'static,
{
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        (**self).on_add(object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        (**self).on_update(old, new);
    }

    fn on_delete(&mut self, deleted: &Deleted<T>) {
        (**self).on_delete(deleted);
    }
}

type OnAdd<T> = Box<dyn FnMut(&Arc<T>, bool) + Send>;
type OnUpdate<T> = Box<dyn FnMut(&Arc<T>, &Arc<T>) + Send>;
type OnDelete<T> = Box<dyn FnMut(&Deleted<T>) + Send>;

/// A handler built from optional closures.
pub struct HandlerFuncs<T> {
    add: Option<OnAdd<T>>,
    update: Option<OnUpdate<T>>,
    delete: Option<OnDelete<T>>,
}

impl<T> HandlerFuncs<T> {
    /// A handler that does nothing.
    pub fn new() -> Self {
        Self { add: None, update: None, delete: None }
    }

    /// Sets the closure for `on_add`.
    pub fn with_add(mut self, f: impl FnMut(&Arc<T>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(f));
        self
    }

    /// Sets the closure for `on_update`.
    pub fn with_update(mut self, f: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        self.update = Some(Box::new(f));
        self
    }

    /// Sets the closure for `on_delete`.
    pub fn with_delete(mut self, f: impl FnMut(&Deleted<T>) + Send + 'static) -> Self {
        self.delete = Some(Box::new(f));
        self
    }
}

impl<T> Default for HandlerFuncs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: 'static> EventHandler<T> for HandlerFuncs<T> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        if let Some(add) = &mut self.add {
            add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        if let Some(update) = &mut self.update {
            update(old, new);
        }
    }

    fn on_delete(&mut self, deleted: &Deleted<T>) {
        if let Some(delete) = &mut self.delete {
            delete(deleted);
        }
    }
}

/// Passes on only the objects that pass `filter`, as if no others existed.
///
/// An object that starts to pass is added, never as part of an initial list. One that stops passing
/// is deleted, with the last state that passed. A deletion is filtered by its own state; a
/// tombstone without a state does not pass. Same as client-go's `FilteringResourceEventHandler`.
pub struct Filtering<F, H> {
    /// Selects the objects that the handler sees.
    pub filter: F,
    /// The wrapped handler.
    pub handler: H,
}

impl<T, F, H> EventHandler<T> for Filtering<F, H>
where
    F: FnMut(&T) -> bool + Send + 'static,
    H: EventHandler<T>,
{
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        match ((self.filter)(old), (self.filter)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(&Deleted::Known(Arc::clone(old))),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, deleted: &Deleted<T>) {
        if deleted.object().is_some_and(|object| (self.filter)(object)) {
            self.handler.on_delete(deleted);
        }
    }
}

/// Several handlers behind one registration: each change goes to all of them, in order, before the
/// next.
///
/// Separate registrations have no common order; the members of a `FanOut` do. They count as one
/// handler. If a member panics under [`SkipAfter`](crate::PanicPolicy::SkipAfter), the members
/// after it miss that change.
pub struct FanOut<T>(Vec<Box<dyn EventHandler<T>>>);

impl<T> FanOut<T> {
    /// A fan-out without handlers.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a handler.
    pub fn then(mut self, handler: impl EventHandler<T>) -> Self {
        self.0.push(Box::new(handler));
        self
    }
}

impl<T> Default for FanOut<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: 'static> EventHandler<T> for FanOut<T> {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        for handler in &mut self.0 {
            handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        for handler in &mut self.0 {
            handler.on_update(old, new);
        }
    }

    fn on_delete(&mut self, deleted: &Deleted<T>) {
        for handler in &mut self.0 {
            handler.on_delete(deleted);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::key::ObjectKey;

    type Log = Arc<Mutex<Vec<String>>>;

    /// A handler that logs its calls, prefixed with its name.
    fn logger(name: &'static str, log: &Log) -> HandlerFuncs<i32> {
        let (added, updated, deleted) = (Arc::clone(log), Arc::clone(log), Arc::clone(log));
        HandlerFuncs::new()
            .with_add(move |object, initial| added.lock().push(format!("{name}add {object} {initial}")))
            .with_update(move |old, new| updated.lock().push(format!("{name}update {old} {new}")))
            .with_delete(move |gone| {
                let tombstone = if gone.is_final_state_unknown() { " tombstone" } else { "" };
                deleted.lock().push(format!("{name}delete {:?}{tombstone}", gone.object()));
            })
    }

    fn tombstone(last: Option<i32>) -> Deleted<i32> {
        Deleted::FinalStateUnknown { key: ObjectKey::new(None, "k"), last: last.map(Arc::new) }
    }

    #[test]
    fn filtering_turns_updates_into_adds_and_deletes() {
        type Call = fn(&mut dyn EventHandler<i32>);
        let table: [(Call, &str); 11] = [
            (|h| h.on_add(&Arc::new(1), true), "add 1 true"),
            (|h| h.on_add(&Arc::new(1), false), "add 1 false"),
            (|h| h.on_add(&Arc::new(-1), true), ""),
            (|h| h.on_update(&Arc::new(1), &Arc::new(2)), "update 1 2"),
            (|h| h.on_update(&Arc::new(-1), &Arc::new(2)), "add 2 false"),
            (|h| h.on_update(&Arc::new(1), &Arc::new(-2)), "delete Some(1)"),
            (|h| h.on_update(&Arc::new(-1), &Arc::new(-2)), ""),
            (|h| h.on_delete(&Deleted::Known(Arc::new(1))), "delete Some(1)"),
            (|h| h.on_delete(&Deleted::Known(Arc::new(-1))), ""),
            (|h| h.on_delete(&tombstone(Some(1))), "delete Some(1) tombstone"),
            (|h| h.on_delete(&tombstone(None)), ""),
        ];
        for (row, (call, expected)) in table.into_iter().enumerate() {
            let log = Log::default();
            call(&mut Filtering { filter: |object: &i32| *object > 0, handler: logger("", &log) });
            assert_eq!(log.lock().join("; "), expected, "row {row}");
        }
    }

    #[test]
    fn filtering_drops_tombstones_that_do_not_pass() {
        let log = Log::default();
        let mut filtering = Filtering { filter: |object: &i32| *object > 0, handler: logger("", &log) };
        filtering.on_delete(&tombstone(Some(-1)));
        assert!(log.lock().is_empty());
    }

    #[test]
    fn a_fan_out_calls_its_handlers_in_order() {
        let log = Log::default();
        let even = Filtering { filter: |object: &i32| object % 2 == 0, handler: logger("even ", &log) };
        let odd = Filtering { filter: |object: &i32| object % 2 != 0, handler: logger("odd ", &log) };
        let mut both = FanOut::new().then(even).then(odd);
        both.on_add(&Arc::new(1), true);
        both.on_update(&Arc::new(1), &Arc::new(2));
        both.on_delete(&Deleted::Known(Arc::new(2)));
        assert_eq!(
            *log.lock(),
            ["odd add 1 true", "even add 2 false", "odd delete Some(1)", "even delete Some(2)"]
        );
    }

    #[test]
    fn missing_closures_do_nothing() {
        let mut handler = HandlerFuncs::<i32>::default();
        handler.on_add(&Arc::new(1), true);
        handler.on_update(&Arc::new(1), &Arc::new(2));
        handler.on_delete(&Deleted::Known(Arc::new(2)));
    }
}
