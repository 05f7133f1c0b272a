package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/heap"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// tick is the duration of every step. Pods that enter the queue at the same time would leave it in
// any order.
const tick = time.Millisecond

// farewell is longer than the longest sleep before a check for the stop.
const farewell = time.Minute

const defaultConfig = `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration",
"profiles":[{"schedulerName":"supercargo"}]}`

// player plays one history in a synctest bubble.
type player struct {
	cluster *cluster
	sched   *scheduler.Scheduler
	watcher *watcher
	events  *eventLog
}

// play plays a history. It must run in a synctest bubble, whose clock it advances.
func play(history *History) ([]*Answer, error) {
	restore, err := setFeatures(history.FeatureGates)
	if err != nil {
		return nil, err
	}
	defer restore()
	configuration, err := decodeConfig(history.Config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &player{cluster: newCluster(), watcher: &watcher{attempts: map[string]int{}}, events: &eventLog{}}
	factory, err := p.start(ctx, configuration, history.Extender)
	if err != nil {
		cancel()
		time.Sleep(farewell)
		return nil, err
	}
	defer p.stop(cancel, factory)
	answers := make([]*Answer, 0, len(history.Steps))
	for i, step := range history.Steps {
		answer, err := p.step(ctx, &step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func decodeConfig(raw []byte) (*config.KubeSchedulerConfiguration, error) {
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte(defaultConfig)
	}
	object, kind, err := scheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode the configuration: %w", err)
	}
	configuration, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("the configuration is a %s", kind)
	}
	return configuration, nil
}

// start starts a scheduler without its loop.
func (p *player) start(
	ctx context.Context, configuration *config.KubeSchedulerConfiguration, extender string,
) (informers.SharedInformerFactory, error) {
	clientset := &client{Interface: p.cluster.clientset, cluster: p.cluster}
	factory := scheduler.NewInformerFactory(clientset, 0, nil)
	order(factory)
	sched, err := scheduler.New(ctx, clientset, factory, nil,
		func(string) events.EventRecorderLogger { return p.events },
		scheduler.WithProfiles(configuration.Profiles...),
		scheduler.WithPercentageOfNodesToScore(configuration.PercentageOfNodesToScore),
		scheduler.WithPodInitialBackoffSeconds(configuration.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(configuration.PodMaxBackoffSeconds),
		scheduler.WithExtenders(configuration.Extenders...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithParallelism(1),
	)
	if err != nil {
		return nil, fmt.Errorf("make the scheduler: %w", err)
	}
	if err := connect(sched, extender); err != nil {
		return nil, err
	}
	p.sched = sched
	orderGroups(sched)
	p.watcher.attach(sched)
	metrics.SchedulerQueueIncomingPods.Reset()
	metrics.SchedulerQueueIncomingEntities.Reset()
	factory.Start(ctx.Done())
	synctest.Wait()
	sched.SchedulingQueue.Run(klog.FromContext(ctx))
	if sched.APIDispatcher != nil {
		sched.APIDispatcher.Run(klog.FromContext(ctx))
	}
	synctest.Wait()
	return factory, nil
}

// stop ends everything that start and the cycles have started.
func (p *player) stop(cancel context.CancelFunc, factory informers.SharedInformerFactory) {
	cancel()
	p.settle()
	p.sched.SchedulingQueue.Close()
	if p.sched.APIDispatcher != nil {
		p.sched.APIDispatcher.Close()
	}
	p.settle()
	factory.Shutdown()
	p.settle()
	time.Sleep(farewell)
	p.settle()
}

func (p *player) step(ctx context.Context, step *Step) (*Answer, error) {
	time.Sleep(tick)
	p.settle()
	var cycle *Cycle
	var trials []*Cycle
	var err error
	incomplete := p.incomplete()
	switch {
	case step.Apply != nil:
		err = p.cluster.apply(step.Apply, p.settle)
	case step.Delete != nil:
		err = p.cluster.remove(step.Delete)
	case step.Advance != nil:
		err = p.advance(*step.Advance)
	case step.Schedule:
		cycle, trials, err = p.schedule(ctx)
	default:
		err = errors.New("a step applies, deletes, advances or schedules")
	}
	if err != nil {
		return nil, err
	}
	p.settle()
	p.dateGroups(incomplete)
	return p.answer(cycle, trials)
}

// settle waits until no goroutine has anything left to do at this time. It admits one write at a
// time.
func (p *player) settle() {
	for {
		synctest.Wait()
		request := p.cluster.take(p.watcher.isInCycle)
		if request == nil {
			return
		}
		request.err = request.run()
		synctest.Wait()
		close(request.done)
	}
}

// advance moves the clock second by second, so that goroutines that wake up in between can write.
func (p *player) advance(seconds int64) error {
	if seconds < 0 {
		return errors.New("the clock does not go backwards")
	}
	for range seconds {
		time.Sleep(time.Second)
		p.settle()
	}
	return nil
}

// schedule runs one cycle, if a pod or a group is ready.
func (p *player) schedule(ctx context.Context) (*Cycle, []*Cycle, error) {
	if !p.poppable() {
		return nil, nil, nil
	}
	var failure error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value := recover(); value != nil {
				failure = fmt.Errorf("the scheduler panicked: %v", value)
			}
		}()
		p.sched.ScheduleOne(ctx)
	}()
	p.settle()
	select {
	case <-done:
	default:
		return nil, nil, errors.New("the cycle does not end")
	}
	cycle, trials := p.watcher.end()
	return cycle, trials, failure
}

// poppable reports whether the queue would return a pod at once. Pods that failed with an error are
// not popped early from the backoff queue.
func (p *player) poppable() bool {
	queue := p.sched.SchedulingQueue
	if len(queue.PodsInActiveQ()) != 0 {
		return true
	}
	whole := reflect.ValueOf(queue).Elem()
	if whole.FieldByName("activeQ").Elem().Elem().FieldByName("backoffQPopper").IsNil() {
		return false
	}
	backoff := whole.FieldByName("backoffQ").Elem().Elem().FieldByName("entityBackoffQ")
	return (*heap.Heap[framework.QueuedEntityInfo])(backoff.UnsafePointer()).Len() != 0
}

// answer returns the state and starts a new record of changes.
func (p *player) answer(cycle *Cycle, trials []*Cycle) (*Answer, error) {
	moves, err := takeCounts(metrics.SchedulerQueueIncomingPods, "queue", "event")
	if err != nil {
		return nil, err
	}
	entities, err := takeCounts(metrics.SchedulerQueueIncomingEntities, "type", "queue", "event")
	if err != nil {
		return nil, err
	}
	groups, err := p.cluster.groups()
	if err != nil {
		return nil, err
	}
	answer := &Answer{
		Pods:     map[string]Pod{},
		Groups:   groups,
		Moves:    moves,
		Entities: entities,
		Events:   p.events.take(),
		Deleted:  listed(p.cluster.deleted),
		Writes:   p.cluster.writes,
		Cycle:    cycle,
		Trials:   trials,
	}
	if answer.Writes == nil {
		answer.Writes = []Write{}
	}
	if answer.Trials == nil {
		answer.Trials = []*Cycle{}
	}
	p.cluster.deleted, p.cluster.writes = nil, nil
	all, err := p.cluster.pods()
	if err != nil {
		return nil, err
	}
	places := p.places()
	for i := range all {
		answer.Pods[key(&all[i])] = p.pod(&all[i], places)
	}
	return answer, nil
}

// places returns the queue of each pod. Pods of groups wait aside, too.
func (p *player) places() map[string]string {
	places := map[string]string{}
	queue := p.sched.SchedulingQueue
	for place, list := range map[string][]*v1.Pod{
		"active": queue.PodsInActiveQ(), "backoff": queue.PodsInBackoffQ(),
		"aside": slices.Concat(queue.PendingPodGroupPods(), queue.IncompletePodGroupPodsPods()),
	} {
		for _, pod := range list {
			places[key(pod)] = place
		}
	}
	for _, entity := range p.waiting() {
		place := "unschedulable"
		if entity.Gated() {
			place = "gated"
		}
		entity.ForEachPodInfo(func(info *framework.QueuedPodInfo) bool {
			places[key(info.Pod)] = place
			return true
		})
	}
	for _, pod := range queue.InFlightPods() {
		if _, queued := places[key(pod)]; !queued {
			places[key(pod)] = "inflight"
		}
	}
	return places
}

func (p *player) pod(pod *v1.Pod, places map[string]string) Pod {
	answer := Pod{
		Place:                "none",
		Node:                 pod.Spec.NodeName,
		Nominated:            pod.Status.NominatedNodeName,
		UnschedulablePlugins: []string{},
		PendingPlugins:       []string{},
	}
	if place, known := places[key(pod)]; known {
		answer.Place = place
	} else if pod.Spec.NodeName != "" {
		answer.Place = "bound"
	} else if assumed, err := p.sched.Cache.IsAssumedPod(pod); err == nil && assumed {
		// The queue is done with a pod after Permit, but the binding cycle is not.
		answer.Place = "inflight"
	}
	if answer.Place == "inflight" {
		answer.Attempts = p.watcher.attempts[key(pod)]
		if assumed, err := p.sched.Cache.GetPod(pod); err == nil {
			answer.Node = assumed.Spec.NodeName
		}
	}
	if info, queued := p.sched.SchedulingQueue.GetPod(pod.Name, pod.Namespace, pod.Spec.SchedulingGroup); queued {
		answer.Attempts = info.Attempts
		answer.UnschedulablePlugins = sets.List(info.UnschedulablePlugins)
		answer.PendingPlugins = sets.List(info.PendingPlugins)
	}
	if scheduled := condition(pod, v1.PodScheduled); scheduled != nil && scheduled.Status != string(v1.ConditionTrue) {
		answer.Condition = scheduled
	}
	answer.Disruption = condition(pod, v1.DisruptionTarget)
	return answer
}

func condition(pod *v1.Pod, kind v1.PodConditionType) *Condition {
	_, found := podutil.GetPodCondition(&pod.Status, kind)
	if found == nil {
		return nil
	}
	return &Condition{
		Status:             string(found.Status),
		Reason:             found.Reason,
		Message:            found.Message,
		ObservedGeneration: found.ObservedGeneration,
	}
}

func key(pod *v1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}

// takeCounts returns how often something entered which queue by which event, and resets the counts.
func takeCounts(vector *k8smetrics.CounterVec, labels ...string) (map[string]int, error) {
	counters := make(chan prometheus.Metric, 4096)
	vector.Collect(counters)
	close(counters)
	counts := map[string]int{}
	for counter := range counters {
		var metric dto.Metric
		if err := counter.Write(&metric); err != nil {
			return nil, err
		}
		values := map[string]string{}
		for _, label := range metric.GetLabel() {
			values[label.GetName()] = label.GetValue()
		}
		if count := int(metric.GetCounter().GetValue()); count != 0 {
			name := make([]string, len(labels))
			for i, label := range labels {
				name[i] = values[label]
			}
			counts[strings.Join(name, "/")] = count
		}
	}
	vector.Reset()
	return counts, nil
}

// eventLog is a recorder that keeps events.
type eventLog struct {
	mutex  sync.Mutex
	events []Event
}

func (l *eventLog) Eventf(
	regarding runtime.Object, _ runtime.Object, kind, reason, action, note string, args ...any,
) {
	event := Event{Type: kind, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...)}
	if pod, ok := regarding.(*v1.Pod); ok {
		event.Pod = key(pod)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.events = append(l.events, event)
}

func (l *eventLog) WithLogger(klog.Logger) events.EventRecorderLogger { return l }

// take returns the events by pod, in order for each pod: events of different pods may come from
// different goroutines.
func (l *eventLog) take() []Event {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	taken := l.events
	l.events = nil
	if taken == nil {
		return []Event{}
	}
	slices.SortStableFunc(taken, func(a, b Event) int { return cmp.Compare(a.Pod, b.Pod) })
	return taken
}
