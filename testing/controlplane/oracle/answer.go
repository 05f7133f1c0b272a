package main

import (
	"encoding/json"

	fwk "k8s.io/kube-scheduler/framework"
)

// History is one line of input.
type History struct {
	// Config is a KubeSchedulerConfiguration, or null for the default with one profile named
	// "supercargo".
	Config json.RawMessage `json:"config"`
	// FeatureGates are set for this history only.
	FeatureGates map[string]bool `json:"featureGates"`
	// Extender is the address of the extenders at http://extender.test.
	Extender string `json:"extender"`
	Steps    []Step `json:"steps"`
}

// Step is one change. Exactly one of its fields is set.
type Step struct {
	Apply    json.RawMessage `json:"apply"`
	Delete   *Reference      `json:"delete"`
	Advance  *int64          `json:"advance"`
	Schedule bool            `json:"schedule"`
}

// Reference identifies an object.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

// Answers is one line of output.
type Answers struct {
	Steps []*Answer `json:"steps,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Answer is the state after a step, and the changes since the step before.
type Answer struct {
	Pods     map[string]Pod   `json:"pods"`
	Groups   map[string]Group `json:"groups"`
	Moves    map[string]int   `json:"moves"`
	Entities map[string]int   `json:"entities"`
	Events   []Event          `json:"events"`
	Deleted  []string         `json:"deleted"`
	Writes   []Write          `json:"writes"`
	Cycle    *Cycle           `json:"cycle"`
	// Trials are those of a group's pods, in order.
	Trials []*Cycle `json:"trials"`
}

// Pod is the state of a pod.
type Pod struct {
	Place                string   `json:"place"`
	Node                 string   `json:"node"`
	Nominated            string   `json:"nominated"`
	Attempts             int      `json:"attempts"`
	UnschedulablePlugins []string `json:"unschedulablePlugins"`
	PendingPlugins       []string `json:"pendingPlugins"`
	// Condition is PodScheduled, unless it is True.
	Condition *Condition `json:"condition"`
	// Disruption is DisruptionTarget.
	Disruption *Condition `json:"disruption"`
}

// Group is the state of a PodGroup.
type Group struct {
	// Condition is PodGroupInitiallyScheduled.
	Condition *Condition `json:"condition"`
	// Since is its transition time in seconds.
	Since int64 `json:"since"`
}

// Condition is the condition of a pod or a PodGroup.
type Condition struct {
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration"`
}

// Event is a recorded event.
type Event struct {
	Pod    string `json:"pod"`
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Action string `json:"action"`
	Note   string `json:"note"`
}

// Write is a write of the scheduler, other than to pods.
type Write struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
	Body     any    `json:"body"`
}

// Cycle is a pod's scheduling cycle.
type Cycle struct {
	Pod        string                       `json:"pod"`
	PreFilter  map[string]PreFilter         `json:"preFilter"`
	Filters    map[string]map[string]Status `json:"filters"`
	Feasible   []string                     `json:"feasible"`
	Scores     map[string]map[string]int64  `json:"scores"`
	Preemption *Preemption                  `json:"preemption"`
	Result     *Result                      `json:"result"`
}

// Status is the result of a plugin.
type Status struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// PreFilter is the result of a plugin's PreFilter. Nodes are set unless it returned all.
type PreFilter struct {
	Status
	Nodes []string `json:"nodes,omitempty"`
}

// Preemption is the result of DefaultPreemption.
type Preemption struct {
	// Nodes are the nodes of its dry runs.
	Nodes map[string]DryRun `json:"nodes"`
	// Tied are the best candidates among which upstream picks at random, in snapshot order; the
	// first is taken.
	Tied []string `json:"tied"`
}

// DryRun is the dry run of a preemption on one node.
type DryRun struct {
	Status
	Victims    []string `json:"victims"`
	Violations int      `json:"violations"`
}

// Result is the result of the algorithm.
type Result struct {
	Node  string `json:"node,omitempty"`
	Error string `json:"error,omitempty"`
}

func statusOf(status *fwk.Status) Status {
	if status == nil {
		status = fwk.NewStatus(fwk.Success)
	}
	return Status{Code: status.Code().String(), Reasons: listed(status.Reasons())}
}

// listed turns nil into an empty list, so that it is printed.
func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
