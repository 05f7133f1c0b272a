//! Which devices the selectors of a request match.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_cel::{Attribute, CompileError, Device as CelDevice, EvalError, Program, Reads};
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::objects::DeviceAttribute;

use crate::budget::{Budget, steps_to_see};
use crate::inventory::{Slice, values_of};

/// The size of compiled selectors, in bytes, beyond which those that nothing holds are forgotten.
const MAX_PROGRAM_BYTES: usize = 32 << 20;
/// The size of answers about devices, in bytes, beyond which all are forgotten.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Compiled selectors, and what they said about devices.
///
/// An answer is kept as long as its ResourceSlice does not change, so that the same request asks
/// about new devices only. The answers belong to one [`Inventory`](crate::Inventory): a clone of it
/// needs a new object of this type, or a clone.
#[derive(Clone, Debug)]
pub struct Matches {
    programs: SeededMap<Arc<str>, Arc<Compiled>>,
    lists: SeededMap<Expressions, List>,
    last_list: u64,
    /// The size of programs and lists.
    program_bytes: usize,
    /// The last use of any list.
    clock: u64,
    /// Its value when [`forget_unused`](Self::forget_unused) was called last.
    swept_at: u64,
    /// The answers by list and slice.
    rows: FxHashMap<(u64, u64), Row>,
    answer_bytes: usize,
    attempt: u64,
    evaluations: u64,
}

/// A list of selectors, and when it was used last.
#[derive(Clone, Debug)]
struct List {
    selectors: Arc<Selectors>,
    used_at: u64,
}

/// The selectors of a class and of a request, in order, and whether devices show that they can be
/// shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Expressions {
    class: Box<[Arc<str>]>,
    request: Box<[Arc<str>]>,
    hides_sharing: bool,
}

type Compiled = Result<Program, CompileError>;

/// The compiled selectors of a class and of a request.
#[derive(Debug)]
pub(crate) struct Selectors {
    id: u64,
    class: Box<[Arc<Compiled>]>,
    request: Box<[Arc<Compiled>]>,
    hides_sharing: bool,
    /// What all of them read.
    reads: Reads,
}

/// The answers about the devices of one slice.
#[derive(Clone, Debug)]
struct Row {
    answers: Box<[Answer]>,
    errors: Vec<(usize, SelectorError)>,
    /// The last attempt that asked.
    attempt: u64,
}

/// An answer about a device, and the work that it took: in one word, because there are many.
#[derive(Clone, Copy, Debug, Default)]
struct Answer(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matched {
    Unknown,
    Yes,
    No,
    Error,
}

impl Answer {
    const IS_CHARGED: u32 = 4;
    const MAX_WORK: u64 = (1 << 29) - 1;

    fn new(matched: Matched, work: u64) -> Self {
        Self(matched as u32 | Self::IS_CHARGED | (work.min(Self::MAX_WORK) as u32) << 3)
    }

    const fn matched(self) -> Matched {
        match self.0 & 3 {
            0 => Matched::Unknown,
            1 => Matched::Yes,
            2 => Matched::No,
            _ => Matched::Error,
        }
    }

    const fn work(self) -> u64 {
        (self.0 >> 3) as u64
    }

    const fn is_charged(self) -> bool {
        self.0 & Self::IS_CHARGED != 0
    }
}

impl Row {
    /// Begins an attempt, which nothing is charged to yet.
    fn begin(&mut self, attempt: u64) {
        if self.attempt != attempt {
            self.attempt = attempt;
            self.answers.iter_mut().for_each(|answer| answer.0 &= !Answer::IS_CHARGED);
        }
    }
}

/// Why a selector has no answer.
#[derive(Clone, Debug)]
pub(crate) struct SelectorError {
    pub(crate) is_of_class: bool,
    /// Its place in its list.
    pub(crate) selector: usize,
    pub(crate) cause: SelectorFailure,
}

#[derive(Clone, Debug)]
pub(crate) enum SelectorFailure {
    Compile(CompileError),
    Eval(EvalError),
    /// The budget ends.
    Exhausted,
}

impl SelectorFailure {
    fn bytes(&self) -> usize {
        match self {
            Self::Compile(error) => error.to_string().len(),
            Self::Eval(error) => error.to_string().len(),
            Self::Exhausted => 0,
        }
    }
}

impl Selectors {
    fn new(id: u64, class: Box<[Arc<Compiled>]>, request: Box<[Arc<Compiled>]>, hides_sharing: bool) -> Self {
        let mut reads = Reads::nothing();
        let programs = class.iter().chain(&request).filter_map(|program| (**program).as_ref().ok());
        programs.for_each(|program| reads.add(program.reads()));
        Self { id, class, request, hides_sharing, reads }
    }

    /// The approximate size in bytes. Lists may share programs.
    pub(crate) fn bytes(&self) -> usize {
        self.class.iter().chain(&self.request).map(|program| bytes_of(program)).sum()
    }
}

fn bytes_of(compiled: &Compiled) -> usize {
    let size = match compiled {
        Ok(program) => program.bytes(),
        Err(error) => error.to_string().len(),
    };
    size_of::<Compiled>() + size
}

impl Expressions {
    fn bytes(&self) -> usize {
        let texts = (self.class.len() + self.request.len()) * (size_of::<Arc<str>>() + size_of::<usize>());
        size_of::<Self>() + size_of::<List>() + size_of::<Selectors>() + texts
    }
}

impl Matches {
    /// Nothing is compiled yet.
    pub fn new(seed: &HashSeed) -> Self {
        Self {
            programs: seed.map(),
            lists: seed.map(),
            last_list: 0,
            program_bytes: 0,
            clock: 0,
            swept_at: 0,
            rows: FxHashMap::default(),
            answer_bytes: 0,
            attempt: 0,
            evaluations: 0,
        }
    }

    /// Nothing is compiled yet. Demands that were prepared with `before` can be asked about, too.
    #[must_use]
    pub fn after(before: &Self, seed: &HashSeed) -> Self {
        Self { last_list: before.last_list, ..Self::new(seed) }
    }

    /// How often a selector has been evaluated.
    pub const fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The approximate size in bytes of compiled selectors and answers.
    pub const fn bytes(&self) -> usize {
        self.program_bytes + self.answer_bytes
    }

    /// Begins an attempt: its budget pays for each answer once, also for those that are known.
    pub const fn begin_attempt(&mut self) {
        self.attempt += 1;
    }

    /// Forgets the selectors that nothing holds and that were not used since the last call.
    pub fn forget_unused(&mut self) {
        let before = std::mem::replace(&mut self.swept_at, self.clock);
        self.forget(|list| list.used_at <= before);
    }

    /// Compiles selectors, each once.
    pub(crate) fn compile(
        &mut self,
        class: Box<[Arc<str>]>,
        request: Box<[Arc<str>]>,
        hides_sharing: bool,
    ) -> Arc<Selectors> {
        let expressions = Expressions { class, request, hides_sharing };
        self.clock += 1;
        if let Some(known) = self.lists.get_mut(&expressions) {
            known.used_at = self.clock;
            return Arc::clone(&known.selectors);
        }
        self.last_list += 1;
        self.program_bytes += expressions.bytes();
        let mut programs = |list: &[Arc<str>]| list.iter().map(|text| self.program(text)).collect();
        let (class, request) = (programs(&expressions.class), programs(&expressions.request));
        let selectors = Arc::new(Selectors::new(self.last_list, class, request, hides_sharing));
        self.lists.insert(expressions, List { selectors: Arc::clone(&selectors), used_at: self.clock });
        self.shrink(MAX_PROGRAM_BYTES);
        selectors
    }

    fn program(&mut self, text: &Arc<str>) -> Arc<Compiled> {
        if let Some(known) = self.programs.get(text) {
            return Arc::clone(known);
        }
        let program = Arc::new(Program::compile(text));
        self.program_bytes += text.len() + bytes_of(&program);
        self.programs.insert(Arc::clone(text), Arc::clone(&program));
        program
    }

    /// Forgets the older half of the lists that nothing holds, until the rest is small enough.
    fn shrink(&mut self, most: usize) {
        while self.program_bytes > most {
            let unheld = self.lists.values().filter(|list| list.is_unheld());
            let mut uses: Vec<u64> = unheld.map(|list| list.used_at).collect();
            if uses.is_empty() {
                return;
            }
            let middle = (uses.len() - 1) / 2;
            let (_, newest_to_go, _) = uses.select_nth_unstable(middle);
            let newest_to_go = *newest_to_go;
            self.forget(|list| list.used_at <= newest_to_go);
        }
    }

    /// Forgets lists that nothing holds, with their programs and answers.
    fn forget(&mut self, is_due: impl Fn(&List) -> bool) {
        let before = self.lists.len();
        let mut kept = rustc_hash::FxHashSet::default();
        let bytes = &mut self.program_bytes;
        self.lists.retain(|expressions, list| {
            let is_kept = !list.is_unheld() || !is_due(list);
            if is_kept {
                kept.insert(list.selectors.id);
            } else {
                *bytes -= expressions.bytes();
            }
            is_kept
        });
        if self.lists.len() == before {
            return;
        }
        self.programs.retain(|text, program| {
            let is_kept = Arc::strong_count(program) > 1;
            *bytes -= if is_kept { 0 } else { text.len() + bytes_of(program) };
            is_kept
        });
        self.lists.shrink_to_fit();
        self.programs.shrink_to_fit();
        self.rows.retain(|(list, _), _| kept.contains(list));
        self.answer_bytes = self.rows.values().map(Row::bytes).sum();
    }

    /// Whether all selectors match a device. Without a selector, any device matches.
    pub(crate) fn selected(
        &mut self,
        selectors: &Selectors,
        slice: &Slice,
        device: usize,
        budget: &mut Budget,
    ) -> Result<bool, SelectorError> {
        if selectors.class.is_empty() && selectors.request.is_empty() {
            return Ok(true);
        }
        let key = (selectors.id, slice.id);
        if let Some(row) = self.rows.get_mut(&key) {
            row.begin(self.attempt);
            let answer = row.answers[device];
            let matched = answer.matched();
            if matched != Matched::Unknown && !answer.is_charged() {
                row.answers[device].0 |= Answer::IS_CHARGED;
                if !budget.take(answer.work()) && matched != Matched::Error {
                    let is_of_class = selectors.request.is_empty();
                    return Err(SelectorError {
                        is_of_class,
                        selector: 0,
                        cause: SelectorFailure::Exhausted,
                    });
                }
            }
            match matched {
                Matched::Unknown => {}
                Matched::Yes => return Ok(true),
                Matched::No => return Ok(false),
                Matched::Error => {
                    let known = row.errors.iter().find(|(of, _)| *of == device);
                    return known.map_or(Ok(false), |(_, error)| Err(error.clone()));
                }
            }
        }
        let mut work = 0;
        let answer = self.ask(selectors, slice, device, budget, &mut work);
        let matched = match &answer {
            Ok(true) => Matched::Yes,
            Ok(false) => Matched::No,
            Err(SelectorError { cause: SelectorFailure::Exhausted, .. }) => return answer,
            Err(_) => Matched::Error,
        };
        let errors = answer.as_ref().err().map(|error| (device, error.clone()));
        self.answer_bytes += errors.as_ref().map_or(0, |(_, error)| error.cause.bytes());
        let row = self.row(key, slice);
        row.answers[device] = Answer::new(matched, work);
        row.errors.extend(errors);
        answer
    }

    fn row(&mut self, key: (u64, u64), slice: &Slice) -> &mut Row {
        if !self.rows.contains_key(&key) {
            let devices = slice.spec().devices.len();
            let row = Row {
                answers: vec![Answer::default(); devices].into(),
                errors: Vec::new(),
                attempt: self.attempt,
            };
            self.answer_bytes += row.bytes();
            if self.answer_bytes > MAX_ANSWER_BYTES {
                self.answer_bytes = row.bytes();
                self.rows.clear();
            }
            self.rows.insert(key, row);
        }
        self.rows.get_mut(&key).expect("it was inserted")
    }

    /// Evaluates the selectors, and adds up the work.
    fn ask(
        &mut self,
        selectors: &Selectors,
        slice: &Slice,
        device: usize,
        budget: &mut Budget,
        work: &mut u64,
    ) -> Result<bool, SelectorError> {
        let mut seen = None;
        let of =
            |list, is_of_class| std::iter::zip(0.., list).map(move |(place, it)| (is_of_class, place, it));
        for (is_of_class, selector, program) in
            of(selectors.class.iter(), true).chain(of(selectors.request.iter(), false))
        {
            let wrong = |cause| SelectorError { is_of_class, selector, cause };
            let program =
                (**program).as_ref().map_err(|error| wrong(SelectorFailure::Compile(error.clone())))?;
            self.evaluations += 1;
            if seen.is_none() {
                let steps = steps_to_see(values_of(&slice.spec().devices[device]));
                *work += steps;
                if !budget.take(steps) {
                    return Err(wrong(SelectorFailure::Exhausted));
                }
            }
            let seen = seen.get_or_insert_with(|| cel_device(slice, device, selectors));
            let matches = match seen {
                Ok(seen) => {
                    let most = budget.left().unwrap_or(u64::MAX);
                    let mut left = most;
                    let matches = program.matches_within(seen, &mut left);
                    *work += most - left;
                    budget.take(most - left);
                    // An error of upstream's comes first.
                    let is_over = |matches: &Result<bool, _>| budget.is_exhausted() && matches.is_ok();
                    let matches = matches.filter(|matches| !is_over(matches));
                    matches.ok_or_else(|| wrong(SelectorFailure::Exhausted))?
                }
                Err(error) => Err(error.clone()),
            };
            if !matches.map_err(|error| wrong(SelectorFailure::Eval(error)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl List {
    /// Whether no demand holds it.
    fn is_unheld(&self) -> bool {
        Arc::strong_count(&self.selectors) == 1
    }
}

impl Row {
    fn bytes(&self) -> usize {
        let errors = self.errors.iter().map(|(_, error)| size_of_val(error) + error.cause.bytes());
        size_of::<Self>() + size_of_val(&*self.answers) + errors.sum::<usize>()
    }
}

/// What a selector sees.
fn cel_device(slice: &Slice, device: usize, selectors: &Selectors) -> Result<CelDevice, EvalError> {
    let spec = slice.spec();
    let device = &spec.devices[device];
    let attributes: Vec<(&str, Attribute)> =
        device.attributes.iter().map(|(name, value)| (&**name, attribute(value))).collect();
    CelDevice::reading(
        &selectors.reads,
        &spec.driver,
        device.allows_multiple_allocations && !selectors.hides_sharing,
        attributes.iter().map(|(name, value)| (*name, value)),
        device.capacity.iter().map(|(name, capacity)| (&**name, &*capacity.value)),
    )
}

fn attribute(value: &DeviceAttribute) -> Attribute {
    match value {
        DeviceAttribute::Int(value) => Attribute::Int(*value),
        DeviceAttribute::Bool(value) => Attribute::Bool(*value),
        DeviceAttribute::String(text) => Attribute::String(Arc::clone(text)),
        DeviceAttribute::Version(text) => Attribute::Version(Arc::clone(text)),
        DeviceAttribute::Unsupported => Attribute::Unset,
    }
}
