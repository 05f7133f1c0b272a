package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// turnstileName is also the label that says what the plugin does with a pod.
const turnstileName = "Turnstile"

// longestHold is the longest that the turnstile holds a pod.
const longestHold = 20 * time.Second

// wakesLabel names the pod that a pod wakes.
const wakesLabel = "Wakes"

// turnstile is a Permit plugin that obeys a label: "reject" and "fail" end the attempt, and "wait"
// holds the pod, unless another one waits: the order in which two waits end would be random.
// "open", "shut" and "wake" let a pod pass. "open" also allows the first of the waiting pods by
// name, "shut" rejects it, and "wake" activates the pod that wakesLabel names.
type turnstile struct{ handle fwk.Handle }

var registry = runtime.Registry{
	turnstileName: func(_ context.Context, _ apiruntime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return &turnstile{handle}, nil
	},
}

func (*turnstile) Name() string { return turnstileName }

func (t *turnstile) Permit(
	ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string,
) (*fwk.Status, time.Duration) {
	switch pod.Labels[turnstileName] {
	case "reject":
		return fwk.NewStatus(fwk.Unschedulable, "the turnstile is shut"), 0
	case "fail":
		return fwk.NewStatus(fwk.Error, "the turnstile is broken"), 0
	case "wait":
		if t.first() != nil {
			return nil, 0
		}
		return fwk.NewStatus(fwk.Wait), untilWholeSecond()
	case "open":
		if waiting := t.first(); waiting != nil {
			waiting.Allow(turnstileName)
		}
	case "shut":
		if waiting := t.first(); waiting != nil {
			waiting.Reject(turnstileName, "another pod has shut the turnstile")
		}
	case "wake":
		pods := t.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace)
		if other, err := pods.Get(pod.Labels[wakesLabel]); err == nil {
			t.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{other.Name: other})
		}
	}
	return nil, 0
}

// first returns the first waiting pod by namespace and name.
func (t *turnstile) first() fwk.WaitingPod {
	var all []fwk.WaitingPod
	t.handle.IterateOverWaitingPods(func(pod fwk.WaitingPod) { all = append(all, pod) })
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b fwk.WaitingPod) int { return cmp.Compare(key(a.GetPod()), key(b.GetPod())) })
}

// untilWholeSecond ends with a second, when both sides handle what is due.
func untilWholeSecond() time.Duration {
	now := time.Now()
	return now.Add(longestHold).Truncate(time.Second).Sub(now)
}
