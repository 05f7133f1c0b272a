//! What a list of selectors says about devices.

use rustc_hash::FxHashMap;

use crate::inventory::Slice;
use crate::selectors::SelectorError;

/// The answers of one list of selectors.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    /// The answers about the devices of each slice.
    rows: FxHashMap<u64, Row>,
    verdicts: Vec<Verdict>,
    /// Their numbers by the hash of what selectors see. Of two with one hash, the later one counts.
    numbers: FxHashMap<u64, usize>,
    bytes: usize,
}

/// The answer about all devices in which selectors see the same.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// What selectors see.
    pub(crate) sight: Box<[u8]>,
    pub(crate) result: Result<bool, Box<SelectorError>>,
    /// The work that it took.
    pub(crate) work: u64,
    /// The last attempt that paid for it.
    pub(crate) paid_in: u64,
}

/// The answers about the devices of one slice.
#[derive(Clone, Debug)]
struct Row {
    answers: Box<[Answer]>,
    /// The last attempt that asked.
    attempt: u64,
}

/// The number of a verdict, 0 if it is unknown, and whether the attempt paid for the look: in one
/// word, because there are many.
#[derive(Clone, Copy, Debug, Default)]
struct Answer(u32);

const IS_PAID: u32 = 1;

impl Answers {
    pub(crate) fn new() -> Self {
        let (rows, verdicts, numbers) = (FxHashMap::default(), Vec::new(), FxHashMap::default());
        Self { rows, verdicts, numbers, bytes: size_of::<Self>() }
    }

    /// The approximate size in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the attempt looks at a device for the first time.
    pub(crate) fn begin(&mut self, slice: &Slice, device: usize, attempt: u64) -> bool {
        let bytes = &mut self.bytes;
        let row = self.rows.entry(slice.id).or_insert_with(|| {
            let answers: Box<[Answer]> = vec![Answer::default(); slice.spec().devices.len()].into();
            *bytes += size_of::<(u64, Row)>() + size_of_val(&*answers);
            Row { answers, attempt }
        });
        if row.attempt != attempt {
            row.attempt = attempt;
            row.answers.iter_mut().for_each(|answer| answer.0 &= !IS_PAID);
        }
        let answer = &mut row.answers[device].0;
        let is_first = *answer & IS_PAID == 0;
        *answer |= IS_PAID;
        is_first
    }

    /// The number of the verdict about a device.
    pub(crate) fn of_device(&self, slice: &Slice, device: usize) -> Option<usize> {
        let answer = self.rows.get(&slice.id)?.answers[device].0;
        (answer >> 1).checked_sub(1).map(|number| number as usize)
    }

    /// The number of the verdict about devices in which selectors see this, which has this hash.
    pub(crate) fn of_sight(&self, hash: u64, sight: &[u8]) -> Option<usize> {
        self.numbers.get(&hash).copied().filter(|number| *self.verdicts[*number].sight == *sight)
    }

    /// Adds a verdict. Returns its number.
    pub(crate) fn add(&mut self, hash: u64, verdict: Verdict) -> usize {
        let number = self.verdicts.len();
        let of_error = verdict.result.as_ref().err().map_or(0, |error| error.bytes());
        self.bytes += verdict.sight.len() + size_of::<(u64, usize, Verdict)>() + of_error;
        self.verdicts.push(verdict);
        self.numbers.insert(hash, number);
        number
    }

    /// Notes the verdict about a device.
    pub(crate) fn set(&mut self, slice: &Slice, device: usize, number: usize) {
        if let Some(row) = self.rows.get_mut(&slice.id) {
            row.answers[device] = Answer((number as u32 + 1) << 1 | IS_PAID);
        }
    }

    /// A verdict by its number.
    pub(crate) fn verdict(&mut self, number: usize) -> &mut Verdict {
        &mut self.verdicts[number]
    }
}
