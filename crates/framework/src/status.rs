//! The result of a plugin: a code and reasons.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::text::Text;

/// Upstream's status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// The plugin ran and does not reject the pod.
    #[default]
    Success,
    /// An internal or API error.
    Error,
    /// The pod cannot run on the node now; evicting pods might help.
    Unschedulable,
    /// The pod cannot run on the node, and evicting pods does not help.
    UnschedulableAndUnresolvable,
    /// Permit only: hold the pod.
    Wait,
    /// The plugin does not apply to this pod.
    Skip,
    /// The pod waits for something in flight. When that arrives, the pod is retried without
    /// backoff.
    Pending,
}

impl Code {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Error => "Error",
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Pending => "Pending",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reasons in the plugin's order. Usually one; two fit without an allocation.
pub type Reasons = SmallVec<[Text; 2]>;

/// The result of running a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    code: Code,
    plugin: Text,
    reasons: Reasons,
}

impl Status {
    /// The plugin does not reject the pod.
    pub const fn success() -> Self {
        Self { code: Code::Success, plugin: Text::EMPTY, reasons: SmallVec::new_const() }
    }

    /// The plugin does not apply to this pod.
    pub const fn skip() -> Self {
        Self { code: Code::Skip, plugin: Text::EMPTY, reasons: SmallVec::new_const() }
    }

    /// A status with one reason.
    pub fn new(code: Code, reason: impl Into<Text>) -> Self {
        Self { code, plugin: Text::EMPTY, reasons: SmallVec::from_iter([reason.into()]) }
    }

    /// A status with several reasons.
    pub fn with_reasons(code: Code, reasons: Reasons) -> Self {
        Self { code, plugin: Text::EMPTY, reasons }
    }

    /// Rejected; evicting pods might help.
    pub fn unschedulable(reason: impl Into<Text>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// Rejected; evicting pods does not help.
    pub fn unresolvable(reason: impl Into<Text>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// An error.
    pub fn error(reason: impl Into<Text>) -> Self {
        Self::new(Code::Error, reason)
    }

    /// The same status with the plugin's name, unless it has one.
    pub fn by(mut self, plugin: impl Into<Text>) -> Self {
        if self.plugin.is_empty() {
            self.plugin = plugin.into();
        }
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The plugin that returned the status; empty if unknown.
    pub fn plugin(&self) -> &Text {
        &self.plugin
    }

    /// The reasons.
    pub fn reasons(&self) -> &[Text] {
        &self.reasons
    }

    /// The reasons joined by ", ", as upstream's `Status.Message`.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }

    /// Whether the code is Success.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// Whether the code is Skip.
    pub fn is_skip(&self) -> bool {
        self.code == Code::Skip
    }

    /// Whether the plugin rejected the pod: Unschedulable, UnschedulableAndUnresolvable or Pending.
    pub fn is_rejected(&self) -> bool {
        matches!(self.code, Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending)
    }
}

/// `join` for a slice of [`Text`].
trait Join {
    fn join(&self, separator: &str) -> String;
}

impl Join for Reasons {
    fn join(&self, separator: &str) -> String {
        let mut joined = String::new();
        for (i, reason) in self.iter().enumerate() {
            if i > 0 {
                joined.push_str(separator);
            }
            joined.push_str(reason);
        }
        joined
    }
}
