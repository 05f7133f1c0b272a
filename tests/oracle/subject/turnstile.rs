//! A Permit plugin that obeys a label of the pod. Upstream's side has the same
//! (`testing/controlplane/oracle/turnstile.go`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::WaitingPod;
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{ExtensionPoints, Permit, PermitPlugin};
use supercargo_framework::pod::PodKey;
use supercargo_framework::registry::ArgsError;
use supercargo_framework::{Context, CycleState, Features, Plugin, PodInfo, Status};

/// The plugin's name and the label's key.
pub(in crate::oracle) const TURNSTILE: &str = "Turnstile";

/// The label with the name of the pod that a pod wakes.
const WAKES: &str = "Wakes";

/// The longest that a pod waits.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Turnstile;

impl Turnstile {
    #[expect(clippy::unnecessary_wraps, reason = "the registry's factories can fail")]
    pub(super) fn build(_: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
        Ok(Arc::new(Self))
    }
}

impl Plugin for Turnstile {
    fn name(&self) -> &'static str {
        TURNSTILE
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().permit(&self)
    }
}

impl PermitPlugin for Turnstile {
    fn permit(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
        match pod.labels.get(TURNSTILE).map(|value| &**value) {
            Some("reject") => return Permit::Reject(Status::unschedulable("the turnstile is shut")),
            Some("fail") => return Permit::Reject(Status::error("the turnstile is broken")),
            // The order in which two waits end would be random.
            Some("wait") if cx.waiting_pods().is_empty() => {
                // Until a whole second, when both sides handle what is due.
                let since = Duration::from_micros(u64::try_from(cx.now().wall.0 % 1_000_000).unwrap_or(0));
                return Permit::Wait(PATIENCE.saturating_sub(since));
            }
            Some("open") => {
                if let Some(WaitingPod { uid, .. }) = first(cx) {
                    cx.command(Command::Allow { pod: uid.clone(), plugin: TURNSTILE.into() });
                }
            }
            Some("shut") => {
                if let Some(WaitingPod { uid, .. }) = first(cx) {
                    let message = "another pod has shut the turnstile".into();
                    cx.command(Command::Reject { pod: uid.clone(), plugin: TURNSTILE.into(), message });
                }
            }
            Some("wake") => {
                if let Some(name) = pod.labels.get(WAKES) {
                    let other = PodKey { namespace: Arc::clone(&pod.namespace), name: (&**name).into() };
                    cx.command(Command::Activate(vec![other]));
                }
            }
            _ => {}
        }
        Permit::Allow
    }
}

/// The first waiting pod by namespace and name.
fn first<'a>(cx: &Context<'a>) -> Option<&'a WaitingPod> {
    cx.waiting_pods().iter().min_by_key(|pod| pod.key.to_string())
}
