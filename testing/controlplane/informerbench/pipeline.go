package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// prepared lists and watches decoded objects.
type prepared struct {
	list *corev1.PodList
	// Filled before the first step, so that handing over events takes no time.
	events   []watch.Event
	released chan watch.Event
}

func (*prepared) IsWatchListSemanticsUnSupported() bool { return true }

func (source *prepared) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	list := source.list
	// Only the informer may keep the pods.
	source.list = nil
	if list == nil {
		return nil, fmt.Errorf("listed twice")
	}
	return list, nil
}

func (source *prepared) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(source.released), nil
}

func (source *prepared) List(options metav1.ListOptions) (runtime.Object, error) {
	return source.ListWithContext(context.Background(), options)
}

func (source *prepared) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return source.WatchWithContext(context.Background(), options)
}

func pipeline(todo task) (*bench, error) {
	source := &prepared{
		list:     &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "19999999"}},
		released: make(chan watch.Event, todo.Events),
	}
	for number := range todo.Pods {
		pod, err := decode(todo.Template, number, firstVersion+number)
		if err != nil {
			return nil, err
		}
		source.list.Items = append(source.list.Items, *pod)
	}
	for index := range todo.Events {
		what, number := change(index, todo.Pods)
		pod, err := decode(todo.Template, number, changedVersion+index)
		if err != nil {
			return nil, err
		}
		source.events = append(source.events, watch.Event{Type: what, Object: pod})
	}
	return &bench{
		informer: cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, indexers()),
		release: func() {
			events := source.events
			source.events = nil
			for _, event := range events {
				source.released <- event
			}
		},
		last: func(phase int) (string, string) {
			if phase == 0 {
				return key(todo.Pods - 1), strconv.Itoa(firstVersion + todo.Pods - 1)
			}
			_, number := change(todo.Events-1, todo.Pods)
			return key(number), strconv.Itoa(changedVersion + todo.Events - 1)
		},
	}, nil
}

// Resource versions of the pods as listed and as changed. Numbers, placeholders and changes are
// those of crates/informer/benches/informers/pods.rs.
const (
	firstVersion   = 10_000_000
	changedVersion = 20_000_000
)

func key(number int) string {
	return fmt.Sprintf("ns-%04d/web-5d9f7c8b6d-%06d", number%100, number)
}

func decode(template string, number, version int) (*corev1.Pod, error) {
	text := strings.NewReplacer(
		"xnamex", fmt.Sprintf("%06d", number),
		"xnsx", fmt.Sprintf("%04d", number%100),
		"xnodx", fmt.Sprintf("%05d", number%1000),
		"xxuidxxuidxx", fmt.Sprintf("%012d", number),
		"xxrvxxrv", fmt.Sprintf("%08d", version),
	).Replace(template)
	pod := new(corev1.Pod)
	if err := json.Unmarshal([]byte(text), pod); err != nil {
		return nil, fmt.Errorf("decode a pod: %w", err)
	}
	// Like kube-scheduler and most controllers, which drop managed fields.
	pod.ManagedFields = nil
	return pod, nil
}

// change returns a change and the number of its pod. Of twenty changes, one deletes a pod of the
// first twentieth and one creates a deleted one again; the others are updates, evenly distributed.
func change(index, pods int) (watch.EventType, int) {
	reserve := pods / 20
	cycle, step := index/20, index%20
	switch {
	case reserve >= 2 && step == 17:
		return watch.Deleted, cycle % reserve
	case reserve >= 2 && step == 18 && cycle >= reserve/2:
		return watch.Added, (cycle - reserve/2) % reserve
	default:
		return watch.Modified, reserve + index*7919%(pods-reserve)
	}
}
