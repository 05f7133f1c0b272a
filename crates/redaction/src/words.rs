//! Texts that everybody knows: they stay as they are.

use std::collections::BTreeSet;

/// Keys of labels, taints and annotations that Kubernetes defines, and other names with a domain.
const KEYS: &[&str] = &[
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/hostname",
    "kubernetes.io/metadata.name",
    "kubernetes.io/no-provisioner",
    "kubernetes.io/os",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "resource.kubernetes.io/extended-resource-claim",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "statefulset.kubernetes.io/pod-name",
    "storage.alpha.kubernetes.io/migrated-plugins",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "volume.kubernetes.io/selected-node",
];

/// Words of the API and of this format, in no order.
const WORDS: &str = "
    true false True False Unknown None yes no
    In NotIn Exists DoesNotExist Gt Lt Equal
    NoSchedule PreferNoSchedule NoExecute Never PreemptLowerPriority
    Filesystem Block ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod
    Available Bound Released Failed Pending Lost Running Succeeded
    Unset AllNodes PerDevice All Unsupported Basic Pods Groups
    Ephemeral AzureFile Vsphere
    Added Permitted Deleted Ended Tick Drain
    Ready MemoryPressure DiskPressure PIDPressure NetworkUnavailable
    Unschedulable SchedulingGated SchedulerError PreemptionByScheduler
    TCP UDP SCTP Tcp Udp Sctp 0.0.0.0 ::
    cpu memory ephemeral-storage pods metadata.name
    podgroups extended-resources <extended-resources>
    amd64 arm64 linux windows default kube-system kube-public kube-node-lease
    default-scheduler supercargo
    apps batch apps/v1 batch/v1 v1
    Pod Node Namespace Service ReplicationController ReplicaSet StatefulSet DaemonSet Deployment Job
    PersistentVolume PersistentVolumeClaim StorageClass CSINode CSIDriver CSIStorageCapacity
    VolumeAttachment PodDisruptionBudget policy
    ResourceClaim ResourceSlice DeviceClass DeviceTaintRule PodGroup CompositePodGroup
    ebs.csi.aws.com pd.csi.storage.gke.io disk.csi.azure.com cinder.csi.openstack.org pxd.portworx.com
    file.csi.azure.com csi.vsphere.vmware.com
    aws: projects UNSPECIFIED zones regions disks
    LeastAllocated MostAllocated RequestedToCapacityRatio System List ScheduleAnyway DoNotSchedule
    Honor Ignore
";

/// Groups of the API, and domains of names that controllers of Kubernetes make.
const DOMAINS: &[&str] = &[
    "deviceclass.resource.kubernetes.io",
    "events.k8s.io",
    "policy.kubernetes.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The known texts.
pub(crate) struct Words(BTreeSet<&'static str>);

impl Default for Words {
    fn default() -> Self {
        let domains_of_keys = KEYS.iter().filter_map(|key| Some(key.split_once('/')?.0));
        let names = KEYS.iter().chain(DOMAINS).copied();
        Self(names.chain(domains_of_keys).chain(WORDS.split_whitespace()).collect())
    }
}

impl Words {
    /// Whether a text says nothing about a cluster.
    pub(crate) fn has(&self, text: &str) -> bool {
        text.is_empty()
            || self.0.contains(text)
            || is_version_of_api(text)
            || is_huge_page(text)
            || is_request_of_extended_resource(text)
            || is_uuid(text)
    }
}

/// Such as `v1beta2`.
fn is_version_of_api(text: &str) -> bool {
    let digits = |text: &str| matches!(text.len(), 1..=2) && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = text.strip_prefix('v') else { return false };
    let stage = ["alpha", "beta"].into_iter().find_map(|stage| rest.split_once(stage));
    stage.map_or(digits(rest), |(version, number)| digits(version) && digits(number))
}

/// Such as `hugepages-2Mi`.
fn is_huge_page(text: &str) -> bool {
    text.strip_prefix("hugepages-").is_some_and(is_amount)
}

/// Such as `container-0-request-1`, as the scheduler names requests.
fn is_request_of_extended_resource(text: &str) -> bool {
    let numbers = text.strip_prefix("container-").and_then(|rest| rest.split_once("-request-"));
    numbers.is_some_and(|(container, request)| is_number(container) && is_number(request))
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

fn is_uuid(text: &str) -> bool {
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let fits =
        |(place, byte): (usize, u8)| if is_hyphen(place) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// Whether this can be a quantity, such as `80Gi`.
pub(crate) fn is_amount(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_exponent =
        || rest.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i16>().is_ok());
    let is_unit = matches!(
        rest,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    rest.len() < unsigned.len() && (is_unit || is_exponent())
}

/// Whether this is a version of numbers only, such as `550.54.15`.
pub(crate) fn is_plain_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_kubernetes_are_known() {
        let words = Words::default();
        for text in [
            "",
            "kubernetes.io/hostname",
            "resource.k8s.io",
            "topology.kubernetes.io",
            "v1beta1",
            "hugepages-2Mi",
            "container-0-request-12",
            "0a1b2c3d-0000-4000-8000-00000000000f",
        ] {
            assert!(words.has(text), "{text}");
        }
        for text in [
            "team-a",
            "notkubernetes.io",
            "k8s.io/secret",
            "team-a.kubernetes.io",
            "team-a.k8s.io",
            "v123",
            "vault",
            "v1beta",
            "hugepages-of-a",
            "container-a-request-1",
            "0a1b2c3d-0000-4000-8000-00000000000g",
            "123456789012",
        ] {
            assert!(!words.has(text), "{text}");
        }
    }

    #[test]
    fn amounts_and_versions_have_no_words() {
        assert!(["1", "-1.5", "80Gi", "100m", "1e3"].into_iter().all(is_amount));
        assert!(!["", "Gi", "-", "1x", "1ex", "a1"].into_iter().any(is_amount));
        assert!(is_plain_version("550.54.15") && !is_plain_version("1.0.0-team") && !is_plain_version(""));
    }
}
