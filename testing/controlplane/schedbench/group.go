package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	base "k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	dto "github.com/prometheus/client_model/go"
)

// GroupCycle is the cycle of one group. Times are nanoseconds of wall time.
type GroupCycle struct {
	// Wall is the time of all of it, the start of the bindings included.
	Wall int64 `json:"wall"`
	// Algorithm is the time until all of its pods have been tried.
	Algorithm int64 `json:"algorithm"`
	Bound     int   `json:"bound"`
	Failed    int   `json:"failed"`
}

// outcomes are those of the pods of one group.
type outcomes struct {
	mutex  sync.Mutex
	bound  map[string]string
	failed int
	ended  chan struct{}
	left   int
}

func (o *outcomes) expect(pods int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.bound, o.failed, o.left, o.ended = map[string]string{}, 0, pods, make(chan struct{})
}

func (o *outcomes) add(change func()) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	change()
	if o.left--; o.left == 0 {
		close(o.ended)
	}
}

// watchBindings notes which pods are bound.
func (b *bench) watchBindings(client *fake.Clientset) {
	client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(k8stesting.CreateAction)
		if !ok || action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding, ok := create.GetObject().(*v1.Binding)
		if !ok {
			return false, nil, nil
		}
		b.outcomes.add(func() { b.outcomes.bound[binding.Name] = binding.Target.Name })
		return true, binding, nil
	})
}

// watchFailures notes which pods fail.
func (b *bench) watchFailures() {
	handle := b.sched.FailureHandler
	b.sched.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo,
		status *fwk.Status, nomination *fwk.NominatingInfo, start time.Time) {
		handle(ctx, profile, pod, status, nomination, start)
		b.outcomes.add(func() { b.outcomes.failed++ })
	}
}

// group takes the pods of a group through the queue and one cycle. Those that find a node count as
// bound afterwards, and the others leave.
func (b *bench) group(raws []json.RawMessage) (*GroupCycle, error) {
	if b.sched == nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	var pods []*v1.Pod
	for _, raw := range raws {
		pod, err := decodePod(raw)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	b.outcomes.expect(len(pods))
	for _, pod := range pods {
		b.sched.Cache.AddPodGroupMember(pod)
		b.sched.SchedulingQueue.Add(b.ctx, pod)
	}
	// The event of the last pod: the group is complete.
	last := pods[len(pods)-1]
	b.sched.SchedulingQueue.MoveAllToActiveOrBackoffQueue(b.logger, framework.EventUnscheduledPodAdd, nil, last, nil)
	before := algorithmTime()
	started := time.Now()
	b.sched.ScheduleOne(b.ctx)
	cycle := &GroupCycle{Wall: time.Since(started).Nanoseconds(), Algorithm: algorithmTime() - before}
	<-b.outcomes.ended
	cycle.Bound, cycle.Failed = len(b.outcomes.bound), b.outcomes.failed
	for _, pod := range pods {
		node, ok := b.outcomes.bound[pod.Name]
		if !ok {
			b.sched.SchedulingQueue.Delete(b.logger, pod)
			continue
		}
		bound := pod.DeepCopy()
		bound.Spec.NodeName = node
		if err := b.sched.Cache.AddPod(b.logger, bound); err != nil {
			return nil, fmt.Errorf("add a pod: %w", err)
		}
	}
	return cycle, nil
}

// algorithmTime is the sum of upstream's own measurements, in nanoseconds.
func algorithmTime() int64 {
	var metric dto.Metric
	histogram, ok := metrics.PodGroupSchedulingAlgorithmLatency.ObserverMetric.(base.Metric)
	if !ok {
		panic("upstream does not measure groups: the gate GenericWorkload is off")
	}
	if err := histogram.Write(&metric); err != nil {
		panic(err)
	}
	return int64(metric.GetHistogram().GetSampleSum() * 1e9)
}
