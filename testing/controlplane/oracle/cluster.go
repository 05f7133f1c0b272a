package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// The resource versions of the scheduler's first writes. Those of pods count separately: they say
// nothing, and whether a condition changes may depend on a message that is not compared.
const (
	firstOwnVersion    = 1_000_000
	firstOwnPodVersion = 5_000_000
)

var resources = map[schema.GroupVersionKind]schema.GroupVersionResource{}

func init() {
	for apiVersion, kinds := range map[string]map[string]string{
		"v1": {
			"Pod": "pods", "Node": "nodes", "Namespace": "namespaces", "Service": "services",
			"ReplicationController": "replicationcontrollers",
			"PersistentVolume":      "persistentvolumes",
			"PersistentVolumeClaim": "persistentvolumeclaims",
		},
		"apps/v1":   {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"},
		"policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
		"storage.k8s.io/v1": {
			"StorageClass": "storageclasses", "CSINode": "csinodes", "CSIDriver": "csidrivers",
			"CSIStorageCapacity": "csistoragecapacities", "VolumeAttachment": "volumeattachments",
		},
		"resource.k8s.io/v1": {
			"ResourceClaim": "resourceclaims", "ResourceSlice": "resourceslices", "DeviceClass": "deviceclasses",
			"DeviceTaintRule": "devicetaintrules",
		},
		"scheduling.k8s.io/v1beta1":  {"PodGroup": "podgroups"},
		"scheduling.k8s.io/v1alpha3": {"CompositePodGroup": "compositepodgroups"},
	} {
		for kind, resource := range kinds {
			gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
			resources[gvk] = gvk.GroupVersion().WithResource(resource)
		}
	}
}

var pods = v1.SchemeGroupVersion.WithResource("pods")

// cluster acts as the API server: a store with watches. The scheduler's writes wait in it until the
// history's goroutine admits them one by one, so that their order is deterministic.
type cluster struct {
	clientset *fake.Clientset
	tracker   clienttesting.ObjectTracker
	// The versions of the scheduler's next writes, and of those to pods.
	version, podVersion int

	mutex   sync.Mutex
	waiting []*request

	deleted []string
	writes  []Write
}

// request is a waiting write of the scheduler.
type request struct {
	verb     string
	resource string
	key      string
	run      func() error
	err      error
	done     chan struct{}
}

func newCluster() *cluster {
	clientset := fake.NewSimpleClientset()
	return &cluster{clientset: clientset, tracker: clientset.Tracker(), version: firstOwnVersion, podVersion: firstOwnPodVersion}
}

// await hands a write to the history's goroutine and waits until every watch has seen its effect.
func (c *cluster) await(verb, resource, namespace, name string, run func() error) error {
	r := &request{verb: verb, resource: resource, key: namespace + "/" + name, run: run, done: make(chan struct{})}
	c.mutex.Lock()
	c.waiting = append(c.waiting, r)
	c.mutex.Unlock()
	<-r.done
	return r.err
}

// take removes the first waiting write. Those that a cycle waits for come first.
func (c *cluster) take(isInCycle func(*request) bool) *request {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.waiting) == 0 {
		return nil
	}
	rank := func(r *request) int {
		if isInCycle(r) {
			return 0
		}
		return 1
	}
	first := 0
	for i, r := range c.waiting {
		f := c.waiting[first]
		if cmp.Or(
			cmp.Compare(rank(r), rank(f)), cmp.Compare(r.resource, f.resource), cmp.Compare(r.key, f.key), cmp.Compare(r.verb, f.verb),
		) < 0 {
			first = i
		}
	}
	r := c.waiting[first]
	c.waiting = slices.Delete(c.waiting, first, first+1)
	return r
}

// apply stores an object of the history. settle delivers earlier changes to every watch.
func (c *cluster) apply(raw []byte, settle func()) error {
	object, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return fmt.Errorf("decode the object: %w", err)
	}
	gvr, known := resources[*gvk]
	if !known {
		return fmt.Errorf("kind %v is not one of the oracle's", gvk)
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	c.see(accessor.GetResourceVersion())
	namespace, name := accessor.GetNamespace(), accessor.GetName()
	old, err := c.get(gvr, namespace, name)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if pod, ok := object.(*v1.Pod); ok && finished(pod) {
		if exists {
			return c.tracker.Delete(gvr, namespace, name)
		}
		return nil
	}
	if !exists {
		return c.tracker.Create(gvr, object, namespace)
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	if before.GetUID() != accessor.GetUID() {
		if err := c.tracker.Delete(gvr, namespace, name); err != nil {
			return err
		}
		settle()
		return c.tracker.Create(gvr, object, namespace)
	}
	switch object := object.(type) {
	case *v1.Pod:
		keep(old.(*v1.Pod), object)
	case *resource.ResourceClaim:
		keepShares(old.(*resource.ResourceClaim), object)
	}
	return c.tracker.Update(gvr, object, namespace)
}

// keep copies immutable fields to a new version of a pod: its node and its deletion.
func keep(old, pod *v1.Pod) {
	if old.Spec.NodeName != "" {
		pod.Spec.NodeName = old.Spec.NodeName
	}
	if old.DeletionTimestamp != nil {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	}
}

// finished reports whether the scheduler's pod informer filters out a pod.
func finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// remove deletes an object of the history.
func (c *cluster) remove(ref *Reference) error {
	gvr, known := resources[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
	if !known {
		return fmt.Errorf("kind %s %s is not one of the oracle's", ref.APIVersion, ref.Kind)
	}
	if err := c.tracker.Delete(gvr, ref.Namespace, ref.Name); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (c *cluster) get(gvr schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
	return c.tracker.Get(gvr, namespace, name)
}

// pods returns all pods.
func (c *cluster) pods() ([]v1.Pod, error) {
	list, err := c.tracker.List(pods, v1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	return list.(*v1.PodList).Items, nil
}

// store writes an object that the scheduler has changed.
func (c *cluster) store(gvr schema.GroupVersionResource, object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	counter := &c.version
	if gvr == pods {
		counter = &c.podVersion
	}
	accessor.SetResourceVersion(next(counter))
	return c.tracker.Update(gvr, object, accessor.GetNamespace())
}

// see makes the scheduler's next versions newer than one of the history.
func (c *cluster) see(version string) {
	seen, err := strconv.Atoi(version)
	if err == nil && seen >= c.version && seen < firstOwnPodVersion {
		c.version = seen + 1
	}
}

// next returns the resource version of a write, and counts.
func next(counter *int) string {
	version := strconv.Itoa(*counter)
	*counter++
	return version
}

// bind acts like the server for a Binding.
func (c *cluster) bind(binding *v1.Binding) error {
	object, err := c.get(pods, binding.Namespace, binding.Name)
	if err != nil {
		return err
	}
	pod := object.(*v1.Pod)
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(pods.GroupResource(), pod.Name, fmt.Errorf(format, args...))
	}
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", binding.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) != 0:
		return conflict("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	return c.store(pods, pod)
}

// deletePod acts like the server: a pod on a node with a grace period stays until the history
// deletes it.
func (c *cluster) deletePod(namespace, name string) error {
	object, err := c.get(pods, namespace, name)
	if err != nil {
		return err
	}
	c.deleted = append(c.deleted, namespace+"/"+name)
	pod := object.(*v1.Pod)
	grace := pod.Spec.TerminationGracePeriodSeconds
	if grace == nil || *grace <= 0 || pod.Spec.NodeName == "" {
		return c.tracker.Delete(pods, namespace, name)
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	end := metav1.NewTime(time.Now().Add(time.Duration(*grace) * time.Second).Truncate(time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, grace
	return c.store(pods, pod)
}

// update replaces an object unless it conflicts.
func (c *cluster) update(gvr schema.GroupVersionResource, object runtime.Object) (runtime.Object, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	namespace, name := accessor.GetNamespace(), accessor.GetName()
	old, err := c.get(gvr, namespace, name)
	if err != nil {
		return nil, err
	}
	stored, err := meta.Accessor(old)
	if err != nil {
		return nil, err
	}
	c.writes = append(c.writes, Write{Verb: "update", Resource: gvr.Resource, Name: name, Body: object.DeepCopyObject()})
	if version := accessor.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	object = object.DeepCopyObject()
	if reflect.DeepEqual(old, object) {
		return object, nil
	}
	if err := c.store(gvr, object); err != nil {
		return nil, err
	}
	return c.get(gvr, namespace, name)
}

// patchPod applies a strategic merge patch to a pod.
func (c *cluster) patchPod(namespace, name string, kind types.PatchType, patch []byte) (*v1.Pod, error) {
	if kind != types.StrategicMergePatchType {
		return nil, fmt.Errorf("patch type %s is not one of the oracle's", kind)
	}
	object, err := c.get(pods, namespace, name)
	if err != nil {
		return nil, err
	}
	old := object.(*v1.Pod)
	pod, err := patched(old, patch)
	if err != nil || pod == nil {
		return old, err
	}
	if pod.UID != old.UID {
		return nil, apierrors.NewConflict(pods.GroupResource(), name,
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", pod.UID, old.UID))
	}
	if err := c.store(pods, pod); err != nil {
		return nil, err
	}
	return pod.DeepCopy(), nil
}

// patched applies a strategic merge patch. It returns nil if the patch changes nothing.
func patched[T any](old *T, patch []byte) (*T, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, old)
	if err != nil {
		return nil, err
	}
	changed := new(T)
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	if string(before) == string(mustMarshal(changed)) {
		return nil, nil
	}
	return changed, nil
}

func mustMarshal(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}
