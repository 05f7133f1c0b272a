#!/usr/bin/env bash
# docs/kind.md by machine, with a check after every step. Needs docker (with BuildKit), kind and kubectl, and some minutes.
#
#     tests/kind/run.sh
#
# KIND_CLUSTER    what to call the cluster, which must not exist yet; else supercargo-test
# KEEP=1          leave the cluster there in the end
set -euo pipefail
cd "$(dirname "$0")/../.."

cluster=${KIND_CLUSTER:-supercargo-test}
namespace=supercargo-system
image=$(sed -n 's/^ *image: //p' manifests/install.yaml)
version=${image##*:}

step() { printf '\n== %s (%ds)\n' "$*" "$SECONDS"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
expect() { [[ $2 == "$3" ]] || fail "$1 is \"$2\", not \"$3\""; }

for program in docker kind kubectl; do
    command -v "$program" >/dev/null || fail "$program is missing"
done
if kind get clusters 2>/dev/null | grep -Fqx "$cluster"; then
    fail "there is a cluster $cluster already; it is not ours to use"
fi

# The caller's kubectl stays where it points.
folder=$(mktemp -d)
export KUBECONFIG=$folder/kubeconfig
created=

clean_up() {
    local code=$?
    if [[ $created ]]; then
        if ((code != 0)); then
            step "what there was when it failed"
            kubectl get nodes,pods --all-namespaces --output wide || true
            kubectl get events --all-namespaces || true
            kubectl --namespace "$namespace" describe pods || true
            kubectl --namespace "$namespace" logs deployment/supercargo --tail=100 || true
        fi
        if [[ ${KEEP:-} == 1 ]]; then
            echo "the cluster stays: export KUBECONFIG=$KUBECONFIG; kind delete cluster --name $cluster"
            exit "$code"
        fi
        kind delete cluster --name "$cluster" || true
    fi
    rm -rf "$folder"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Who says that the pod was scheduled. The event may come a moment after the binding.
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

step "image $image"
docker build --tag "$image" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" .
expect "the version" "$(docker run --rm "$image" --version)" "supercargo $version"
expect "the user" "$(docker image inspect --format '{{.Config.User}}' "$image")" 65532:65532
if docker run --rm --entrypoint /bin/sh "$image" -c true 2>/dev/null; then
    fail "the image has a shell"
fi

step "cluster $cluster"
created=1
kind create cluster --name "$cluster" --config manifests/kind/cluster.yaml --wait 3m
kind load docker-image "$image" --name "$cluster"

step "install"
kubectl apply -f manifests/install.yaml
kubectl --namespace "$namespace" rollout status deployment/supercargo --timeout=3m

step "a pod that fits"
kubectl apply -f manifests/examples/pod.yaml
kubectl wait --for=condition=Ready pod/supercargo-example --timeout=3m
[[ $(node_of supercargo-example) ]] || fail "the example has no node"
expect "who scheduled the example" "$(scheduled_by supercargo-example)" supercargo

step "a pod that does not"
kubectl apply -f manifests/examples/too-large.yaml
kubectl wait --for='jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' \
    pod/supercargo-too-large --timeout=1m
message=$(kubectl get pod supercargo-too-large \
    --output 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}')
echo "$message"
[[ $message == "0/3 nodes are available: "*"Insufficient cpu"* ]] || fail "the condition does not say why"
expect "the node of a pod that does not fit" "$(node_of supercargo-too-large)" ""

step "a Deployment's pods on both workers"
kubectl apply -f - <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: supercargo-many
spec:
  replicas: 20
  selector:
    matchLabels: {app: supercargo-many}
  template:
    metadata:
      labels: {app: supercargo-many}
    spec:
      schedulerName: supercargo
      containers:
        - name: pause
          image: registry.k8s.io/pause:3.10
          resources:
            requests: {cpu: 10m}
YAML
kubectl rollout status deployment/supercargo-many --timeout=3m
nodes=$(kubectl get pods --selector app=supercargo-many \
    --output 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)
expect "the number of nodes with such pods" "$((nodes))" 2

step "a restart loses nothing"
kubectl --namespace "$namespace" rollout restart deployment/supercargo
kubectl --namespace "$namespace" rollout status deployment/supercargo --timeout=3m
kubectl scale deployment/supercargo-many --replicas=30
kubectl rollout status deployment/supercargo-many --timeout=3m

step "removal leaves running pods alone"
kubectl delete -f manifests/install.yaml --timeout=3m
kubectl wait --for=condition=Ready pod/supercargo-example --timeout=10s

step "all of it held"
