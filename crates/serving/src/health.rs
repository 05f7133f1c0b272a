//! Health checks and the responses of `/healthz`, `/livez` and `/readyz`, in upstream's format.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;

use super::slis::Slis;
use super::text::{plain, plain_line};

/// A health check: returns the problem, if any. Must not block.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of each probe. A probe without checks has `ping`, which always succeeds.
#[derive(Clone, Default)]
pub struct Checks {
    /// For `/healthz`: kube-scheduler checks `leaderElection` here, if it takes part in one.
    pub healthz: Probe,
    /// For `/livez`.
    pub livez: Probe,
    /// For `/readyz`: kube-scheduler checks `leaderElection`, `shutdown` and `sched-handler-sync`
    /// here.
    pub readyz: Probe,
}

/// The checks of one probe, in order.
#[derive(Clone, Default)]
pub struct Probe(Vec<(&'static str, Check)>);

impl Probe {
    /// Adds a check.
    pub fn add(
        &mut self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.push((name, Arc::new(check)));
    }

    /// The checks, or `ping`.
    fn checks(&self) -> Vec<(&'static str, Check)> {
        if self.0.is_empty() { vec![("ping", Arc::new(|| Ok(())))] } else { self.0.clone() }
    }

    /// The response of the probe. `query` has the query parameters: `verbose`, and checks to skip
    /// as `exclude`.
    pub(super) fn all(&self, name: &str, query: &[(String, String)], slis: &Slis) -> Response {
        let of = |key: &'static str| query.iter().filter(move |(name, _)| name == key);
        let mut excluded: BTreeSet<&str> = of("exclude").map(|(_, check)| check.as_str()).collect();
        let (mut report, mut failures) = (String::new(), Vec::new());
        for (check, run) in self.checks() {
            let line = if excluded.remove(check) {
                format!("[+]{check} excluded: ok")
            } else {
                let reported = run();
                slis.observe(check, name, reported.is_ok());
                match reported {
                    Ok(()) => format!("[+]{check} ok"),
                    Err(problem) => {
                        failures.push(format!("{check}: {problem}"));
                        // Probes are public; problems are shown only by the check's own path, which
                        // requires authorization.
                        format!("[-]{check} failed: reason withheld")
                    }
                }
            };
            report.push_str(&line);
            report.push('\n');
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            // Writing to a string cannot fail.
            let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {names}");
        }
        if !failures.is_empty() {
            tracing::info!(probe = name, failures = failures.join("; "), "health check failed");
            return plain_line(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{name} check failed"));
        }
        if of("verbose").next().is_none() {
            return plain(StatusCode::OK, "ok");
        }
        plain_line(StatusCode::OK, format!("{report}{name} check passed"))
    }

    /// The response of one check; `None` if it does not exist.
    pub(super) fn one(&self, name: &str) -> Option<Response> {
        let (_, run) = self.checks().into_iter().find(|(check, _)| *check == name)?;
        Some(match run() {
            Ok(()) => plain(StatusCode::OK, "ok"),
            Err(problem) => {
                let text = format!("internal server error: {problem}");
                plain_line(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn reported(response: Response) -> (u16, String) {
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn query(text: &str) -> Vec<(String, String)> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(a, b)| (a.into(), b.into()))
            .collect()
    }

    #[tokio::test]
    async fn probes_have_upstreams_format() {
        let (mut probe, slis) = (Probe::default(), Slis::default());
        assert_eq!(
            reported(probe.all("livez", &query("verbose"), &slis)).await,
            (200, "[+]ping ok\nlivez check passed\n".into())
        );
        probe.add("shutdown", || Ok(()));
        probe.add("sched-handler-sync", || Err("pods".to_owned()));
        let failed = "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n";
        for (asked, status, text) in [
            ("", 500, failed),
            ("verbose", 500, failed),
            ("exclude=sched-handler-sync", 200, "ok"),
            (
                "verbose&exclude=sched-handler-sync&exclude=x",
                200,
                "[+]shutdown ok\n[+]sched-handler-sync excluded: ok\n\
                 warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n",
            ),
        ] {
            let all = reported(probe.all("readyz", &query(asked), &slis)).await;
            assert_eq!(all, (status, text.to_owned()), "{asked}");
        }
        assert_eq!(reported(probe.one("shutdown").unwrap()).await, (200, "ok".into()));
        let one = reported(probe.one("sched-handler-sync").unwrap()).await;
        assert_eq!(one, (500, "internal server error: pods\n".into()));
        assert!(probe.one("ping").is_none());
    }
}
