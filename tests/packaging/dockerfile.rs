//! Parses the instructions and stages of a Dockerfile.

/// An instruction with its lines joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// In upper case.
    pub(super) name: String,
    /// The rest, with runs of blanks as one.
    pub(super) rest: String,
}

impl Instruction {
    /// The sources and the destination of a `COPY` from the context.
    pub(super) fn copies(&self) -> Option<(Vec<&str>, &str)> {
        if self.name != "COPY" || self.rest.starts_with("--from=") {
            return None;
        }
        let mut words: Vec<&str> = self.rest.split(' ').collect();
        assert!(!words.iter().any(|word| word.starts_with('-')), "an option of COPY: {}", self.rest);
        let target = words.pop()?;
        Some((words, target))
    }

    /// The build command of a `RUN`, without the commands around it.
    pub(super) fn cargo_build(&self) -> Option<&str> {
        let commands = (self.name == "RUN").then(|| self.rest.split(" && "))?;
        commands.map(str::trim).find(|command| command.starts_with("cargo build"))
    }

    /// The list of an instruction in exec form.
    pub(super) fn exec(&self) -> Vec<String> {
        serde_json::from_str(&self.rest).unwrap_or_else(|_| panic!("{} {} has a shell", self.name, self.rest))
    }
}

/// A stage: from one `FROM` to the next.
#[derive(Debug)]
pub(super) struct Stage {
    /// The stage or image that it starts from.
    pub(super) base: String,
    /// Empty for the last one.
    pub(super) name: String,
    pub(super) instructions: Vec<Instruction>,
}

impl Stage {
    /// The words of an instruction that occurs at most once.
    pub(super) fn only(&self, name: &str) -> Option<&Instruction> {
        let mut all = self.instructions.iter().filter(|instruction| instruction.name == name);
        let first = all.next();
        assert!(all.next().is_none(), "more than one {name}");
        first
    }

    /// Whether an instruction of this name has these words.
    pub(super) fn has(&self, name: &str, words: &str) -> bool {
        let mut all = self.instructions.iter().filter(|instruction| instruction.name == name);
        all.any(|instruction| instruction.rest.contains(words))
    }
}

/// The whole file.
#[derive(Debug)]
pub(super) struct Dockerfile {
    /// The instructions before the first stage.
    pub(super) arguments: Vec<Instruction>,
    pub(super) stages: Vec<Stage>,
}

impl Dockerfile {
    pub(super) fn parse(text: &str) -> Self {
        let mut file = Self { arguments: Vec::new(), stages: Vec::new() };
        for instruction in instructions(text) {
            if instruction.name == "FROM" {
                let words: Vec<&str> =
                    instruction.rest.split(' ').filter(|word| !word.starts_with("--")).collect();
                let name = words.get(2).copied().unwrap_or_default();
                file.stages.push(Stage {
                    base: words[0].to_owned(),
                    name: name.to_owned(),
                    instructions: Vec::new(),
                });
            } else if let Some(stage) = file.stages.last_mut() {
                stage.instructions.push(instruction);
            } else {
                file.arguments.push(instruction);
            }
        }
        file
    }

    /// The stage of this name.
    pub(super) fn stage(&self, name: &str) -> &Stage {
        let found = self.stages.iter().find(|stage| stage.name == name);
        found.unwrap_or_else(|| panic!("no stage {name}"))
    }

    /// The final stage.
    pub(super) fn last(&self) -> &Stage {
        self.stages.last().expect("a stage")
    }
}

fn instructions(text: &str) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    let mut joined = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (part, goes_on) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        joined.push(' ');
        joined.push_str(part);
        if goes_on {
            continue;
        }
        let whole = std::mem::take(&mut joined);
        let mut words = whole.split_whitespace();
        let name = words.next().unwrap_or_default().to_uppercase();
        instructions.push(Instruction { name, rest: words.collect::<Vec<_>>().join(" ") });
    }
    assert!(joined.is_empty(), "the last instruction does not end: {joined}");
    instructions
}

#[test]
fn instructions_are_joined_and_sorted_into_stages() {
    let file = Dockerfile::parse(
        "# a comment\nARG V=1\nFROM --platform=$P rust:$V AS build\nrun a \\\n    # in between\n    && cargo build -x && b\n\
         COPY a b c/\nFROM scratch\nCOPY --from=build /a /b\nCMD [\"run\"]\n",
    );
    assert_eq!(file.arguments[0].rest, "V=1");
    let build = file.stage("build");
    assert_eq!((build.base.as_str(), build.instructions.len()), ("rust:$V", 2));
    assert_eq!(build.instructions[0].rest, "a && cargo build -x && b");
    assert_eq!(build.instructions[0].cargo_build(), Some("cargo build -x"));
    assert_eq!(build.instructions[1].copies(), Some((vec!["a", "b"], "c/")));
    assert_eq!(file.last().base, "scratch");
    assert_eq!(file.last().instructions[0].copies(), None);
    assert_eq!(file.last().only("CMD").unwrap().exec(), ["run"]);
    assert!(file.last().only("USER").is_none());
}
