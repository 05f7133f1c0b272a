#!/usr/bin/env bash
# Runs the steps of docs/kind.md, checks each, then runs the suite of docs/testing-on-a-cluster.md.
# Needs docker with BuildKit, kind, kubectl and, for the suite, cargo. Takes some minutes.
#
#     tests/kind/run.sh
#     tests/kind/run.sh --dry-run   only prints the commands
#
# KIND_CLUSTER      name of the new cluster; default supercargo-test
# KIND_NODE_IMAGE   image of the nodes, which sets the Kubernetes version; default kind's own
# OVERLAY           the overlay in manifests/overlays to install: kind (default) or ha
# LOGS              folder for logs of a failed run; default: a new temporary folder
# KEEP=1            keeps the cluster at the end
set -euo pipefail
cd "$(dirname "$0")/../.."

cluster=${KIND_CLUSTER:-supercargo-test}
overlay=manifests/overlays/${OVERLAY:-kind}
case ${OVERLAY:-kind} in
    kind | ha) ;;
    # The others want what is not there: the Prometheus operator, a second control-plane node.
    *) echo "OVERLAY is $OVERLAY, and should be kind or ha" >&2; exit 2 ;;
esac
namespace=supercargo-system
image=$(sed -n 's/^ *image: //p' manifests/install.yaml)
version=${image##*:}

dry=
case ${1:-} in
    "") ;;
    --dry-run) dry=1 ;;
    *) echo "usage: tests/kind/run.sh [--dry-run]" >&2; exit 2 ;;
esac

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

step() {
    if [[ $dry ]]; then printf '\n== %s\n' "$*"; else printf '\n== %s (%ds)\n' "$*" "$SECONDS"; fi
}

# Runs a command, or prints it.
run() {
    if [[ $dry ]]; then printf '%s\n' "$*"; else "$@"; fi
}

# Compares what a command prints with what it should: expect WHAT WANTED COMMAND…
expect() {
    local what=$1 wanted=$2 found
    shift 2
    if [[ $dry ]]; then
        printf '%s\n    prints %s: %s\n' "$*" "${wanted:-nothing}" "$what"
        return
    fi
    found=$("$@") || fail "$what cannot be found out: $* failed"
    # shellcheck disable=SC2053 # it is a pattern
    [[ $found == $wanted ]] || fail "$what is \"$found\", not \"$wanted\""
}

# A command that must fail.
refuse() {
    local what=$1
    shift
    if [[ $dry ]]; then
        printf '%s\n    fails: %s\n' "$*" "$what"
    elif "$@" >/dev/null 2>&1; then
        fail "$what"
    fi
}

# The caller's kubectl stays where it points.
if [[ $dry ]]; then
    folder=FOLDER
else
    folder=$(mktemp -d)
fi
export KUBECONFIG=$folder/kubeconfig
created=

collect() {
    local logs=${LOGS:-}
    [[ $logs ]] || logs=$(mktemp -d -t supercargo-kind-XXXXXX)
    mkdir -p "$logs"
    step "what there was when it failed is in $logs"
    kind export logs "$logs" --name "$cluster" || true
    kubectl get nodes,pods,events --all-namespaces --output wide >"$logs/objects.txt" || true
    kubectl --namespace "$namespace" describe pods >"$logs/supercargo-pods.txt" || true
    kubectl --namespace "$namespace" logs --selector app.kubernetes.io/name=supercargo --prefix --tail=-1 \
        >"$logs/supercargo.log" || true
    tail -n 50 "$logs/objects.txt" "$logs/supercargo.log" || true
}

clean_up() {
    local code=$?
    if [[ $created ]]; then
        if ((code != 0)); then collect; fi
        if [[ ${KEEP:-} == 1 ]]; then
            echo "the cluster stays: export KUBECONFIG=$KUBECONFIG; kind delete cluster --name $cluster"
            exit "$code"
        fi
        kind delete cluster --name "$cluster" || true
    fi
    [[ $dry ]] || rm -rf "$folder"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Who says that a pod was scheduled. The event may come a moment after the binding.
scheduled_by() {
    local found='' tries
    for ((tries = 0; tries < 30; tries++)); do
        found=$(kubectl get events --field-selector "involvedObject.name=$1,reason=Scheduled" \
            --output 'jsonpath={.items[*].reportingComponent}')
        [[ $found ]] && break
        sleep 1
    done
    echo "$found"
}

node_of() { kubectl get pod "$1" --output 'jsonpath={.spec.nodeName}'; }

# How many nodes the pods with a label are on.
nodes_of() {
    kubectl get pods --selector "$1" --output 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' |
        sort -u | grep -c . || true
}

step "tools"
run docker version
run kind version
run kubectl version --client
run cargo --version
if [[ ! $dry ]] && kind get clusters 2>/dev/null | grep -Fqx "$cluster"; then
    fail "there is a cluster $cluster already; it is not ours to use"
fi

step "image $image"
run docker build --tag "$image" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" .
expect "the version" "supercargo $version*" docker run --rm "$image" --version
expect "the user" 65532:65532 docker image inspect --format '{{.Config.User}}' "$image"
refuse "the image has a shell" docker run --rm --entrypoint /bin/sh "$image" -c true

step "cluster $cluster"
[[ $dry ]] || created=1
run kind create cluster --name "$cluster" --config manifests/kind/cluster.yaml --wait 3m \
    ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"}
run kind load docker-image "$image" --name "$cluster"

step "install"
run kubectl apply --kustomize "$overlay"
run kubectl --namespace "$namespace" rollout status deployment/supercargo --timeout=3m

step "a pod that fits"
run kubectl apply -f manifests/examples/pod.yaml
run kubectl wait --for=condition=Ready pod/supercargo-example --timeout=3m
expect "the node of the example" "?*" node_of supercargo-example
expect "who scheduled the example" supercargo scheduled_by supercargo-example

step "a pod that does not"
run kubectl apply -f manifests/examples/too-large.yaml
run kubectl wait --for='jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' \
    pod/supercargo-too-large --timeout=1m
expect "what the condition says" "0/3 nodes are available: *Insufficient cpu*" \
    kubectl get pod supercargo-too-large \
    --output 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}'
expect "the node of a pod that does not fit" "" node_of supercargo-too-large

step "workloads on real kubelets"
run kubectl apply -f tests/kind/workloads.yaml
run kubectl rollout status deployment/supercargo-many --timeout=3m
expect "the number of nodes with pods of the Deployment" 2 nodes_of app=supercargo-many
run kubectl rollout status daemonset/supercargo-everywhere --timeout=3m
expect "the number of nodes with pods of the DaemonSet" 3 nodes_of app=supercargo-everywhere
run kubectl rollout status statefulset/supercargo-kept --timeout=3m
run kubectl wait --for='jsonpath={.status.phase}=Bound' pvc/data-supercargo-kept-0 --timeout=1m
run kubectl wait --for=condition=Complete job/supercargo-once --timeout=3m

step "a restart loses nothing"
run kubectl --namespace "$namespace" rollout restart deployment/supercargo
run kubectl scale deployment/supercargo-many --replicas=30
run kubectl --namespace "$namespace" rollout status deployment/supercargo --timeout=3m
run kubectl rollout status deployment/supercargo-many --timeout=3m

step "the suite"
run env "SUPERCARGO_E2E_KUBECONFIG=$KUBECONFIG" cargo test --locked --test integration e2e::suite

step "removal leaves running pods alone"
run kubectl delete --kustomize "$overlay" --timeout=3m
run kubectl wait --for=condition=Ready pod/supercargo-example --timeout=10s

if [[ $dry ]]; then
    step "the end"
    run kind delete cluster --name "$cluster"
else
    step "all of it held"
fi
