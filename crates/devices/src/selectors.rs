//! Which devices the selectors of a request match.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_cel::{CompileError, EvalError, Program, Reads};
use supercargo_framework::hash_seed::{HashSeed, SeededMap};

use crate::answers::{Answers, Verdict};
use crate::budget::{Budget, STEPS_TO_EVALUATE, steps_to_look};
use crate::inventory::{Slice, values_of};
use crate::sight::Sight;

/// The size of compiled selectors, in bytes, beyond which those that nothing holds are forgotten.
const MAX_PROGRAM_BYTES: usize = 32 << 20;
/// The size of answers about devices, in bytes, beyond which the next attempt forgets all.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Compiled selectors, and what they said about devices.
///
/// An answer is kept as long as its ResourceSlice does not change, so that the same request asks
/// about new devices only. Devices in which selectors see the same have one answer. The answers
/// belong to one [`Inventory`](crate::Inventory): a clone of it
/// needs a new object of this type, or a clone.
#[derive(Clone, Debug)]
pub struct Matches {
    seed: HashSeed,
    programs: SeededMap<Arc<str>, Arc<Compiled>>,
    lists: SeededMap<Expressions, List>,
    last_list: u64,
    /// The size of programs and lists.
    program_bytes: usize,
    /// The last use of any list.
    clock: u64,
    /// Its value when [`forget_unused`](Self::forget_unused) was called last.
    swept_at: u64,
    most_answer_bytes: usize,
    /// The answers by list.
    answers: FxHashMap<u64, Answers>,
    attempt: u64,
    evaluations: u64,
    /// What selectors see of a device.
    buffer: Vec<u8>,
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

impl SelectorError {
    pub(crate) fn bytes(&self) -> usize {
        let text = match &self.cause {
            SelectorFailure::Compile(error) => error.to_string().len(),
            SelectorFailure::Eval(error) => error.to_string().len(),
            SelectorFailure::Exhausted => 0,
        };
        size_of::<Self>() + text
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
            seed: seed.clone(),
            programs: seed.map(),
            lists: seed.map(),
            last_list: 0,
            program_bytes: 0,
            clock: 0,
            swept_at: 0,
            most_answer_bytes: MAX_ANSWER_BYTES,
            answers: FxHashMap::default(),
            attempt: 0,
            evaluations: 0,
            buffer: Vec::new(),
        }
    }

    /// Nothing is compiled yet. Demands that were prepared with `before` can be asked about, too.
    #[must_use]
    pub fn after(before: &Self, seed: &HashSeed) -> Self {
        Self { last_list: before.last_list, ..Self::new(seed) }
    }

    /// Keeps fewer answers, for tests.
    pub const fn limit_answers(&mut self, bytes: usize) {
        self.most_answer_bytes = bytes;
    }

    /// How often a selector has been evaluated.
    pub const fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The approximate size in bytes of compiled selectors and answers.
    pub fn bytes(&self) -> usize {
        self.program_bytes + self.answer_bytes()
    }

    fn answer_bytes(&self) -> usize {
        self.answers.values().map(Answers::bytes).sum()
    }

    /// Begins an attempt: its budget pays for each answer once, also for those that are known.
    pub fn begin_attempt(&mut self) {
        self.attempt += 1;
        // Not later: then the budget would pay for some answers again.
        if self.answer_bytes() > self.most_answer_bytes {
            self.answers.clear();
        }
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
        self.answers.retain(|list, _| kept.contains(list));
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
        let Self { answers, attempt, evaluations, seed, buffer, .. } = self;
        let answers = answers.entry(selectors.id).or_insert_with(Answers::new);
        let is_first = answers.begin(slice, device, *attempt);
        let look = steps_to_look(values_of(&slice.spec().devices[device]));
        if is_first && !budget.take(look) {
            return Err(selectors.exhausted());
        }
        let number = match answers.of_device(slice, device) {
            Some(number) => number,
            None => {
                let sight = selectors.sight(slice, device);
                sight.write(buffer);
                let hash = seed.hash_one(&*buffer);
                let number = match answers.of_sight(hash, buffer) {
                    Some(number) => number,
                    None => {
                        let (result, work) = selectors.ask(sight, budget, evaluations)?;
                        let sight = buffer[..].into();
                        answers.add(hash, Verdict { sight, result, work, paid_in: *attempt })
                    }
                };
                answers.set(slice, device, number);
                number
            }
        };
        let Verdict { result, work, paid_in, .. } = answers.verdict(number);
        let is_paid = std::mem::replace(paid_in, *attempt) == *attempt;
        // An error of upstream's comes first.
        if !is_paid && !budget.take(*work) && result.is_ok() {
            return Err(selectors.exhausted());
        }
        result.clone().map_err(|error| *error)
    }
}

impl Selectors {
    fn sight<'a>(&'a self, slice: &'a Slice, device: usize) -> Sight<'a> {
        let (spec, hides_sharing) = (slice.spec(), self.hides_sharing);
        Sight { reads: &self.reads, spec, device: &spec.devices[device], hides_sharing }
    }

    /// The error where the budget ends between evaluations.
    fn exhausted(&self) -> SelectorError {
        let is_of_class = self.request.is_empty();
        SelectorError { is_of_class, selector: 0, cause: SelectorFailure::Exhausted }
    }

    /// Evaluates the selectors. Also returns the work. An error is the end of the budget.
    fn ask(
        &self,
        sight: Sight<'_>,
        budget: &mut Budget,
        evaluations: &mut u64,
    ) -> Result<(Result<bool, Box<SelectorError>>, u64), SelectorError> {
        let mut work = 0;
        let result = self.evaluate(sight, budget, &mut work, evaluations);
        if let Err(error @ SelectorError { cause: SelectorFailure::Exhausted, .. }) = result {
            return Err(error);
        }
        Ok((result.map_err(Box::new), work))
    }

    /// Evaluates the selectors, and adds up the work.
    fn evaluate(
        &self,
        sight: Sight<'_>,
        budget: &mut Budget,
        work: &mut u64,
        evaluations: &mut u64,
    ) -> Result<bool, SelectorError> {
        let mut seen = None;
        let of =
            |list, is_of_class| std::iter::zip(0.., list).map(move |(place, it)| (is_of_class, place, it));
        for (is_of_class, selector, program) in
            of(self.class.iter(), true).chain(of(self.request.iter(), false))
        {
            let wrong = |cause| SelectorError { is_of_class, selector, cause };
            let program =
                (**program).as_ref().map_err(|error| wrong(SelectorFailure::Compile(error.clone())))?;
            *evaluations += 1;
            // The first one reads the device.
            let values = if seen.is_none() { values_of(sight.device) as u64 } else { 0 };
            *work += STEPS_TO_EVALUATE + values;
            if !budget.take(STEPS_TO_EVALUATE + values) {
                return Err(wrong(SelectorFailure::Exhausted));
            }
            let matches = match seen.get_or_insert_with(|| sight.device()) {
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
