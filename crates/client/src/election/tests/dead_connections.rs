//! Connections that are silently dead: open, and nothing comes through.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use supercargo_apiserver::{ApiServer, Listen};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::{Elector, Fence, Timing};
use super::world::{lease_name, spec};
use crate::api::Api;
use crate::connection::Connection;
use crate::host::Host;
use crate::testing::Proxy;
use crate::transport::Transport;

/// A short lease, for a test in real time.
const SHORT: Timing = Timing {
    lease_duration: Duration::from_secs(6),
    renew_deadline: Duration::from_secs(5),
    retry_period: Duration::from_secs(1),
};

/// Freezes the connection of a leader, and waits until its lease would have expired.
async fn freeze(prepare: impl FnOnce(Transport) -> Transport) {
    let server = ApiServer::default();
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let uri: Uri = endpoint.url().parse().unwrap();
    let address = uri.authority().unwrap().as_str().parse().unwrap();
    let proxy = Proxy::to(address).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    endpoint.write_kubeconfig(&path).unwrap();
    let through: Uri = format!("https://{}", proxy.address()).parse().unwrap();
    let connection = Connection::open(Some(&through), Some(&path)).await.unwrap();
    let api = Api::over(prepare(Transport::connect(connection).unwrap()), None, false);
    let host = Host::local();
    let (fence, resign) = (Fence::new(Arc::clone(&host.clock)), CancellationToken::new());
    let elector = Elector::new(lease_name(), SHORT, api, None, "supercargo".into(), fence.clone(), host);
    let mut leadership = elector.leadership();
    let task = tokio::spawn(elector.run(resign.clone()));
    leadership.wait_for(|leadership| leadership.is_leader).await.unwrap();
    proxy.freeze();
    sleep(SHORT.lease_duration + SHORT.retry_period).await;
    assert!(leadership.borrow().is_leader && fence.is_open());
    resign.cancel();
    assert!(task.await.unwrap().is_none());
    assert_eq!(spec(&server).await["leaseTransitions"], 0);
}

#[tokio::test]
async fn pings_or_a_fresh_connection_keep_the_lead() {
    let pinged = freeze(|transport| transport.pinged_every(SHORT.retry_period));
    // The pings of other clients come too late, so only the fresh connection helps.
    tokio::join!(pinged, freeze(|transport| transport));
}
