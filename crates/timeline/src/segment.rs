//! Entries of the log, packed: the scheduler's thread drops a thousand of them with a few calls.

use std::collections::VecDeque;
use std::iter::once;
use std::mem::size_of;
use std::sync::Arc;

use supercargo_framework::Timestamp;
use supercargo_framework::pod::PodKey;

use crate::entry::{Entry, Happening};

/// The most entries of a segment. They are dropped together.
pub(crate) const MOST_ENTRIES: usize = 128;
/// A segment with this much text, in bytes, takes no more entries.
const MOST_TEXT: usize = 8 << 10;
/// The longest text that is kept, in bytes. An entry has four at most, so every [`Span`] fits.
pub(crate) const LONGEST_TEXT: usize = 1 << 10;

/// The place of a text in its segment.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u16,
    len: u16,
}

/// An entry.
#[derive(Clone, Debug)]
struct Packed {
    time: Timestamp,
    namespace: Span,
    name: Span,
    what: Happening<Span>,
}

/// Entries in their order, and their texts.
#[derive(Clone, Debug, Default)]
struct Segment {
    entries: Vec<Packed>,
    text: String,
    /// The last message.
    message: Span,
}

impl Segment {
    fn push<S: AsRef<str>>(&mut self, time: Timestamp, pod: (&str, &str), what: &Happening<S>) {
        let last = self.entries.last().map(|last| (last.namespace, last.name)).unwrap_or_default();
        let (namespace, name) = (self.span(last.0, pod.0), self.span(last.1, pod.1));
        let what = what.map(|text| self.span(self.message, text.as_ref()));
        if let Happening::Failed(message, _) | Happening::Woken(message) = what {
            self.message = message;
        }
        self.entries.push(Packed { time, namespace, name, what });
    }

    /// The place of a text: `like`, if it is the same.
    fn span(&mut self, like: Span, text: &str) -> Span {
        let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
        if self.at(like) == text {
            return like;
        }
        let start = self.text.len() as u16;
        self.text.push_str(text);
        Span { start, len: text.len() as u16 }
    }

    fn at(&self, Span { start, len }: Span) -> &str {
        &self.text[usize::from(start)..][..usize::from(len)]
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= MOST_ENTRIES || self.text.len() >= MOST_TEXT
    }

    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Packed>() + self.text.len()
    }

    fn notes(&self) -> impl DoubleEndedIterator<Item = Noted<'_>> {
        self.entries.iter().map(|packed| Noted { segment: self, packed })
    }

    /// A copy that is as large as its content.
    fn take(&mut self) -> Self {
        let copy = self.clone();
        self.entries.clear();
        self.text.clear();
        self.message = Span::default();
        copy
    }
}

/// An entry where it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a> {
    segment: &'a Segment,
    packed: &'a Packed,
}

impl Noted<'_> {
    /// Its time.
    pub fn time(&self) -> Timestamp {
        self.packed.time
    }

    pub(crate) fn is_of(&self, pod: &PodKey) -> bool {
        let Packed { namespace, name, .. } = self.packed;
        self.segment.at(*name) == &*pod.name && self.segment.at(*namespace) == &*pod.namespace
    }

    /// A copy.
    pub fn entry(&self) -> Entry {
        let Packed { time, namespace, name, what } = self.packed;
        let text = |span: &Span| self.segment.at(*span).into();
        Entry {
            time: *time,
            pod: PodKey { namespace: text(namespace), name: text(name) },
            what: what.map(text),
        }
    }
}

/// The entries of some namespaces. Its last segment is written to, and keeps its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    closed: VecDeque<Arc<Segment>>,
    open: Segment,
    /// The memory of all closed segments.
    pub(crate) bytes: usize,
    /// Whether entries have been dropped.
    is_cut: bool,
}

impl Part {
    /// Adds an entry. Returns the memory that it takes.
    pub(crate) fn push<S: AsRef<str>>(
        &mut self,
        time: Timestamp,
        pod: (&str, &str),
        what: &Happening<S>,
    ) -> usize {
        let before = self.open.bytes();
        self.open.push(time, pod, what);
        let after = self.open.bytes();
        if self.open.is_full() {
            self.bytes += after;
            self.closed.push_back(Arc::new(self.open.take()));
        }
        after - before
    }

    /// Drops the oldest closed segment, and returns its memory.
    pub(crate) fn drop_oldest(&mut self) -> usize {
        let bytes = self.closed.pop_front().map_or(0, |oldest| oldest.bytes());
        self.bytes -= bytes;
        self.is_cut = true;
        bytes
    }

    /// The time of the oldest entry, if older ones have been dropped.
    pub(crate) fn cut_at(&self) -> Option<Timestamp> {
        self.notes().next().map(|first| first.time()).filter(|_| self.is_cut)
    }

    pub(crate) fn notes(&self) -> impl DoubleEndedIterator<Item = Noted<'_>> {
        self.closed.iter().map(|segment| &**segment).chain(once(&self.open)).flat_map(Segment::notes)
    }
}
