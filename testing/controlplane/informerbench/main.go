// Command informerbench is client-go's side of the informers' benchmark (crates/informer/benches).
// It runs one task with client-go's shared informer, step by step, so that the benchmark can
// measure this process between the steps.
//
// The first line on stdin is the task, in JSON. Then each line is a step, and each answer one line
// of JSON on stdout:
//
//	start    the informer runs, until every listener has been shown all pods
//	events   the changes come, until every listener has been shown the last one
//	collect  the garbage collector runs once
//	trim     the same, and memory that is not needed goes back to the system
//
// It ends with its stdin.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// task is the input.
type task struct {
	// "pipeline" is in memory after decoding, "wire" is from a server.
	Mode      string `json:"mode"`
	Pods      int    `json:"pods"`
	Events    int    `json:"events"`
	Listeners int    `json:"listeners"`
	// A pod in JSON with placeholders where pods differ.
	Template string `json:"template"`
	URL      string `json:"url"`
	// "json" or "protobuf".
	Content string `json:"content"`
}

// answer is the result of a step.
type answer struct {
	Nanos   int64 `json:"nanos"`
	Stored  int   `json:"stored"`
	Adds    int64 `json:"adds"`
	Updates int64 `json:"updates"`
	Deletes int64 `json:"deletes"`
}

// bench is a prepared informer.
type bench struct {
	informer cache.SharedIndexInformer
	tallies  []*tally
	// Sends the changes; does nothing where the server sends them.
	release func()
	// The content of the store that ends a phase without listeners.
	last func(phase int) (key, version string)
}

// tally is a counting listener. All its calls come from one goroutine.
type tally struct {
	seen, adds, updates, deletes int64
	goal                         atomic.Int64
	done                         chan struct{}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "informerbench:", err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewReader(os.Stdin)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	var todo task
	if err := json.Unmarshal(first, &todo); err != nil {
		return fmt.Errorf("understand the task: %w", err)
	}
	var ready *bench
	switch todo.Mode {
	case "pipeline":
		ready, err = pipeline(todo)
	case "wire":
		ready, err = wire(todo)
	default:
		err = fmt.Errorf("no mode is called %q", todo.Mode)
	}
	if err != nil {
		return err
	}
	for range todo.Listeners {
		one := &tally{done: make(chan struct{}, 1)}
		ready.tallies = append(ready.tallies, one)
		if _, err := ready.informer.AddEventHandler(one); err != nil {
			return err
		}
	}
	// Garbage of the preparation must not be collected during the measurement.
	runtime.GC()
	return ready.steps(todo, lines)
}

func (bench *bench) steps(todo task, lines *bufio.Reader) error {
	output := json.NewEncoder(os.Stdout)
	if err := output.Encode(answer{}); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	for {
		step, err := lines.ReadString('\n')
		if err != nil {
			return nil
		}
		for _, one := range bench.tallies {
			switch step {
			case "start\n":
				one.goal.Store(int64(todo.Pods))
			case "events\n":
				one.goal.Store(int64(todo.Pods + todo.Events))
			}
		}
		began := time.Now()
		switch step {
		case "start\n":
			go bench.informer.Run(stop)
			bench.wait(0, todo.Pods)
		case "events\n":
			bench.release()
			bench.wait(1, todo.Events)
		case "collect\n":
			runtime.GC()
		case "trim\n":
			debug.FreeOSMemory()
		default:
			return fmt.Errorf("no step is called %q", step)
		}
		if err := output.Encode(bench.answer(time.Since(began))); err != nil {
			return err
		}
	}
}

// wait returns when every listener has seen the whole phase.
func (bench *bench) wait(phase, count int) {
	for !bench.informer.HasSynced() {
		time.Sleep(200 * time.Microsecond)
	}
	if count == 0 {
		return
	}
	for _, one := range bench.tallies {
		<-one.done
	}
	if len(bench.tallies) > 0 {
		return
	}
	key, version := bench.last(phase)
	for {
		object, _, _ := bench.informer.GetIndexer().GetByKey(key)
		if pod, ok := object.(*corev1.Pod); ok && pod.ResourceVersion == version {
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func (bench *bench) answer(took time.Duration) answer {
	result := answer{Nanos: took.Nanoseconds(), Stored: len(bench.informer.GetStore().ListKeys())}
	for _, one := range bench.tallies {
		result.Adds += one.adds
		result.Updates += one.updates
		result.Deletes += one.deletes
	}
	return result
}

func (tally *tally) count() {
	tally.seen++
	if tally.seen == tally.goal.Load() {
		tally.done <- struct{}{}
	}
}

func (tally *tally) OnAdd(any, bool) {
	tally.adds++
	tally.count()
}

func (tally *tally) OnUpdate(any, any) {
	tally.updates++
	tally.count()
}

func (tally *tally) OnDelete(any) {
	tally.deletes++
	tally.count()
}

// indexers are those of a factory's informer, and one by node.
func indexers() cache.Indexers {
	return cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"node": func(object any) ([]string, error) {
			if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}, nil
			}
			return nil, nil
		},
	}
}
