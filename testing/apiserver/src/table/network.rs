//! Services and other networking kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::Layout;
use super::access::{age, has, items, joined, name, number, present_or, text, text_or};
use super::columns::{AGE, NAME, text as column, wide};
use super::selector::{label_selector_cell, labels};

pub(super) static SERVICES: Layout = Layout {
    columns: &[
        NAME,
        column("Type"),
        column("Cluster-IP"),
        column("External-IP"),
        column("Port(s)"),
        AGE,
        wide("Selector"),
    ],
    cells: service,
};

pub(super) static ENDPOINTS: Layout = Layout { columns: &[NAME, column("Endpoints"), AGE], cells: endpoints };

pub(super) static ENDPOINT_SLICES: Layout = Layout {
    columns: &[NAME, column("AddressType"), column("Ports"), column("Endpoints"), AGE],
    cells: endpoint_slice,
};

pub(super) static INGRESSES: Layout = Layout {
    columns: &[NAME, column("Class"), column("Hosts"), column("Address"), column("Ports"), AGE],
    cells: ingress,
};

pub(super) static NETWORK_POLICIES: Layout =
    Layout { columns: &[NAME, column("Pod-Selector"), AGE], cells: network_policy };

/// The maximum number of list items in a cell.
const SHOWN: usize = 3;

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let cluster_ip = match items(service, "/spec/clusterIPs").first().and_then(Value::as_str) {
        Some(ip) => ip,
        None => text_or(service, "/spec/clusterIP", "<none>"),
    };
    let ports: Vec<String> = items(service, "/spec/ports").iter().map(service_port).collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    vec![
        name(service),
        text(service, "/spec/type").into(),
        cluster_ip.into(),
        external_ip(service).into(),
        ports.into(),
        age(service, now),
        labels(service, "/spec/selector").into(),
    ]
}

fn service_port(port: &Value) -> String {
    let (number_, protocol) = (number(port, "/port"), text_or(port, "/protocol", "TCP"));
    match number(port, "/nodePort") {
        node_port @ 1.. => format!("{number_}:{node_port}/{protocol}"),
        _ => format!("{number_}/{protocol}"),
    }
}

fn external_ip(service: &Value) -> String {
    let external = joined(service, "/spec/externalIPs");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses that a load balancer has assigned.
fn load_balancer(object: &Value) -> String {
    let addresses: BTreeSet<&str> = items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| text_or(ingress, "/ip", text(ingress, "/hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn endpoints(endpoints: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(endpoints), addresses(items(endpoints, "/subsets")).into(), age(endpoints, now)]
}

fn addresses(subsets: &[Value]) -> String {
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = items(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            let port = number(port, "/port");
            all.extend(
                addresses.clone().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    shorten(&all)
}

/// The first items, and the number of the others.
fn shorten(all: &[String]) -> String {
    match all.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} + {more} more...", all[..SHOWN].join(",")),
        _ => all.join(","),
    }
}

fn shorten_or_unset(all: &[String]) -> String {
    let short = shorten(all);
    if short.is_empty() { "<unset>".to_owned() } else { short }
}

fn endpoint_slice(slice: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(slice, "/ports").iter().map(slice_port).collect();
    let addresses: Vec<String> = items(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .map(|address| address.as_str().unwrap_or_default().to_owned())
        .collect();
    vec![
        name(slice),
        text(slice, "/addressType").into(),
        shorten_or_unset(&ports).into(),
        shorten_or_unset(&addresses).into(),
        age(slice, now),
    ]
}

fn slice_port(port: &Value) -> String {
    if has(port, "/port") {
        number(port, "/port").to_string()
    } else {
        present_or(port, "/name", "*").to_owned()
    }
}

fn ingress(ingress: &Value, now: Timestamp) -> Vec<Value> {
    let ports = if items(ingress, "/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(ingress),
        present_or(ingress, "/spec/ingressClassName", "<none>").into(),
        hosts(items(ingress, "/spec/rules")).into(),
        load_balancer(ingress).into(),
        ports.into(),
        age(ingress, now),
    ]
}

fn hosts(rules: &[Value]) -> String {
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= hosts.len() == SHOWN;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match hosts.join(",") {
        none if none.is_empty() => "*".to_owned(),
        // Upstream counts rules here, including those without a host.
        hosts if more => format!("{hosts} + {} more...", rules.len() - SHOWN),
        hosts => hosts,
    }
}

fn network_policy(policy: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(policy), label_selector_cell(policy, "/spec/podSelector").into(), age(policy, now)]
}
