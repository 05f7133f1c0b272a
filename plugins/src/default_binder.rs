//! Binds pods through the API server.

use std::sync::Arc;

use supercargo_framework::binding::{ApiCall, BindOutcome, BindingContext, BoxFuture};
use supercargo_framework::plugin::{BindPlugin, ExtensionPoints};
use supercargo_framework::{Plugin, PodInfo};

/// The plugin's name.
pub const NAME: &str = "DefaultBinder";

#[derive(Default)]
pub(crate) struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().bind(&self)
    }
}

impl BindPlugin for DefaultBinder {
    fn bind(&self, cx: BindingContext, pod: Arc<PodInfo>, node: Arc<str>) -> BoxFuture<BindOutcome> {
        let call = cx.call(ApiCall::Bind { pod: pod.key(), uid: pod.uid.clone(), node });
        Box::pin(async move {
            match call.await {
                Ok(_) => BindOutcome::Bound,
                Err(error) => BindOutcome::Failed(error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;
    use std::task::{Poll, Waker};
    use std::time::Duration;

    use serde_json::{Value, json};
    use supercargo_framework::Text;
    use supercargo_framework::binding::{
        ApiError, BindingCalls, BindingReport, Certainty, Predicate, WaitError,
    };
    use supercargo_framework::testing::pod;

    use super::*;

    /// Returns the same response to every call, and records the calls.
    struct Server {
        answer: Result<Value, ApiError>,
        calls: Mutex<Vec<ApiCall>>,
    }

    impl BindingCalls for Server {
        fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
            self.calls.lock().unwrap().push(call);
            Box::pin(ready(self.answer.clone()))
        }

        fn written(&self, _: &Text, _: Value) {
            panic!("nothing is assumed after a write")
        }

        fn report(&self, report: BindingReport) {
            panic!("{report:?}")
        }

        fn wait_for(&self, _: Predicate, _: Duration) -> BoxFuture<Result<(), WaitError>> {
            Box::pin(ready(Err(WaitError::TimedOut)))
        }

        fn cancelled(&self) -> BoxFuture<()> {
            Box::pin(ready(()))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<()> {
            Box::pin(ready(()))
        }
    }

    fn bind(answer: Result<Value, ApiError>) -> (BindOutcome, Vec<ApiCall>) {
        let server = Arc::new(Server { answer, calls: Mutex::default() });
        let cx = BindingContext::new(Arc::clone(&server) as Arc<dyn BindingCalls>);
        let pod = Arc::new(pod("p").namespace("ns").uid("u1").build());
        let mut future = DefaultBinder.bind(cx, pod, "n1".into());
        let mut task = std::task::Context::from_waker(Waker::noop());
        let Poll::Ready(outcome) = future.as_mut().poll(&mut task) else {
            panic!("the server responds immediately");
        };
        let calls = server.calls.lock().unwrap().clone();
        (outcome, calls)
    }

    #[test]
    fn bind_sends_one_request_with_the_uid() {
        let (outcome, calls) = bind(Ok(json!({"status": "Success"})));
        assert_eq!(outcome, BindOutcome::Bound);
        let key = pod("p").namespace("ns").build().key();
        let expected = ApiCall::Bind { pod: key, uid: "u1".into(), node: "n1".into() };
        assert_eq!(calls, [expected]);
    }

    #[test]
    fn bind_errors_keep_their_certainty() {
        let error = ApiError { certainty: Certainty::Unknown, message: "context deadline exceeded".into() };
        assert_eq!(bind(Err(error.clone())).0, BindOutcome::Failed(error));
    }
}
