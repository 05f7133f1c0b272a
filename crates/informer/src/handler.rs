//! Event handlers: what is told of every change, and ways to combine them.

use std::sync::Arc;

use crate::key::Deleted;

/// Receives the changes of one registration, in order, one at a time.
///
/// Handlers are synchronous and each has a task of its own, so a handler needs no locks and never holds up the
/// informer or another handler; what is slow belongs on a queue, and what blocks its thread keeps a worker of the
/// runtime from everything else. Consumers that await have [`EventStream`](crate::EventStream). Per object, the calls are `on_add`, then any
/// number of `on_update`, whose `old` is the `new` of the call before, then `on_delete`. The states seen are
/// some of the real ones, in order. An object deleted and created again within a gap of the watch arrives as
/// one update, so compare UIDs where identity matters. After a relist, and at resyncs, updates may come with
/// equal resource versions.
///
/// Objects are shared with the store and all other handlers, so they can be read but not changed; there is no
/// need for client-go's mutation detector:
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
/// Nor can what a store or a lister answers with:
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
    /// An object that this handler has not seen. The flag is set for what was there to begin with: the first
    /// list, or what the store held when the handler was added.
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool);

    /// A known object in a new state.
    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>);

    /// An object that is gone. The handler knows it, unless the server tells of the end of an object whose
    /// beginning was lost, and the informer's [`QueueKind`](crate::QueueKind) is one that passes that on.
    fn on_delete(&mut self, deleted: &Deleted<T>);
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

/// A handler made of closures, each of which may be left out.
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

    /// Sets what happens on add.
    pub fn with_add(mut self, f: impl FnMut(&Arc<T>, bool) + Send + 'static) -> Self {
        self.add = Some(Box::new(f));
        self
    }

    /// Sets what happens on update.
    pub fn with_update(mut self, f: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        self.update = Some(Box::new(f));
        self
    }

    /// Sets what happens on delete.
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

/// Shows `handler` only the objects that pass `filter`, as if there were no others.
///
/// An object that begins to pass is added (never as part of an initial list), and one that ceases to pass is
/// deleted, with the state in which it last passed. A deletion is judged by the state that comes with it, and a
/// tombstone without one does not pass. Same as client-go's `FilteringResourceEventHandler`.
pub struct Filtering<F, H> {
    /// Whether the handler should know of an object.
    pub filter: F,
    /// The handler inside.
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

/// Several handlers behind one registration: each change goes to all of them, in order, before the next.
///
/// Two registrations have no order between them; the members of a `FanOut` do. To the informer they are one
/// handler: if one panics and may [skip](crate::PanicPolicy::SkipAfter), those after it never hear of that change.
pub struct FanOut<T>(Vec<Box<dyn EventHandler<T>>>);

impl<T> FanOut<T> {
    /// A fan-out to nobody yet.
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

    /// Writes what it is told, with its name in front.
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
    fn filtering_turns_updates_into_what_the_handler_should_see() {
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
    fn a_tombstone_whose_object_does_not_pass_is_not_shown() {
        let log = Log::default();
        let mut filtering = Filtering { filter: |object: &i32| *object > 0, handler: logger("", &log) };
        filtering.on_delete(&tombstone(Some(-1)));
        assert!(log.lock().is_empty());
    }

    #[test]
    fn a_fan_out_serves_its_handlers_in_order() {
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
