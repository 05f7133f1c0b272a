// Command clientgo runs client-go's shared informers on a server and prints their state on request.
//
// Each line on stdin is a command, each answer one line of JSON on stdout:
//
//	state            per resource: what the store holds and what handlers were told, as key to resource version
//	objects RESOURCE the stored objects of a resource, by key
//	failures         how many requests were refused or not answered
//
// It ends with its stdin.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// watched is one informer and the notifications of its handler.
type watched struct {
	informer cache.SharedIndexInformer

	mutex   sync.Mutex
	told    map[string]string
	strange []string
}

// failures counts requests that were rejected or not answered.
type failures struct {
	next  http.RoundTripper
	count *atomic.Int64
}

// state is the answer of the command state for one resource.
type state struct {
	Synced bool `json:"synced"`
	// Key to resource version.
	Store map[string]string `json:"store"`
	// The same, derived from notifications.
	Told map[string]string `json:"told"`
	// Notifications that do not follow from earlier ones.
	Strange []string `json:"strange"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clientgo:", err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "the file that says where the server is")
	resources := flag.String("resources", "pods", "what to watch, as resource or resource.version.group, comma-separated")
	content := flag.String("content", "json", "json or protobuf")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.UserAgent = "clientgo"
	failed := new(atomic.Int64)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return failures{next, failed} })
	if *content == "protobuf" {
		config.ContentType = protobuf
		config.AcceptContentTypes = protobuf
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	all := map[string]*watched{}
	for _, name := range strings.Split(*resources, ",") {
		one, err := watch(factory, name)
		if err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
		all[name] = one
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	return answer(all, failed)
}

func (failures failures) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := failures.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		failures.count.Add(1)
	}
	return response, err
}

func watch(factory informers.SharedInformerFactory, name string) (*watched, error) {
	resource, group := schema.ParseResourceArg(name)
	if resource == nil {
		resource = &schema.GroupVersionResource{Version: "v1", Resource: group.Resource, Group: group.Group}
	}
	generic, err := factory.ForResource(*resource)
	if err != nil {
		return nil, err
	}
	one := &watched{informer: generic.Informer(), told: map[string]string{}}
	_, err = one.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    one.added,
		UpdateFunc: one.updated,
		DeleteFunc: one.deleted,
	})
	return one, err
}

func (one *watched) added(object any) {
	key, version := identify(object)
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if _, known := one.told[key]; known {
		one.strange = append(one.strange, "added twice: "+key)
	}
	one.told[key] = version
}

func (one *watched) updated(before, after any) {
	key, version := identify(after)
	_, old := identify(before)
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if known := one.told[key]; known != old {
		one.strange = append(one.strange, fmt.Sprintf("%s updated from %s, which was %q", key, old, known))
	}
	one.told[key] = version
}

func (one *watched) deleted(object any) {
	if gone, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = gone.Obj
	}
	key, _ := identify(object)
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if _, known := one.told[key]; !known {
		one.strange = append(one.strange, "deleted, but not known: "+key)
	}
	delete(one.told, key)
}

func (one *watched) state() state {
	store := map[string]string{}
	for _, object := range one.informer.GetStore().List() {
		key, version := identify(object)
		store[key] = version
	}
	one.mutex.Lock()
	defer one.mutex.Unlock()
	return state{
		Synced:  one.informer.HasSynced(),
		Store:   store,
		Told:    maps.Clone(one.told),
		Strange: one.strange,
	}
}

func (one *watched) objects() map[string]any {
	objects := map[string]any{}
	for _, object := range one.informer.GetStore().List() {
		key, _ := identify(object)
		objects[key] = object
	}
	return objects
}

// identify returns an object's namespace/name and resource version.
func identify(object any) (key, version string) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	key, err = cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err)
	}
	return key, accessor.GetResourceVersion()
}

func answer(all map[string]*watched, failed *atomic.Int64) error {
	output := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var reply any
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch {
		case command == "state":
			states := map[string]state{}
			for name, one := range all {
				states[name] = one.state()
			}
			reply = states
		case command == "failures":
			reply = failed.Load()
		case command == "objects" && all[argument] != nil:
			reply = all[argument].objects()
		default:
			return fmt.Errorf("what is %q?", lines.Text())
		}
		if err := output.Encode(reply); err != nil {
			return err
		}
	}
	return lines.Err()
}
