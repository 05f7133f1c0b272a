//! The real history of each object, and the check of a handler's account against it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::recording_handler::{HandlerCall, TimedCall};

/// The state of an object at some version of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live {
        /// Whether filtered handlers receive the object.
        passes: bool,
    },
    /// Exists, but cannot be decoded.
    Unreadable,
    Gone,
}

/// All states of all objects, by version.
#[derive(Default)]
pub(super) struct Model {
    histories: BTreeMap<String, Vec<(u64, State)>>,
}

/// Versions by key, of objects that exist or are known.
pub(super) type Content = BTreeMap<String, u64>;

/// The initial objects that a handler must receive.
#[derive(Clone, Debug)]
pub(super) enum Initial {
    /// Exactly these: the store's content when the handler was added.
    Store(Content),
    /// The first list.
    FirstList,
}

/// The notifications of a handler, with everything that constrains them.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) calls: Vec<TimedCall>,
    pub(super) filtered: bool,
    pub(super) initial: Initial,
    /// Whether the queue groups changes by object, so that changes of one object can precede
    /// earlier ones of another.
    pub(super) gathered: bool,
    /// Whether deletions of objects that were never seen are delivered, as by the in-order queue.
    pub(super) strays: bool,
    /// The version of the first list, once there was one.
    pub(super) first_list: Option<u64>,
    /// Whether it is complete: the informer is up to date, and the handler idle.
    pub(super) complete: bool,
    /// The time after which updates without a new version are not delivered, because a resync
    /// started without the handler.
    pub(super) no_syncs_after: Option<Instant>,
}

impl Model {
    pub(super) fn note(&mut self, key: &str, version: u64, state: State) {
        self.histories.entry(key.to_owned()).or_default().push((version, state));
    }

    pub(super) fn state(&self, key: &str) -> State {
        self.histories.get(key).and_then(|states| states.last()).map_or(State::Gone, |(_, state)| *state)
    }

    /// The decodable objects at `version`.
    fn content_at(&self, version: u64, filtered: bool) -> Content {
        let last = |states: &[(u64, State)]| states.iter().rev().find(|(at, _)| *at <= version).copied();
        let live = |(key, states): (&String, &Vec<_>)| {
            let (at, state) = last(states)?;
            is_shown(state, filtered).then(|| (key.clone(), at))
        };
        self.histories.iter().filter_map(live).collect()
    }

    /// Fails with a description of the first fault.
    pub(super) fn check(&self, account: &Account) -> Result<(), String> {
        let mut known = Content::new();
        // Per key, the first version that has not been delivered.
        let mut reached = Content::new();
        for TimedCall { at, call } in &account.calls {
            let result = match call {
                HandlerCall::Add { key, version, .. } => {
                    self.check_add(account, &mut known, &reached, key, *version)
                }
                HandlerCall::Update { key, old, new } if old == new => {
                    check_known(&known, key, *old).and_then(|()| check_sync(account, *at))
                }
                HandlerCall::Update { key, old, new } => check_known(&known, key, *old).and_then(|()| {
                    known.insert(key.clone(), *new);
                    self.check_state(account, &reached, key, *new)
                }),
                HandlerCall::Delete { key, version, tombstone } => {
                    self.check_delete(account, &mut known, &mut reached, key, *version, *tombstone)
                }
            };
            result.map_err(|fault| format!("{fault}: {call:?}"))?;
            if let Some(version) = known.get(call.key()) {
                reached.insert(call.key().to_owned(), *version + 1);
            }
            // A resync delivers the last state again.
            if let HandlerCall::Update { key, old, new } = call
                && old == new
            {
                reached.insert(key.clone(), *new + 1);
            }
        }
        self.check_initial(account)?;
        let real = self.content_at(u64::MAX, account.filtered);
        if account.complete && known != real {
            return Err(format!("ends with {known:?} instead of {real:?}"));
        }
        Ok(())
    }

    fn check_add(
        &self,
        account: &Account,
        known: &mut Content,
        reached: &Content,
        key: &str,
        version: u64,
    ) -> Result<(), String> {
        if known.insert(key.to_owned(), version).is_some() {
            return Err("added twice".to_owned());
        }
        self.check_state(account, reached, key, version)
    }

    /// Checks that the object had this state, and not before the last delivered one.
    fn check_state(
        &self,
        account: &Account,
        reached: &Content,
        key: &str,
        version: u64,
    ) -> Result<(), String> {
        if version < reached.get(key).copied().unwrap_or(0) {
            return Err("older than an earlier state".to_owned());
        }
        let real = self.find(key, version).is_some_and(|state| is_shown(state, account.filtered));
        if real { Ok(()) } else { Err("the object never had this state".to_owned()) }
    }

    fn check_delete(
        &self,
        account: &Account,
        known: &mut Content,
        reached: &mut Content,
        key: &str,
        version: Option<u64>,
        tombstone: bool,
    ) -> Result<(), String> {
        let end = match (known.remove(key), version) {
            (Some(last), version) => self.end_of_known(account, key, last, version, tombstone)?,
            (None, version) => {
                // With its own deletion, not delivered before.
                let first = reached.get(key).copied().unwrap_or(0);
                let real = match version {
                    Some(end) => (end >= first && self.find(key, end) == Some(State::Gone)).then_some(end),
                    None => self.next(key, first, |state| state == State::Gone),
                };
                real.filter(|_| account.strays).ok_or("deleted while unknown")?
            }
        };
        reached.insert(key.to_owned(), end + 1);
        Ok(())
    }

    /// The version at which a known object ended for this handler.
    fn end_of_known(
        &self,
        account: &Account,
        key: &str,
        last: u64,
        version: Option<u64>,
        tombstone: bool,
    ) -> Result<u64, String> {
        Ok(match version {
            // The deletion was observed, with the final state.
            Some(end) if !tombstone && end != last => {
                let real = end > last && self.find(key, end) == Some(State::Gone);
                real.then_some(end).ok_or("not the object's end")?
            }
            // A tombstone, or an object that stopped passing: the last known state.
            Some(version) if version == last && (tombstone || account.filtered) => {
                let gone = |state: State| match state {
                    State::Gone => true,
                    State::Live { passes } => !tombstone && !passes,
                    State::Unreadable => false,
                };
                self.next(key, last + 1, gone).ok_or("deleted though it lives on")?
            }
            _ => return Err(format!("deleted with another state than the last one, {last}")),
        })
    }

    /// Checks that initial objects, and only those, have the flag.
    fn check_initial(&self, account: &Account) -> Result<(), String> {
        let mut flagged = Content::new();
        let mut over = false;
        for TimedCall { call, .. } in &account.calls {
            match call {
                HandlerCall::Add { key, version, initial: true } if !over => {
                    // A group can contain a deletion and another addition.
                    flagged.entry(key.clone()).or_insert(*version);
                }
                HandlerCall::Add { initial: true, .. } => {
                    return Err(format!("initial flag after the initial objects: {call:?}"));
                }
                HandlerCall::Update { .. } | HandlerCall::Delete { .. } if account.gathered => {}
                // An update that makes the object pass.
                HandlerCall::Add { .. } if account.gathered && account.filtered => {}
                _ => over = true,
            }
        }
        // Handlers removed early may have calls only part of the initial objects.
        if !account.complete && !over {
            return Ok(());
        }
        let expected = match (&account.initial, account.first_list) {
            (Initial::Store(content), _) => content.clone(),
            (Initial::FirstList, Some(version)) => {
                if account.gathered {
                    // A listed object that has changed meanwhile keeps the flag, even if it passes
                    // only since then.
                    let listed = self.content_at(version, false);
                    flagged.retain(|key, calls| *calls <= version || !listed.contains_key(key));
                }
                self.content_at(version, account.filtered)
            }
            (Initial::FirstList, None) => Content::new(),
        };
        if flagged == expected {
            Ok(())
        } else {
            Err(format!("initial objects {flagged:?} instead of {expected:?}"))
        }
    }

    fn find(&self, key: &str, version: u64) -> Option<State> {
        self.histories.get(key)?.iter().find(|(at, _)| *at == version).map(|(_, state)| *state)
    }

    /// The first version from `version` on with such a state.
    fn next(&self, key: &str, version: u64, is_it: impl Fn(State) -> bool) -> Option<u64> {
        let mut later = self.histories.get(key)?.iter().filter(|(at, _)| *at >= version);
        later.find(|(_, state)| is_it(*state)).map(|(at, _)| *at)
    }
}

fn is_shown(state: State, filtered: bool) -> bool {
    matches!(state, State::Live { passes } if passes || !filtered)
}

fn check_known(known: &Content, key: &str, old: u64) -> Result<(), String> {
    match known.get(key) {
        Some(last) if *last == old => Ok(()),
        last => Err(format!("does not follow {last:?}")),
    }
}

fn check_sync(account: &Account, at: Instant) -> Result<(), String> {
    match account.no_syncs_after {
        Some(end) if at > end => Err("unchanged update for a handler without resyncs".to_owned()),
        _ => Ok(()),
    }
}
