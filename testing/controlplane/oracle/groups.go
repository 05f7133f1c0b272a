package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulingv1beta1 "k8s.io/client-go/kubernetes/typed/scheduling/v1beta1"
	"k8s.io/kubernetes/pkg/scheduler/backend/heap"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

var podGroups = scheduling.SchemeGroupVersion.WithResource("podgroups")

func (c *client) SchedulingV1beta1() schedulingv1beta1.SchedulingV1beta1Interface {
	return &schedulingClient{SchedulingV1beta1Interface: c.Interface.SchedulingV1beta1(), cluster: c.cluster}
}

type schedulingClient struct {
	schedulingv1beta1.SchedulingV1beta1Interface
	cluster *cluster
}

func (c *schedulingClient) PodGroups(namespace string) schedulingv1beta1.PodGroupInterface {
	return &podGroupClient{c.SchedulingV1beta1Interface.PodGroups(namespace), c.cluster, namespace}
}

type podGroupClient struct {
	schedulingv1beta1.PodGroupInterface
	cluster   *cluster
	namespace string
}

// Patch patches the status.
func (c *podGroupClient) Patch(
	ctx context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, subresources ...string,
) (group *scheduling.PodGroup, err error) {
	if kind != types.StrategicMergePatchType || !slices.Equal(subresources, []string{"status"}) {
		return nil, fmt.Errorf("patch type %s of %v is not one of the oracle's", kind, subresources)
	}
	err = c.cluster.await("patch status", podGroups.Resource, c.namespace, name, func() error {
		// Its effect is among the groups of the answer.
		c.cluster.writes = append(c.cluster.writes,
			Write{Verb: "patch status", Resource: podGroups.Resource, Name: name, Body: json.RawMessage("null")})
		group, err = c.cluster.patchPodGroup(c.namespace, name, patch)
		return err
	})
	return group, err
}

func (c *cluster) patchPodGroup(namespace, name string, patch []byte) (*scheduling.PodGroup, error) {
	object, err := c.get(podGroups, namespace, name)
	if err != nil {
		return nil, err
	}
	group, err := patched(object.(*scheduling.PodGroup), patch)
	if err != nil || group == nil {
		return object.(*scheduling.PodGroup), err
	}
	if err := c.store(podGroups, group); err != nil {
		return nil, err
	}
	return group.DeepCopy(), nil
}

// groups returns the state of all PodGroups.
func (c *cluster) groups() (map[string]Group, error) {
	groups := map[string]Group{}
	list, err := c.tracker.List(podGroups, scheduling.SchemeGroupVersion.WithKind("PodGroup"), metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	for _, group := range list.(*scheduling.PodGroupList).Items {
		answer := Group{}
		if found := meta.FindStatusCondition(group.Status.Conditions, scheduling.PodGroupInitiallyScheduled); found != nil {
			answer.Condition = &Condition{
				Status: string(found.Status), Reason: found.Reason, Message: found.Message,
				ObservedGeneration: found.ObservedGeneration,
			}
			answer.Since = found.LastTransitionTime.Unix()
		}
		groups[group.Namespace+"/"+group.Name] = answer
	}
	return groups, nil
}

// beginGroup starts the record of a group's cycle.
func (w *watcher) beginGroup(group *framework.QueuedPodGroupInfo) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.trials = []*Cycle{}
	w.members = map[string]bool{}
	group.ForEachPodInfo(func(info *framework.QueuedPodInfo) bool {
		w.members[key(info.Pod)] = true
		w.attempts[key(info.Pod)] = info.Attempts
		return true
	})
}

// dateGroups makes a group that appears as old as the oldest of its pods, where upstream takes
// any of those that waited for it.
func (p *player) dateGroups(waited sets.Set[types.UID]) {
	active := p.active()
	for _, entity := range slices.Concat(active.List(), slices.Collect(maps.Values(p.waiting()))) {
		group, ok := entity.(*framework.QueuedPodGroupInfo)
		if !ok {
			continue
		}
		isNew := true
		oldest := group.Timestamp
		group.ForEachPodInfo(func(info *framework.QueuedPodInfo) bool {
			isNew = isNew && waited.Has(info.Pod.UID)
			if info.Timestamp.Before(oldest) {
				oldest = info.Timestamp
			}
			return true
		})
		if isNew && oldest.Before(group.Timestamp) {
			group.Timestamp = oldest
			if active.Has(group) {
				active.AddOrUpdate(group)
			}
		}
	}
}

// incomplete returns the pods that wait for a group.
func (p *player) incomplete() sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for _, pod := range p.sched.SchedulingQueue.IncompletePodGroupPodsPods() {
		uids.Insert(pod.UID)
	}
	return uids
}

// active returns the heap of activeQ.
func (p *player) active() *heap.Heap[framework.QueuedEntityInfo] {
	queue := reflect.ValueOf(p.sched.SchedulingQueue).Elem().FieldByName("activeQ").Elem().Elem().FieldByName("queue")
	return (*heap.Heap[framework.QueuedEntityInfo])(queue.UnsafePointer())
}

// waiting returns unschedulableEntities.
func (p *player) waiting() map[string]framework.QueuedEntityInfo {
	all := reflect.ValueOf(p.sched.SchedulingQueue).Elem().FieldByName("unschedulableEntities").Elem()
	entities := all.FieldByName("entityInfoMap")
	return *(*map[string]framework.QueuedEntityInfo)(unsafe.Pointer(entities.UnsafeAddr()))
}
