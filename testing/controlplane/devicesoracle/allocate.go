package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
)

// allocation asks whether claims can be allocated, for each of some nodes. The objects are the
// API's.
type allocation struct {
	Features structured.Features `json:"features"`
	// Variant names the allocator; empty is upstream's choice by features.
	Variant    string                         `json:"variant"`
	Slices     []*resourceapi.ResourceSlice   `json:"slices"`
	Classes    []*resourceapi.DeviceClass     `json:"classes"`
	TaintRules []*resourceapi.DeviceTaintRule `json:"taintRules"`
	// Allocated are claims that have devices already.
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Nodes     []*v1.Node                   `json:"nodes"`
}

// allocations has one outcome per node.
type allocations struct {
	Error string    `json:"error,omitempty"`
	Nodes []outcome `json:"nodes,omitempty"`
}

// outcome is what the allocator says about one node. No results and no error mean that the claims
// do not fit.
type outcome struct {
	Results []resourceapi.AllocationResult `json:"results,omitempty"`
	Error   string                         `json:"error,omitempty"`
	// NodeOnly says that the error concerns this node alone.
	NodeOnly bool   `json:"nodeOnly,omitempty"`
	Panic    string `json:"panic,omitempty"`
	Steps    int64  `json:"steps"`
}

func allocateAll(asked allocation) allocations {
	ctx := context.Background()
	if asked.Variant == "" {
		structured.EnableAllocators()
	} else {
		structured.EnableAllocators(asked.Variant)
	}
	tainted, err := withTaintRules(ctx, asked)
	if err != nil {
		return allocations{Error: err.Error()}
	}
	asked.Slices = tainted
	var result allocations
	state := allocatedState(asked)
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: asked.Features.ConsumableCapacity})
	for _, node := range asked.Nodes {
		result.Nodes = append(result.Nodes, allocateOn(ctx, asked, state, cache, node))
	}
	return result
}

func allocateOn(ctx context.Context, asked allocation, state structured.AllocatedState, cache *cel.Cache, node *v1.Node) (found outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			found = outcome{Panic: fmt.Sprint(cause)}
		}
	}()
	allocator, err := structured.NewAllocator(ctx, asked.Features, state, classes(asked.Classes), asked.Slices, cache)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, node, asked.Claims)
	found = outcome{Results: results, Steps: steps(allocator)}
	if err != nil {
		found.Error = err.Error()
		found.NodeOnly = errors.Is(err, structured.ErrFailedAllocationOnNode)
	}
	return found
}

// steps is the number of steps that upstream's own tests pin. Their type has no public name.
func steps(allocator structured.Allocator) int64 {
	stats := reflect.ValueOf(allocator).MethodByName("GetStats").Call(nil)[0]
	return stats.FieldByName("NumAllocateOneInvocations").Int()
}

// withTaintRules lays the rules over the slices as upstream's tracker does, in the order of names.
func withTaintRules(ctx context.Context, asked allocation) ([]*resourceapi.ResourceSlice, error) {
	if len(asked.TaintRules) == 0 {
		return asked.Slices, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var objects []runtime.Object
	for _, slice := range asked.Slices {
		objects = append(objects, slice)
	}
	for _, rule := range asked.TaintRules {
		objects = append(objects, rule)
	}
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(objects...), 0)
	resources := factory.Resource().V1()
	tracked, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true,
		SliceInformer:          resources.ResourceSlices(),
		TaintInformer:          resources.DeviceTaintRules(),
	})
	if err != nil {
		return nil, err
	}
	defer tracked.Stop()
	factory.Start(ctx.Done())
	<-tracked.HasSyncedChecker().Done()
	found, err := tracked.ListPatchedResourceSlices()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// allocatedState sums the claims as the scheduler's plugin does.
func allocatedState(asked allocation) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range asked.Allocated {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case result.AdminAccess != nil && *result.AdminAccess:
			case asked.Features.ConsumableCapacity && result.ShareID != nil:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
				if result.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
				}
			default:
				state.AllocatedDevices.Insert(device)
			}
		}
	}
	return state
}

// classes lists device classes.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return c, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}
