//! Which devices the selectors of a request match.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_cel::{Attribute, CompileError, Device as CelDevice, EvalError, Program};
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_framework::objects::DeviceAttribute;

use crate::inventory::Slice;

/// The number of lists of selectors, and of answers about devices, beyond which all are forgotten.
const MAX_LISTS: usize = 10_000;
const MAX_ANSWERS: usize = 1 << 23;

/// Compiled selectors, and what they said about devices.
///
/// An answer is kept as long as its ResourceSlice does not change, so that the same request asks
/// about new devices only. The answers belong to one [`Inventory`](crate::Inventory): a clone of it
/// needs a new object of this type, or a clone.
#[derive(Clone, Debug)]
pub struct Matches {
    programs: SeededMap<Arc<str>, Arc<Compiled>>,
    lists: SeededMap<Expressions, Arc<Selectors>>,
    last_list: u64,
    /// The place of the answers by list and slice.
    places: FxHashMap<(u64, u64), usize>,
    rows: Vec<Row>,
    answers: usize,
    evaluations: u64,
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
}

/// The answers about the devices of one slice.
#[derive(Clone, Debug)]
struct Row {
    answers: Box<[Matched]>,
    errors: Vec<(usize, SelectorError)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matched {
    Unknown,
    Yes,
    No,
    Error,
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
}

impl Matches {
    /// Nothing is compiled yet.
    pub fn new(seed: &HashSeed) -> Self {
        Self {
            programs: seed.map(),
            lists: seed.map(),
            last_list: 0,
            places: FxHashMap::default(),
            rows: Vec::new(),
            answers: 0,
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

    /// Compiles selectors, each once.
    pub(crate) fn compile(
        &mut self,
        class: Box<[Arc<str>]>,
        request: Box<[Arc<str>]>,
        hides_sharing: bool,
    ) -> Arc<Selectors> {
        let expressions = Expressions { class, request, hides_sharing };
        if let Some(known) = self.lists.get(&expressions) {
            return Arc::clone(known);
        }
        if self.lists.len() >= MAX_LISTS {
            self.programs.clear();
            self.lists.clear();
            self.forget_answers();
        }
        self.last_list += 1;
        let mut programs = |list: &[Arc<str>]| list.iter().map(|text| self.program(text)).collect();
        let (class, request) = (programs(&expressions.class), programs(&expressions.request));
        let selectors = Arc::new(Selectors { id: self.last_list, class, request, hides_sharing });
        self.lists.insert(expressions, Arc::clone(&selectors));
        selectors
    }

    fn program(&mut self, text: &Arc<str>) -> Arc<Compiled> {
        let compile = || Arc::new(Program::compile(text));
        Arc::clone(self.programs.entry(Arc::clone(text)).or_insert_with(compile))
    }

    fn forget_answers(&mut self) {
        self.places.clear();
        self.rows.clear();
        self.answers = 0;
    }

    /// Whether all selectors match a device. Without a selector, any device matches.
    pub(crate) fn selected(
        &mut self,
        selectors: &Selectors,
        slice: &Slice,
        device: usize,
    ) -> Result<bool, SelectorError> {
        if selectors.class.is_empty() && selectors.request.is_empty() {
            return Ok(true);
        }
        let place = self.row(selectors, slice);
        match self.rows[place].answers[device] {
            Matched::Unknown => {}
            Matched::Yes => return Ok(true),
            Matched::No => return Ok(false),
            Matched::Error => {
                let known = self.rows[place].errors.iter().find(|(of, _)| *of == device);
                return known.map_or(Ok(false), |(_, error)| Err(error.clone()));
            }
        }
        let answer = self.ask(selectors, slice, device);
        let row = &mut self.rows[place];
        row.answers[device] = match &answer {
            Ok(true) => Matched::Yes,
            Ok(false) => Matched::No,
            Err(error) => {
                row.errors.push((device, error.clone()));
                Matched::Error
            }
        };
        answer
    }

    fn row(&mut self, selectors: &Selectors, slice: &Slice) -> usize {
        let key = (selectors.id, slice.id);
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let devices = slice.spec().devices.len();
        if self.answers + devices > MAX_ANSWERS {
            self.forget_answers();
        }
        self.answers += devices;
        self.rows.push(Row { answers: vec![Matched::Unknown; devices].into(), errors: Vec::new() });
        self.places.insert(key, self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn ask(&mut self, selectors: &Selectors, slice: &Slice, device: usize) -> Result<bool, SelectorError> {
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
            let seen = seen.get_or_insert_with(|| cel_device(slice, device, selectors.hides_sharing));
            let matches = seen.as_ref().map_err(Clone::clone).and_then(|seen| program.matches(seen));
            if !matches.map_err(|error| wrong(SelectorFailure::Eval(error)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What a selector sees.
fn cel_device(slice: &Slice, device: usize, hides_sharing: bool) -> Result<CelDevice, EvalError> {
    let spec = slice.spec();
    let device = &spec.devices[device];
    let attributes: Vec<(&str, Attribute)> =
        device.attributes.iter().map(|(name, value)| (&**name, attribute(value))).collect();
    CelDevice::new(
        &spec.driver,
        device.allows_multiple_allocations && !hides_sharing,
        attributes.iter().map(|(name, value)| (*name, value)),
        device.capacity.iter().map(|(name, capacity)| (&**name, &*capacity.value)),
    )
}

fn attribute(value: &DeviceAttribute) -> Attribute {
    match value {
        DeviceAttribute::Int(value) => Attribute::Int(*value),
        DeviceAttribute::Bool(value) => Attribute::Bool(*value),
        DeviceAttribute::String(text) => Attribute::String(text.to_string()),
        DeviceAttribute::Version(text) => Attribute::Version(text.to_string()),
        DeviceAttribute::Unsupported => Attribute::Unset,
    }
}
