package main

import (
	"encoding/json"

	fwk "k8s.io/kube-scheduler/framework"
)

// History is one line of input.
type History struct {
	// Config is a KubeSchedulerConfiguration, or null for the default with one profile named "supercargo".
	Config json.RawMessage `json:"config"`
	// FeatureGates are set for this history only.
	FeatureGates map[string]bool `json:"featureGates"`
	Steps        []Step          `json:"steps"`
}

// Step is one thing that happens. Exactly one of its fields is given.
type Step struct {
	Apply    json.RawMessage `json:"apply"`
	Delete   *Reference      `json:"delete"`
	Advance  *int64          `json:"advance"`
	Schedule bool            `json:"schedule"`
}

// Reference names an object.
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

// Answer is how things are after a step, and what happened since the step before.
type Answer struct {
	Pods    map[string]Pod `json:"pods"`
	Moves   map[string]int `json:"moves"`
	Events  []Event        `json:"events"`
	Deleted []string       `json:"deleted"`
	Writes  []Write        `json:"writes"`
	Cycle   *Cycle         `json:"cycle"`
}

// Pod is where a pod is.
type Pod struct {
	Place                string     `json:"place"`
	Node                 string     `json:"node"`
	Nominated            string     `json:"nominated"`
	Attempts             int        `json:"attempts"`
	UnschedulablePlugins []string   `json:"unschedulablePlugins"`
	PendingPlugins       []string   `json:"pendingPlugins"`
	Condition            *Condition `json:"condition"`
}

// Condition is a pod's PodScheduled condition as long as it is not True.
type Condition struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Event is one that the scheduler recorded.
type Event struct {
	Pod    string `json:"pod"`
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Action string `json:"action"`
	Note   string `json:"note"`
}

// Write is one that the scheduler sent, other than to pods.
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

// Status is what a plugin said.
type Status struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// PreFilter is what a plugin's PreFilter said; Nodes are those it left, if it left not all.
type PreFilter struct {
	Status
	Nodes []string `json:"nodes,omitempty"`
}

// Preemption is what DefaultPreemption found out.
type Preemption struct {
	// Nodes are those that it dry-ran.
	Nodes map[string]DryRun `json:"nodes"`
	// Tied are the best candidates among which upstream picks at random, in snapshot order; the first is taken.
	Tied []string `json:"tied"`
}

// DryRun is the dry run of a preemption on one node.
type DryRun struct {
	Status
	Victims    []string `json:"victims"`
	Violations int      `json:"violations"`
}

// Result is how the algorithm ended.
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

// listed makes a missing list an empty one, so that it is printed as such.
func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
