package main

import (
	"context"
	"reflect"
	"sync"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watcher observes scheduling cycles.
type watcher struct {
	mutex sync.Mutex
	cycle *Cycle
	// trials are the cycles of a group's pods; nil unless a group is in its cycle.
	trials []*Cycle
	// members are the pods of that group.
	members map[string]bool
	// attempts counts how often pods have been popped.
	attempts map[string]int
}

// field gives access to an unexported field of an interface's value, so that the real instances of
// plugins can be called one by one.
func field[T any](holder any, name string) *T {
	value := reflect.ValueOf(holder).Elem().FieldByName(name)
	return (*T)(unsafe.Pointer(value.UnsafeAddr()))
}

// attach inserts the watcher into the scheduler.
func (w *watcher) attach(sched *scheduler.Scheduler) {
	nextEntity := sched.NextEntity
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := nextEntity(logger)
		if err != nil {
			return entity, err
		}
		switch info := entity.(type) {
		case *framework.QueuedPodInfo:
			if info != nil {
				w.begin(key(info.Pod))
				w.attempts[key(info.Pod)] = info.Attempts
			}
		case *framework.QueuedPodGroupInfo:
			w.beginGroup(info)
		}
		return entity, err
	}
	schedulePod := sched.SchedulePod
	sched.SchedulePod = func(
		ctx context.Context, fw framework.Framework, state fwk.CycleState, info *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		cycle := w.begin(key(info.Pod))
		if err := examine(ctx, fw, state, info.Pod, cycle); err != nil {
			cycle.Result = &Result{Error: "oracle: " + err.Error()}
			return scheduler.ScheduleResult{}, err
		}
		recorder := &recorder{Framework: fw, cycle: cycle}
		result, err := schedulePod(ctx, recorder, state, info)
		if err != nil {
			cycle.Result = &Result{Error: err.Error()}
		} else {
			cycle.Result = &Result{Node: result.SuggestedHost}
			cycle.Feasible = recorder.feasible(result)
		}
		return result, err
	}
	for _, fw := range sched.Profiles {
		w.attachPreemption(fw)
		attachDeallocation(fw)
	}
}

// begin starts the record of a pod's cycle, unless it has begun. Each trial of a group's pod
// has its own.
func (w *watcher) begin(pod string) *Cycle {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.trials == nil && w.cycle != nil && w.cycle.Pod == pod {
		return w.cycle
	}
	cycle := &Cycle{
		Pod:       pod,
		PreFilter: map[string]PreFilter{},
		Filters:   map[string]map[string]Status{},
		Feasible:  []string{},
		Scores:    map[string]map[string]int64{},
	}
	if w.trials == nil {
		w.cycle = cycle
	} else {
		w.trials = append(w.trials, cycle)
	}
	return cycle
}

// end returns the records: of a pod, or of the trials of a group's pods.
func (w *watcher) end() (*Cycle, []*Cycle) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	cycle, trials := w.cycle, w.trials
	w.cycle, w.trials, w.members = nil, nil, nil
	return cycle, trials
}

// isInCycle reports whether the cycle waits for a write.
func (w *watcher) isInCycle(r *request) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch {
	case w.trials != nil:
		return r.resource == podGroups.Resource || r.resource == "pods" && r.verb == "patch" && w.members[r.key]
	case w.cycle != nil:
		return r.resource == "pods" && r.key == w.cycle.Pod
	}
	return false
}

// examine runs every plugin on every node separately.
func examine(
	ctx context.Context, fw framework.Framework, of fwk.CycleState, pod *v1.Pod, cycle *Cycle,
) error {
	nodes, err := fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(of.GetPodGroupSchedulingCycle())
	state.SetPlacementCycleState(of.GetPlacementCycleState())
	state.SetSkipFilterPlugins(examinePreFilters(ctx, fw, state, pod, cycle))
	filters := field[[]fwk.FilterPlugin](fw, "filterPlugins")
	all := *filters
	defer func() { *filters = all }()
	for _, node := range nodes {
		for _, plugin := range all {
			*filters = []fwk.FilterPlugin{plugin}
			status := fw.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
			if status.IsSuccess() {
				continue
			}
			name := node.Node().Name
			if cycle.Filters[name] == nil {
				cycle.Filters[name] = map[string]Status{}
			}
			cycle.Filters[name][plugin.Name()] = statusOf(status)
		}
	}
	return nil
}

// examinePreFilters fills the state and returns the plugins whose Filter must be skipped.
func examinePreFilters(
	ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *v1.Pod, cycle *Cycle,
) sets.Set[string] {
	plugins := field[[]fwk.PreFilterPlugin](fw, "preFilterPlugins")
	all := *plugins
	defer func() { *plugins = all }()
	without := sets.New[string]()
	for _, plugin := range all {
		*plugins = []fwk.PreFilterPlugin{plugin}
		result, status, _ := fw.RunPreFilterPlugins(ctx, state, pod)
		if state.GetSkipFilterPlugins().Has(plugin.Name()) {
			status = fwk.NewStatus(fwk.Skip)
		}
		if !status.IsSuccess() {
			without.Insert(plugin.Name())
		}
		answer := PreFilter{Status: statusOf(status)}
		if !result.AllNodes() {
			answer.Nodes = sets.List(result.NodeNames)
		}
		if !status.IsSuccess() || answer.Nodes != nil {
			cycle.PreFilter[plugin.Name()] = answer
		}
	}
	return without
}

// recorder is a framework that records its calls and results.
type recorder struct {
	framework.Framework
	cycle  *Cycle
	passed []string
	scored []string
}

func (r *recorder) RunFilterPluginsWithNominatedPods(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	status := r.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	if status.IsSuccess() {
		r.passed = append(r.passed, node.Node().Name)
	}
	return status
}

// RunScorePlugins also breaks ties: it prefers the first in snapshot order, where upstream's heap
// prefers any of the best. Extenders break ties themselves, below the scores of plugins.
func (r *recorder) RunScorePlugins(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := r.Framework.RunScorePlugins(ctx, state, pod, nodes)
	for i := range scores {
		plugins := map[string]int64{}
		for _, score := range scores[i].Scores {
			plugins[score.Name] = score.Score
		}
		r.cycle.Scores[scores[i].Name] = plugins
		r.scored = append(r.scored, scores[i].Name)
	}
	ranks := map[string]int{}
	for i, name := range r.inOrder(r.scored) {
		ranks[name] = i
	}
	for i := range scores {
		scores[i].Randomizer = len(scores) - ranks[scores[i].Name]
		scores[i].TotalScore *= scoreScale
	}
	return scores, status
}

// feasible returns the feasible nodes.
func (r *recorder) feasible(result scheduler.ScheduleResult) []string {
	if r.scored != nil {
		return r.inOrder(r.scored)
	}
	// Extenders may have rejected others that passed.
	if result.FeasibleNodes == 1 {
		return []string{result.SuggestedHost}
	}
	return r.inOrder(r.passed[:min(result.FeasibleNodes, len(r.passed))])
}

// inOrder returns nodes in snapshot order.
func (r *recorder) inOrder(names []string) []string {
	wanted := sets.New(names...)
	ordered := make([]string, 0, len(names))
	nodes, err := r.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return names
	}
	for _, node := range nodes {
		if name := node.Node().Name; wanted.Has(name) {
			ordered = append(ordered, name)
		}
	}
	return ordered
}
