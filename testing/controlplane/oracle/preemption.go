package main

import (
	"context"
	"slices"
	_ "unsafe" // For the link to the function that picks.

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

//go:linkname pickOneNodeForPreemption k8s.io/kubernetes/pkg/scheduler/framework/preemption.pickOneNodeForPreemption
func pickOneNodeForPreemption(klog.Logger, map[string]*extenderv1.Victims, []func(node string) int64) string

// attempts is how often a pair of nodes is passed to upstream to learn whether it treats them as
// equal. Of equal nodes, it takes the first of a map, which is each of the two at least one time in
// eight.
const attempts = 100

// onlooker records the candidates of DefaultPreemption and makes its choice deterministic.
type onlooker struct {
	preemption.Interface
	watcher *watcher
	nodes   fwk.SharedLister
}

func (w *watcher) attachPreemption(fw framework.Framework) {
	for _, plugin := range *field[[]fwk.PostFilterPlugin](fw, "postFilterPlugins") {
		if pl, ok := plugin.(*defaultpreemption.DefaultPreemption); ok {
			pl.Evaluator.Interface = &onlooker{pl.Evaluator.Interface, w, fw.SnapshotSharedLister()}
		}
	}
}

// GetOffsetAndNumCandidates starts at the first node instead of a random one.
func (o *onlooker) GetOffsetAndNumCandidates(nodes int32) (int32, int32) {
	_, candidates := o.Interface.GetOffsetAndNumCandidates(nodes)
	return 0, candidates
}

func (o *onlooker) account() *Preemption {
	o.watcher.mutex.Lock()
	defer o.watcher.mutex.Unlock()
	cycle := o.watcher.cycle
	if cycle == nil {
		return &Preemption{Nodes: map[string]DryRun{}}
	}
	if cycle.Preemption == nil {
		cycle.Preemption = &Preemption{Nodes: map[string]DryRun{}, Tied: []string{}}
	}
	return cycle.Preemption
}

func (o *onlooker) SelectVictimsOnNode(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, possible []*preemption.DomainVictim,
	budgets []*policy.PodDisruptionBudget,
) ([]*v1.Pod, int, *fwk.Status) {
	name := node.Node().Name
	orderVictims(o.nodes, name, possible)
	victims, violations, status := o.Interface.SelectVictimsOnNode(ctx, state, pod, node, possible, budgets)
	if status.IsSuccess() && len(victims) == 0 {
		// Not a candidate: only an extender or Permit had rejected the node.
		return victims, violations, status
	}
	run := DryRun{Status: statusOf(status), Victims: []string{}, Violations: violations}
	for _, victim := range victims {
		run.Victims = append(run.Victims, key(victim))
	}
	o.account().Nodes[name] = run
	return victims, violations, status
}

// OrderedScoreFuncs asks upstream which candidates are the best, and prefers the first of them.
func (o *onlooker) OrderedScoreFuncs(
	ctx context.Context, victims map[string]*extenderv1.Victims,
) []func(node string) int64 {
	logger := klog.FromContext(ctx)
	scores := o.Interface.OrderedScoreFuncs(ctx, victims)
	best := pickOneNodeForPreemption(logger, victims, scores)
	tied := []string{}
	nodes, err := o.nodes.NodeInfos().List()
	if err != nil {
		return scores
	}
	for _, node := range nodes {
		name := node.Node().Name
		if victims[name] != nil && (name == best || equal(logger, victims, scores, best, name)) {
			tied = append(tied, name)
		}
	}
	o.account().Tied = tied
	return []func(string) int64{func(node string) int64 {
		if i := slices.Index(tied, node); i >= 0 {
			return int64(-i)
		}
		return int64(-len(tied))
	}}
}

// equal reports whether upstream would sometimes take the other node instead of the best.
func equal(
	logger klog.Logger, victims map[string]*extenderv1.Victims, scores []func(string) int64, best, other string,
) bool {
	pair := map[string]*extenderv1.Victims{other: victims[other], best: victims[best]}
	for range attempts {
		if pickOneNodeForPreemption(logger, pair, scores) == other {
			return true
		}
	}
	return false
}
