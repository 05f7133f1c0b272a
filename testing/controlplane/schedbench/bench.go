package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

const configuration = `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration",
"profiles":[{"schedulerName":"supercargo"}]}`

// bench is a scheduler with its measurements. It is created with the first node.
type bench struct {
	ctx        context.Context
	cancel     context.CancelFunc
	logger     klog.Logger
	percentage int32
	budget     time.Duration
	each       bool

	sched    *scheduler.Scheduler
	snapshot *cache.Snapshot
	factory  informers.SharedInformerFactory
	client   *fake.Clientset
	// others are objects of other kinds than pods and nodes. Informers list them when the first pod
	// is scheduled.
	others []runtime.Object
	nodes  []*v1.Node
	bound  []*v1.Pod
	// extended is whether a device class serves an extended resource.
	extended bool
	// generated is the number of claims that PreBind has created.
	generated atomic.Int64

	times       []time.Duration
	unscheduled int
	// outcomes are those of the group in its cycle.
	outcomes outcomes
}

func newBench() *bench {
	ctx, cancel := context.WithCancel(context.Background())
	utilruntime.ErrorHandlers = nil
	return &bench{ctx: ctx, cancel: cancel, logger: klog.FromContext(ctx), budget: time.Hour}
}

func decode(raw []byte) (runtime.Object, error) {
	object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	return object, err
}

func decodePod(raw []byte) (*v1.Pod, error) {
	object, err := decode(raw)
	if err != nil {
		return nil, err
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return nil, errors.New("what is scheduled is a pod")
	}
	return pod, nil
}

func (b *bench) add(raw []byte) error {
	object, err := decode(raw)
	if err != nil {
		return err
	}
	if b.sched == nil {
		switch object := object.(type) {
		case *v1.Node:
			b.nodes = append(b.nodes, object)
		case *v1.Pod:
			if object.Spec.NodeName != "" {
				b.bound = append(b.bound, object)
			}
		default:
			if class, ok := object.(*resourcev1.DeviceClass); ok && class.Spec.ExtendedResourceName != nil {
				b.extended = true
			}
			b.others = append(b.others, object)
		}
		return nil
	}
	switch object := object.(type) {
	case *v1.Node:
		b.sched.Cache.AddNode(b.logger, object)
		return nil
	case *v1.Pod:
		if object.Spec.NodeName == "" {
			return nil
		}
		return b.sched.Cache.AddPod(b.logger, object)
	}
	// Churn, such as a Service: no workload's pods depend on it.
	return nil
}

func (b *bench) remove(raw []byte) error {
	object, err := decode(raw)
	if err != nil || b.sched == nil {
		return err
	}
	switch object := object.(type) {
	case *v1.Node:
		return b.sched.Cache.RemoveNode(b.logger, object)
	case *v1.Pod:
		if known, err := b.sched.Cache.GetPod(object); err == nil {
			return b.sched.Cache.RemovePod(b.logger, known)
		}
	case *resourcev1.ResourceClaim:
		// The plugin hears of it through its informer, soon after.
		claims := b.client.ResourceV1().ResourceClaims(object.Namespace)
		return claims.Delete(b.ctx, object.Name, metav1.DeleteOptions{})
	}
	return nil
}

// start creates the scheduler and gives it the existing objects.
func (b *bench) start() error {
	// Some metrics exist only with their feature gate.
	metrics.Register()
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(configuration), nil, nil)
	if err != nil {
		return fmt.Errorf("decode the configuration: %w", err)
	}
	defaults, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return errors.New("the configuration is something else")
	}
	client := fake.NewSimpleClientset(b.others...)
	// The client does not know the pods whose status PreBind writes.
	client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &v1.Pod{}, nil
	})
	// A fake client generates no names.
	client.PrependReactor("create", "resourceclaims",
		func(action k8stesting.Action) (bool, runtime.Object, error) {
			create, ok := action.(k8stesting.CreateAction)
			if !ok {
				return false, nil, nil
			}
			claim, ok := create.GetObject().(*resourcev1.ResourceClaim)
			if !ok || claim.Name != "" {
				return false, nil, nil
			}
			claim.Name = fmt.Sprintf("%s%d", claim.GenerateName, b.generated.Add(1))
			claim.UID = types.UID(claim.Name)
			return true, claim, client.Tracker().Create(action.GetResource(), claim, claim.Namespace)
		})
	b.watchBindings(client)
	b.client = client
	b.factory = scheduler.NewInformerFactory(client, 0, nil)
	recorder := func(string) events.EventRecorderLogger { return &silence{} }
	sched, err := scheduler.New(b.ctx, client, b.factory, nil, recorder,
		scheduler.WithProfiles(defaults.Profiles...),
		scheduler.WithPercentageOfNodesToScore(&b.percentage),
		scheduler.WithPodInitialBackoffSeconds(defaults.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(defaults.PodMaxBackoffSeconds),
		scheduler.WithParallelism(defaults.Parallelism),
	)
	if err != nil {
		return fmt.Errorf("make the scheduler: %w", err)
	}
	b.sched = sched
	b.watchFailures()
	b.factory.Start(b.ctx.Done())
	b.factory.WaitForCacheSync(b.ctx.Done())
	if err := sched.WaitForHandlersSync(b.ctx); err != nil {
		return fmt.Errorf("wait for the handlers: %w", err)
	}
	for _, node := range b.nodes {
		sched.Cache.AddNode(b.logger, node)
	}
	for _, pod := range b.bound {
		if err := sched.Cache.AddPod(b.logger, pod); err != nil {
			return fmt.Errorf("add a pod: %w", err)
		}
	}
	b.nodes, b.bound, b.others = nil, nil, nil
	snapshot, ok := b.profile().SnapshotSharedLister().(*cache.Snapshot)
	if !ok {
		return errors.New("the snapshot is something else")
	}
	b.snapshot = snapshot
	// The first call copies every node; a running scheduler has done that.
	return sched.Cache.UpdateSnapshot(b.logger, snapshot)
}

func (b *bench) profile() framework.Framework {
	return b.sched.Profiles["supercargo"]
}

func (b *bench) stop() {
	b.cancel()
	if b.sched != nil {
		b.sched.SchedulingQueue.Close()
	}
}

// schedule takes a pod through the queue and the scheduling cycle. Only the cycle is measured.
func (b *bench) schedule(raw []byte) (*Cycle, error) {
	if b.sched == nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	pod, err := decodePod(raw)
	if err != nil {
		return nil, err
	}
	b.sched.SchedulingQueue.Add(b.ctx, pod)
	entity, err := b.sched.NextEntity(b.logger)
	if err != nil {
		return nil, fmt.Errorf("take the pod from the queue: %w", err)
	}
	defer b.sched.SchedulingQueue.Done(pod.UID)
	info, ok := entity.(*framework.QueuedPodInfo)
	if !ok || info.Pod.UID != pod.UID {
		return nil, errors.New("the queue gave another pod")
	}
	state := framework.NewCycleState()
	assumed := pod.DeepCopy()
	started, processor := time.Now(), processorTime()
	if err := b.sched.Cache.UpdateSnapshot(b.logger, b.snapshot); err != nil {
		return nil, err
	}
	result, err := b.sched.SchedulePod(b.ctx, b.profile(), state, info)
	if err == nil {
		assumed.Spec.NodeName = result.SuggestedHost
		err = b.sched.Cache.AssumePod(b.logger, assumed)
	}
	cycle := &Cycle{
		Wall: time.Since(started).Nanoseconds(), Processor: processorTime() - processor, Found: err == nil,
	}
	var unfit *framework.FitError
	if errors.As(err, &unfit) {
		return cycle, nil
	}
	if err != nil {
		return nil, err
	}
	if len(pod.Spec.ResourceClaims) > 0 || b.extended {
		if err := b.reserve(state, assumed); err != nil {
			return nil, err
		}
	}
	return cycle, b.sched.Cache.AddPod(b.logger, assumed.DeepCopy())
}

// reserve writes the claims of a pod as its binding cycle would. It is not measured.
func (b *bench) reserve(state *framework.CycleState, pod *v1.Pod) error {
	node := pod.Spec.NodeName
	if status := b.profile().RunReservePluginsReserve(b.ctx, state, pod, node); !status.IsSuccess() {
		return fmt.Errorf("reserve: %w", status.AsError())
	}
	preBind := func() error {
		if status := b.profile().RunPreBindPlugins(b.ctx, state, pod, node); !status.IsSuccess() {
			return fmt.Errorf("pre-bind: %w", status.AsError())
		}
		return nil
	}
	if !b.extended {
		return preBind()
	}
	// It waits a second for the claim that it creates. The next pods see the devices in flight.
	go func() {
		if err := preBind(); err != nil && b.ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "schedbench:", err)
			os.Exit(1)
		}
	}()
	return nil
}

// processorTime is the processor time that all threads have had, in nanoseconds.
func processorTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// silence is a recorder that records nothing.
type silence struct{}

func (s *silence) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (s *silence) WithLogger(klog.Logger) events.EventRecorderLogger { return s }
