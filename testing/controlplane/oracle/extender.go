package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
)

// scoreScale makes room below a score for the order of nodes with equal scores.
const scoreScale = 1 << 20

// extenderHost stands for the address of the extender in configurations, so that messages do not
// depend on the address.
const extenderHost = "extender.test"

// operator makes the calls of extenders. Calls leave the synctest bubble through it: a goroutine
// that waits for the network inside would never be at rest.
type operator struct {
	mutex     sync.Mutex
	questions chan *http.Request
	replies   chan reply
}

type reply struct {
	status int
	body   []byte
	err    error
}

var calls = &operator{questions: make(chan *http.Request), replies: make(chan reply)}

// serve answers calls. It must run outside of bubbles.
func (o *operator) serve() {
	for request := range o.questions {
		o.replies <- exchange(request)
	}
}

func exchange(request *http.Request) reply {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{status: response.StatusCode, body: body, err: err}
}

// line is a transport of one history's extenders.
type line struct{ address string }

func (l line) RoundTrip(request *http.Request) (*http.Response, error) {
	if l.address == "" || request.URL.Host != extenderHost {
		return nil, fmt.Errorf("the history has no extender %s", request.URL.Host)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	// Without the context of the bubble.
	url := strings.Replace(request.URL.String(), extenderHost, l.address, 1)
	outside, err := http.NewRequest(request.Method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	outside.Header = request.Header.Clone()
	calls.mutex.Lock()
	defer calls.mutex.Unlock()
	calls.questions <- outside
	answer := <-calls.replies
	if answer.err != nil {
		return nil, answer.err
	}
	return &http.Response{
		StatusCode: answer.status, Body: io.NopCloser(bytes.NewReader(answer.body)), Request: request,
	}, nil
}

// connect lets a scheduler's extenders call this address, and breaks ties of their scores.
func connect(sched *scheduler.Scheduler, address string) error {
	for i, extender := range sched.Extenders {
		remote, ok := extender.(*scheduler.HTTPExtender)
		if !ok {
			return errors.New("an extender is something else")
		}
		(*field[*http.Client](remote, "client")).Transport = line{address}
		sched.Extenders[i] = &drawing{remote}
	}
	return nil
}

// drawing is an extender whose scores contain an order of the nodes. Upstream draws a random number
// for each node that an extender has scored, to choose among equals.
type drawing struct{ fwk.Extender }

func (d *drawing) Prioritize(
	pod *v1.Pod, nodes []fwk.NodeInfo,
) (*extenderv1.HostPriorityList, int64, error) {
	scores, weight, err := d.Extender.Prioritize(pod, nodes)
	if err != nil {
		return nil, 0, err
	}
	ranks := draw(pod, nodes)
	for i, score := range *scores {
		(*scores)[i].Score = score.Score*weight*scoreScale + ranks[score.Host]
	}
	return scores, 1, nil
}

// draw orders nodes by a hash of the pod's UID and the node's name.
func draw(pod *v1.Pod, nodes []fwk.NodeInfo) map[string]int64 {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Node().Name
	}
	uid := string(pod.UID)
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(mixed(uid, a), mixed(uid, b)) })
	ranks := map[string]int64{}
	for i, name := range names {
		ranks[name] = int64(i)
	}
	return ranks
}

// mixed is FNV-1a of words that end with a zero, with MurmurHash's finalizer.
func mixed(words ...string) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for _, word := range words {
		for _, octet := range append([]byte(word), 0) {
			hash = (hash ^ uint64(octet)) * 0x100000001b3
		}
	}
	hash = (hash ^ hash>>33) * 0xff51afd7ed558ccd
	hash = (hash ^ hash>>33) * 0xc4ceb9fe1a85ec53
	return hash ^ hash>>33
}
