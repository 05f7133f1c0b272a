package main

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// placementScale makes room below the scores of placements for their order.
const placementScale = 1000

// orderGroups makes deterministic what upstream takes from maps for groups.
func orderGroups(sched *scheduler.Scheduler) {
	orderPreEnqueue(sched)
	for _, fw := range sched.Profiles {
		generators := *field[[]fwk.PlacementGeneratePlugin](fw, "placementGeneratePlugins")
		for i, plugin := range generators {
			handle := field[fwk.Handle](plugin, "handle")
			*handle = orderedHandle{*handle, true}
			generators[i] = orderedPlacements{plugin}
		}
		orderPlacementScores(fw)
		for _, plugin := range *field[[]fwk.PodGroupPostFilterPlugin](fw, "podGroupPostFilterPlugins") {
			pl, ok := plugin.(*defaultpreemption.DefaultPreemption)
			if !ok {
				continue
			}
			// Nil without the feature gate.
			if evaluator := reflect.ValueOf(pl).Elem().FieldByName("podGroupEvaluator"); !evaluator.IsNil() {
				handle := &(*preemption.PodGroupEvaluator)(evaluator.Elem().UnsafePointer()).Handle
				*handle = orderedHandle{*handle, false}
			}
		}
	}
}

// orderedPlacements orders placements by the value of their label.
type orderedPlacements struct{ fwk.PlacementGeneratePlugin }

func (o orderedPlacements) GeneratePlacements(
	ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, parent *fwk.Placement,
) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	result, status := o.PlacementGeneratePlugin.GeneratePlacements(ctx, state, group, parent)
	if result != nil {
		slices.SortFunc(result.Placements, func(a, b *fwk.Placement) int { return cmp.Compare(a.Name, b.Name) })
	}
	return result, status
}

// orderPlacementScores makes the first of equal placements the best.
func orderPlacementScores(fw framework.Framework) {
	plugins := field[[]fwk.PlacementScorePlugin](fw, "placementScorePlugins")
	if len(*plugins) == 0 {
		return
	}
	weights := *field[map[string]int](fw, "placementScorePluginWeight")
	for name := range weights {
		weights[name] *= placementScale
	}
	first := firstPlacement{}
	weights[first.Name()] = 1
	*plugins = append(*plugins, first)
}

// firstPlacement scores placements by their order.
type firstPlacement struct{}

func (firstPlacement) Name() string { return "FirstPlacement" }

func (firstPlacement) ScorePlacement(
	context.Context, fwk.PlacementCycleState, fwk.PodGroupInfo, *fwk.PodGroupAssignments,
) (int64, *fwk.Status) {
	return 0, nil
}

func (f firstPlacement) PlacementScoreExtensions() fwk.PlacementScoreExtensions { return f }

func (firstPlacement) NormalizePlacementScore(
	_ context.Context, _ fwk.PodGroupCycleState, _ fwk.PodGroupInfo, scores []fwk.PlacementScore,
) *fwk.Status {
	names := make([]string, len(scores))
	for i, score := range scores {
		names[i] = score.Placement.Name
	}
	slices.Sort(names)
	for i, score := range scores {
		rank, _ := slices.BinarySearch(names, score.Placement.Name)
		scores[i].Score = max(fwk.MinScore, fwk.MaxScore-int64(rank))
	}
	return nil
}

// orderedHandle lists the scheduled pods of a group in snapshot order, or by name.
type orderedHandle struct {
	fwk.Handle
	byName bool
}

func (o orderedHandle) SnapshotSharedLister() fwk.SharedLister {
	return orderedLister{o.Handle.MutableSnapshotSharedLister(), o.byName}
}

func (o orderedHandle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister {
	return orderedLister{o.Handle.MutableSnapshotSharedLister(), o.byName}
}

type orderedLister struct {
	fwk.MutableSnapshotSharedLister
	byName bool
}

func (o orderedLister) PodGroupStates() fwk.PodGroupStateLister {
	return orderedStates{o.MutableSnapshotSharedLister.PodGroupStates(), o}
}

func (o orderedLister) CompositePodGroupStates() fwk.CompositePodGroupStateLister {
	return wholeComposites{o.MutableSnapshotSharedLister.CompositePodGroupStates()}
}

// wholePrefix begins the name of a group that stands for all groups below a composite one.
const wholePrefix = "\x00"

type orderedStates struct {
	fwk.PodGroupStateLister
	lister orderedLister
}

func (o orderedStates) Get(namespace, name string) (fwk.PodGroupState, error) {
	if root, isWhole := strings.CutPrefix(name, wholePrefix); isWhole {
		whole := orderedState{lister: o.lister}
		key := fwk.CompositePodGroupKey(namespace, root)
		for state, err := range helper.GetPodGroupStates(o.lister.MutableSnapshotSharedLister, key) {
			if err != nil {
				return nil, err
			}
			whole.pods = append(whole.pods, state.ScheduledPods()...)
		}
		return whole, nil
	}
	state, err := o.PodGroupStateLister.Get(namespace, name)
	if err != nil {
		return nil, err
	}
	return orderedState{state, state.ScheduledPods(), o.lister}, nil
}

type orderedState struct {
	fwk.PodGroupState
	pods   []*v1.Pod
	lister orderedLister
}

func (o orderedState) ScheduledPods() []*v1.Pod {
	ranks := map[types.UID]int{}
	if !o.lister.byName {
		ranks = ranksOfPods(o.lister)
	}
	slices.SortFunc(o.pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(ranks[a.UID], ranks[b.UID]), cmp.Compare(a.Name, b.Name))
	})
	return o.pods
}

type wholeComposites struct {
	fwk.CompositePodGroupStateLister
}

func (w wholeComposites) Get(namespace, name string) (fwk.CompositePodGroupState, error) {
	if _, err := w.CompositePodGroupStateLister.Get(namespace, name); err != nil {
		return nil, err
	}
	return wholeComposite{fwk.PodGroupKey(namespace, wholePrefix+name)}, nil
}

type wholeComposite struct{ whole fwk.EntityKey }

func (w wholeComposite) GetChildren() []fwk.EntityKey { return []fwk.EntityKey{w.whole} }

// ranksOfPods numbers the pods on nodes in snapshot order.
func ranksOfPods(lister fwk.SharedLister) map[types.UID]int {
	ranks := map[types.UID]int{}
	nodes, err := lister.NodeInfos().List()
	if err != nil {
		return ranks
	}
	for _, node := range nodes {
		for _, pod := range node.GetPods() {
			ranks[pod.GetPod().UID] = len(ranks)
		}
	}
	return ranks
}

// orderVictims orders the pods of each group that is preempted whole: first one of this node, then
// the others in snapshot order.
func orderVictims(lister fwk.SharedLister, node string, victims []*preemption.DomainVictim) {
	ranks := ranksOfPods(lister)
	for _, victim := range victims {
		pods := victim.Pods()
		slices.SortFunc(pods, func(a, b fwk.PodInfo) int {
			return cmp.Compare(ranks[a.GetPod().UID], ranks[b.GetPod().UID])
		})
		here := slices.IndexFunc(pods, func(pod fwk.PodInfo) bool { return pod.GetPod().Spec.NodeName == node })
		if here > 0 {
			first := pods[here]
			copy(pods[1:here+1], pods[:here])
			pods[0] = first
		}
	}
}

// orderPreEnqueue makes the first plugin in the profile's order hold a pod, where upstream asks the
// plugins in the order of a map. The plugin that held the pod last is still asked first.
func orderPreEnqueue(sched *scheduler.Scheduler) {
	byProfile := *field[map[string]map[string]fwk.PreEnqueuePlugin](sched.SchedulingQueue, "preEnqueuePluginMap")
	for name, plugins := range byProfile {
		all := &preEnqueue{plugins: sched.Profiles[name].PreEnqueuePlugins(), last: map[types.UID]string{}}
		for plugin := range plugins {
			plugins[plugin] = orderedPreEnqueue{plugins[plugin], all}
		}
	}
}

// preEnqueue is the PreEnqueue of a profile.
type preEnqueue struct {
	plugins []fwk.PreEnqueuePlugin
	// last is the plugin that holds each pod.
	last map[types.UID]string
}

// holder returns the plugin that holds a pod, and its status.
func (p *preEnqueue) holder(ctx context.Context, pod *v1.Pod) (string, *fwk.Status) {
	last := p.last[pod.UID]
	delete(p.last, pod.UID)
	plugins := slices.Clone(p.plugins)
	slices.SortStableFunc(plugins, func(a, b fwk.PreEnqueuePlugin) int {
		rank := func(plugin fwk.PreEnqueuePlugin) int {
			if plugin.Name() == last {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	for _, plugin := range plugins {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			p.last[pod.UID] = plugin.Name()
			return plugin.Name(), status
		}
	}
	return "", nil
}

type orderedPreEnqueue struct {
	fwk.PreEnqueuePlugin
	all *preEnqueue
}

func (o orderedPreEnqueue) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if holder, status := o.all.holder(ctx, pod); holder == o.Name() {
		return status
	}
	return nil
}
