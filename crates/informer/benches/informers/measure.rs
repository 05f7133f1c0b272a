//! The measurements, round by round.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::options::Options;
use crate::process::{Cost, Process};
use crate::report::{Column, Goal, Progress, Series, Table, grouped};
use crate::task::{Answer, Client, Content, Mode, Serve, Step, Task};

/// The programs and the amount of work.
pub(crate) struct Bench {
    pub(crate) options: Options,
    /// This program, for measured processes.
    pub(crate) this: PathBuf,
    /// The program for client-go.
    pub(crate) go: Option<PathBuf>,
    pub(crate) progress: Progress,
}

/// Pods as bytes.
pub(crate) struct Templates {
    pub(crate) json: Vec<u8>,
    pub(crate) protobuf: Vec<u8>,
}

const TYPED: &str = "kube-informers";
const SLIM: &str = "  slim kind";
const GO: &str = "client-go";
const KUBE: &str = "kube_runtime";

/// The clients measured after decoding.
const DECODED: [(&str, Client); 4] =
    [(TYPED, Client::Typed), (SLIM, Client::Slim), (GO, Client::Go), (KUBE, Client::Kube)];

const TYPED_JSON: &str = "kube-informers JSON";
const SLIM_JSON: &str = "  slim kind JSON";
const SLIM_PROTOBUF: &str = "  slim kind protobuf";
const GO_JSON: &str = "client-go JSON";
const GO_PROTOBUF: &str = "client-go protobuf";
const KUBE_JSON: &str = "kube_runtime JSON";

/// The clients measured with a server.
const SERVED: [(&str, Client, Content); 6] = [
    (TYPED_JSON, Client::Typed, Content::Json),
    (SLIM_JSON, Client::Slim, Content::Json),
    (SLIM_PROTOBUF, Client::Slim, Content::Protobuf),
    (GO_JSON, Client::Go, Content::Json),
    (GO_PROTOBUF, Client::Go, Content::Protobuf),
    (KUBE_JSON, Client::Kube, Content::Json),
];

const PIPELINE_COLUMNS: [Column; 5] = [
    Column { head: ["list CPU", "µs/pod"], name: "listCpuMicros" },
    Column { head: ["list time", "µs/pod"], name: "listMicros" },
    Column { head: ["change CPU", "µs each"], name: "changeCpuMicros" },
    Column { head: ["+ collect", "µs each"], name: "changeAndCollectCpuMicros" },
    Column { head: ["change time", "µs each"], name: "changeMicros" },
];

const WIRE_COLUMNS: [Column; 5] = [
    Column { head: ["start-up", "s"], name: "startSeconds" },
    Column { head: ["start CPU", "µs/pod"], name: "startCpuMicros" },
    Column { head: ["memory", "KiB/pod"], name: "residentKib" },
    Column { head: ["trimmed", "KiB/pod"], name: "trimmedKib" },
    Column { head: ["change CPU", "µs each"], name: "changeCpuMicros" },
];

/// The goal: the maximum share of client-go's cost.
const HALF: f64 = 0.5;

impl Bench {
    /// Measures after decoding, for each number of listeners.
    pub(crate) fn pipeline(
        &self,
        templates: &Templates,
        [pods, events]: [usize; 2],
        listeners: &[usize],
        tables: &mut Vec<Table>,
        goals: &mut Vec<Goal>,
    ) -> Result<()> {
        let size = kilobytes(templates.json.len());
        let template = String::from_utf8(templates.json.clone())?;
        let title = |listeners: &usize| {
            let listeners =
                if *listeners == 1 { "1 listener".to_owned() } else { format!("{listeners} listeners") };
            format!("Decoded: {} pods of {size}, {} changes, {listeners}", grouped(pods), grouped(events))
        };
        let clients: Vec<_> = DECODED.into_iter().filter(|(_, client)| self.has(*client)).collect();
        let names: Vec<_> = clients.iter().map(|(name, _)| *name).collect();
        let mut all: Vec<_> = listeners
            .iter()
            .map(|listeners| Table::new(title(listeners), &PIPELINE_COLUMNS, &names))
            .collect();
        for round in 0..self.options.rounds {
            for (table, &listeners) in all.iter_mut().zip(listeners) {
                let mut notified = Vec::new();
                for &(name, client) in &clients {
                    self.progress.say(&format!("{}, round {}: {name}", table.title, round + 1));
                    let task = Task {
                        client,
                        mode: Mode::Pipeline,
                        pods,
                        events,
                        listeners,
                        template: template.clone(),
                        url: String::new(),
                        content: Content::Json,
                    };
                    let (values, answer) = self.decoded(&task)?;
                    // kube_runtime does not deliver deletions.
                    if client != Client::Kube {
                        notified.push((name, Answer { nanos: 0, ..answer }));
                    }
                    table.record(name, &values);
                }
                agree(&notified)?;
            }
        }
        for (table, listeners) in all.iter().zip(listeners) {
            let name = |who| format!("decoded, {size}, {listeners} listeners, CPU a change{who}");
            for (row, who) in [(TYPED, ""), (SLIM, ", slim")] {
                goals.extend(table.goal(name(who), HALF, "changeAndCollectCpuMicros", row, GO));
            }
        }
        tables.extend(all);
        Ok(())
    }

    fn decoded(&self, task: &Task) -> Result<([Option<f64>; 5], Answer)> {
        let mut process = self.client(task)?;
        let listed = process.step(Step::Start, || Ok(()))?;
        let changed = process.step(Step::Events, || Ok(()))?;
        let collected = process.step(Step::Collect, || Ok(()))?;
        let collected = changed.cpu.zip(collected.cpu).map(|(change, collect)| change + collect);
        let values = [
            listed.cpu_micros(task.pods),
            Some(micros(listed.wall, task.pods)),
            changed.cpu_micros(task.events),
            collected.map(|cpu| micros(cpu, task.events)),
            Some(micros(changed.wall, task.events)),
        ];
        Ok((values, changed.answer))
    }

    /// Measures with a server on loopback.
    pub(crate) fn wire(
        &self,
        templates: &Templates,
        [pods, events]: [usize; 2],
        tables: &mut Vec<Table>,
        goals: &mut Vec<Goal>,
    ) -> Result<()> {
        let size = kilobytes(templates.json.len());
        let title = format!(
            "From a server: {} pods of {size}, {} changes, 1 listener",
            grouped(pods),
            grouped(events)
        );
        let clients: Vec<_> = SERVED.into_iter().filter(|(_, client, _)| self.has(*client)).collect();
        let names: Vec<_> = clients.iter().map(|(name, ..)| *name).collect();
        let mut table = Table::new(title, &WIRE_COLUMNS, &names);
        for round in 0..self.options.rounds {
            for &(name, client, content) in &clients {
                self.progress.say(&format!("{}, round {}: {name}", table.title, round + 1));
                let task = |pods, events| Task {
                    client,
                    mode: Mode::Wire,
                    pods,
                    events,
                    listeners: 1,
                    template: String::new(),
                    url: String::new(),
                    content,
                };
                // The memory of a process that watches nothing does not count.
                let idle = self.served(templates, task(0, 0))?;
                let busy = self.served(templates, task(pods, events))?;
                let each = |at: usize| {
                    Some(
                        (busy.resident[at]?.saturating_sub(idle.resident[at]?)) as f64 / 1024.0 / pods as f64,
                    )
                };
                table.record(
                    name,
                    &[
                        Some(busy.start.wall.as_secs_f64()),
                        busy.start.cpu_micros(pods),
                        each(0),
                        each(1),
                        busy.changes.and_then(|changes| changes.cpu_micros(events)),
                    ],
                );
            }
        }
        for (column, at_most, what) in [
            ("startCpuMicros", HALF, "CPU a pod"),
            ("residentKib", HALF, "memory a pod"),
            ("trimmedKib", HALF, "memory a pod, trimmed"),
            ("changeCpuMicros", HALF, "CPU a change"),
            ("startSeconds", 1.0, "start-up"),
        ] {
            for (row, other, encoding) in
                [(SLIM_JSON, GO_JSON, "JSON"), (SLIM_PROTOBUF, GO_PROTOBUF, "protobuf")]
            {
                goals.extend(table.goal(
                    format!("{encoding}, {size}, slim, {what}"),
                    at_most,
                    column,
                    row,
                    other,
                ));
            }
        }
        tables.push(table);
        Ok(())
    }

    fn served(&self, templates: &Templates, mut task: Task) -> Result<Served> {
        let serve = Serve {
            pods: task.pods,
            events: task.events,
            json: templates.json.clone(),
            protobuf: templates.protobuf.clone(),
        };
        let mut server = Process::start(&self.this, &["server"], &serve)?;
        task.url = server.read()?;
        let mut client = self.client(&task)?;
        let start = client.step(Step::Start, || Ok(()))?;
        if start.answer.stored != task.pods || start.answer.adds + start.answer.updates != task.pods as u64 {
            return Err(format!("{:?} has something else: {:?}", task.client, start.answer).into());
        }
        thread::sleep(if self.options.test { Duration::ZERO } else { SETTLE });
        let settled = client.resident();
        let changes = if task.events == 0 {
            None
        } else {
            Some(client.step(Step::Events, || {
                let asked: Content = server.tell("events")?;
                if asked == task.content {
                    return Ok(());
                }
                Err(format!("{:?} asked for {asked:?}, not for {:?}", task.client, task.content).into())
            })?)
        };
        client.step(Step::Trim, || Ok(()))?;
        Ok(Served { start, changes, resident: [settled, client.resident()] })
    }

    /// Starts a measured process. It is ready when this returns.
    fn client(&self, task: &Task) -> Result<Process> {
        let mut process = match (task.client, &self.go) {
            (Client::Go, Some(program)) => Process::start(program, &[], task)?,
            _ => Process::start(&self.this, &["client"], task)?,
        };
        let _: Answer = process.read()?;
        Ok(process)
    }

    fn has(&self, client: Client) -> bool {
        client != Client::Go || self.go.is_some()
    }
}

/// The time for memory to settle: collectors free some of it gradually.
const SETTLE: Duration = Duration::from_secs(1);

/// The cost of a client with a server.
struct Served {
    start: Cost,
    changes: Option<Cost>,
    /// In bytes, after the start and after trimming at the end.
    resident: [Option<u64>; 2],
}

impl Cost {
    fn cpu_micros(&self, count: usize) -> Option<f64> {
        self.cpu.map(|cpu| micros(cpu, count))
    }
}

impl Table {
    fn new(title: String, columns: &'static [Column], rows: &[&'static str]) -> Self {
        let empty = || columns.iter().map(|_| Series::default()).collect();
        Self { title, columns, rows: rows.iter().map(|name| (*name, empty())).collect() }
    }

    /// Records the values of a row in one round.
    fn record(&mut self, row: &str, values: &[Option<f64>]) {
        let fields = self.rows.iter_mut().find(|(name, _)| *name == row).map(|(_, fields)| fields);
        for (field, value) in fields.into_iter().flatten().zip(values) {
            field.0.extend(*value);
        }
    }

    fn goal(&self, what: String, at_most: f64, column: &str, ours: &str, theirs: &str) -> Option<Goal> {
        Goal::new(what, at_most, self.median(ours, column), self.median(theirs, column))
    }
}

/// All clients must have received the same, or they did not do the same work.
fn agree(notified: &[(&str, Answer)]) -> Result<()> {
    match notified.split_first() {
        Some(((first, expected), others)) => match others.iter().find(|(_, answer)| answer != expected) {
            Some((name, answer)) => {
                Err(format!("{name} ends with {answer:?}, {first} with {expected:?}").into())
            }
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn micros(duration: Duration, count: usize) -> f64 {
    duration.as_secs_f64() * 1e6 / count.max(1) as f64
}

fn kilobytes(bytes: usize) -> String {
    format!("{:.1} KB", bytes as f64 / 1000.0)
}
