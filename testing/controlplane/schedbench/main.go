// Command schedbench measures upstream's scheduling cycle in process: the time of UpdateSnapshot,
// SchedulePod and AssumePod together, pod by pod. It reads objects, one JSON value per line of
// stdin, and prints its measurements as JSON:
//
//	{"settings": {"percentageOfNodesToScore": 100, "budgetMilliseconds": 10000}}   first; 0 percent is upstream's default
//	{"settings": {"each": true, …}}                                                prints each cycle, and no summary
//	{"settings": {"featureGates": {"GenericWorkload": true}, …}}                    differ from upstream's defaults
//	{"add": OBJECT}       is there: a node, a pod on a node, any other kind
//	{"remove": OBJECT}    is there no more
//	{"try": POD}          is scheduled, and not measured
//	{"schedule": POD}     is scheduled and measured
//	{"group": [POD, …]}   the pods of a PodGroup that was added are scheduled in one cycle, which is measured; needs "each"
//
// The scheduler is upstream's with its default configuration, except for the percentage; the client
// is a fake. Nodes and pods go straight into its cache, as its event handlers would put them there.
// Informers see the other kinds, so these must come before the first scheduled pod. A pod that
// finds a node counts as bound before the next one is scheduled; none of that is measured. When the
// budget is used up, the rest of the input is not read.
//
// With "each", a line is printed for each measured cycle as it ends, found a node or not:
//
//	{"wall": 1234, "processor": 2345, "found": true}   nanoseconds; processor time is that of all threads
//
// The cycle of a group is ScheduleOne. Its line has the time until all pods have been tried, too,
// and how many of them are bound and fail:
//
//	{"wall": 1234, "algorithm": 1200, "bound": 8, "failed": 0}
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// Line is a line of the input.
type Line struct {
	Settings *Settings         `json:"settings"`
	Add      json.RawMessage   `json:"add"`
	Remove   json.RawMessage   `json:"remove"`
	Try      json.RawMessage   `json:"try"`
	Schedule json.RawMessage   `json:"schedule"`
	Group    []json.RawMessage `json:"group"`
}

// Settings configure the scheduler and the time limit.
type Settings struct {
	PercentageOfNodesToScore int32           `json:"percentageOfNodesToScore"`
	BudgetMilliseconds       int64           `json:"budgetMilliseconds"`
	Each                     bool            `json:"each"`
	FeatureGates             map[string]bool `json:"featureGates"`
}

// Cycle is one measured cycle. Times are nanoseconds.
type Cycle struct {
	Wall      int64 `json:"wall"`
	Processor int64 `json:"processor"`
	Found     bool  `json:"found"`
}

// Result is the measurement. Times are nanoseconds of wall time.
type Result struct {
	Decisions   int    `json:"decisions"`
	Unscheduled int    `json:"unscheduled"`
	Mean        int64  `json:"mean"`
	P50         int64  `json:"p50"`
	P99         int64  `json:"p99"`
	GoVersion   string `json:"goVersion"`
	Processors  int    `json:"processors"`
}

func main() {
	klog.SetLogger(logr.Discard())
	result, err := run(bufio.NewReaderSize(os.Stdin, 1<<20))
	if err == nil && result != nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedbench:", err)
		os.Exit(1)
	}
}

func run(input *bufio.Reader) (*Result, error) {
	bench := newBench()
	defer bench.stop()
	var spent time.Duration
	for spent <= bench.budget {
		text, err := input.ReadBytes('\n')
		if len(text) != 0 {
			took, err := bench.line(text)
			if err != nil {
				return nil, err
			}
			spent += took
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if bench.each {
		return nil, nil
	}
	if len(bench.times) == 0 {
		return nil, errors.New("nothing was scheduled")
	}
	return bench.result(spent), nil
}

// line handles a line and returns its time, if it is measured.
func (b *bench) line(text []byte) (time.Duration, error) {
	var line Line
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, fmt.Errorf("decode a line: %w", err)
	}
	switch {
	case line.Settings != nil:
		b.percentage = line.Settings.PercentageOfNodesToScore
		b.each = line.Settings.Each
		b.budget = time.Duration(line.Settings.BudgetMilliseconds) * time.Millisecond
		return 0, utilfeature.DefaultMutableFeatureGate.SetFromMap(line.Settings.FeatureGates)
	case line.Add != nil:
		return 0, b.add(line.Add)
	case line.Remove != nil:
		return 0, b.remove(line.Remove)
	case line.Try != nil:
		_, err := b.schedule(line.Try)
		return 0, err
	case line.Schedule != nil:
		cycle, err := b.schedule(line.Schedule)
		if err != nil {
			return 0, err
		}
		took := time.Duration(cycle.Wall)
		if b.each {
			return took, json.NewEncoder(os.Stdout).Encode(cycle)
		}
		if cycle.Found {
			b.times = append(b.times, took)
		} else {
			b.unscheduled++
		}
		return took, nil
	}
	if len(line.Group) > 0 {
		cycle, err := b.group(line.Group)
		if err != nil {
			return 0, err
		}
		return time.Duration(cycle.Wall), json.NewEncoder(os.Stdout).Encode(cycle)
	}
	return 0, errors.New("a line adds, removes, tries or schedules")
}

func (b *bench) result(spent time.Duration) *Result {
	slices.Sort(b.times)
	// The nearest-rank percentile, as on the other side.
	rank := func(percent int) int64 {
		return b.times[(len(b.times)*percent+99)/100-1].Nanoseconds()
	}
	var sum time.Duration
	for _, took := range b.times {
		sum += took
	}
	return &Result{
		Decisions:   len(b.times),
		Unscheduled: b.unscheduled,
		Mean:        sum.Nanoseconds() / int64(len(b.times)),
		P50:         rank(50),
		P99:         rank(99),
		GoVersion:   runtime.Version(),
		Processors:  runtime.GOMAXPROCS(0),
	}
}
