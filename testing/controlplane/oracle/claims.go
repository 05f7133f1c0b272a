package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	resourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

var resourceClaims = resource.SchemeGroupVersion.WithResource("resourceclaims")

func (c *client) ResourceV1() resourcev1.ResourceV1Interface {
	return &resourceClient{ResourceV1Interface: c.Interface.ResourceV1(), cluster: c.cluster}
}

type resourceClient struct {
	resourcev1.ResourceV1Interface
	cluster *cluster
}

func (c *resourceClient) ResourceClaims(namespace string) resourcev1.ResourceClaimInterface {
	return &resourceClaimClient{c.ResourceV1Interface.ResourceClaims(namespace), c.cluster, namespace}
}

type resourceClaimClient struct {
	resourcev1.ResourceClaimInterface
	cluster   *cluster
	namespace string
}

func (c *resourceClaimClient) Update(
	ctx context.Context, claim *resource.ResourceClaim, _ metav1.UpdateOptions,
) (*resource.ResourceClaim, error) {
	return c.write("update", claim.Name, claim, func(old *resource.ResourceClaim) *resource.ResourceClaim {
		updated := claim.DeepCopy()
		updated.Status = old.Status
		return updated
	})
}

func (c *resourceClaimClient) UpdateStatus(
	ctx context.Context, claim *resource.ResourceClaim, _ metav1.UpdateOptions,
) (*resource.ResourceClaim, error) {
	return c.write("update status", claim.Name, claim, func(old *resource.ResourceClaim) *resource.ResourceClaim {
		updated := old.DeepCopy()
		updated.ResourceVersion, updated.Status = claim.ResourceVersion, claim.Status
		return updated
	})
}

// Patch patches the status.
func (c *resourceClaimClient) Patch(
	ctx context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, subresources ...string,
) (*resource.ResourceClaim, error) {
	if kind != types.StrategicMergePatchType || !slices.Equal(subresources, []string{"status"}) {
		return nil, fmt.Errorf("patch type %s of %v is not one of the oracle's", kind, subresources)
	}
	var failure error
	claim, err := c.write("patch status", name, json.RawMessage(patch), func(old *resource.ResourceClaim) *resource.ResourceClaim {
		var patched *resource.ResourceClaim
		patched, failure = patchedClaim(old, patch)
		return patched
	})
	if failure != nil {
		return nil, failure
	}
	return claim, err
}

func patchedClaim(old *resource.ResourceClaim, patch []byte) (*resource.ResourceClaim, error) {
	after, err := strategicpatch.StrategicMergePatch(mustMarshal(old), patch, old)
	if err != nil {
		return nil, err
	}
	patched := &resource.ResourceClaim{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, err
	}
	if patched.UID != old.UID {
		return nil, apierrors.NewConflict(resourceClaims.GroupResource(), old.Name,
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", patched.UID, old.UID))
	}
	return patched, nil
}

// write replaces a claim by what change makes of the stored one; nil changes nothing. Claims pass
// through JSON, as on their way to a server: their times have whole seconds.
func (c *resourceClaimClient) write(
	verb, name string, body any, change func(*resource.ResourceClaim) *resource.ResourceClaim,
) (written *resource.ResourceClaim, err error) {
	sent := json.RawMessage(mustMarshal(body))
	err = c.cluster.await(verb, resourceClaims.Resource, c.namespace, name, func() error {
		c.cluster.writes = append(c.cluster.writes, Write{Verb: verb, Resource: resourceClaims.Resource, Name: name, Body: sent})
		object, err := c.cluster.get(resourceClaims, c.namespace, name)
		if err != nil {
			return err
		}
		old := object.(*resource.ResourceClaim)
		changed := change(old.DeepCopy())
		if changed == nil {
			return nil
		}
		if changed.ResourceVersion != old.ResourceVersion {
			return apierrors.NewConflict(resourceClaims.GroupResource(), name,
				fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
		}
		whole := &resource.ResourceClaim{}
		if err := json.Unmarshal(mustMarshal(changed), whole); err != nil {
			return err
		}
		if string(mustMarshal(old)) != string(mustMarshal(whole)) {
			if err := c.cluster.store(resourceClaims, whole); err != nil {
				return err
			}
		}
		object, err = c.cluster.get(resourceClaims, c.namespace, name)
		if err == nil {
			written = object.(*resource.ResourceClaim)
		}
		return err
	})
	return written, err
}

// Create names a claim and gives it a UID by its version, so that both are reproducible.
func (c *resourceClaimClient) Create(
	ctx context.Context, claim *resource.ResourceClaim, _ metav1.CreateOptions,
) (created *resource.ResourceClaim, err error) {
	created = claim.DeepCopy()
	// As a client sends it.
	created.SetGroupVersionKind(resource.SchemeGroupVersion.WithKind("ResourceClaim"))
	sent := json.RawMessage(mustMarshal(created))
	err = c.cluster.await("create", resourceClaims.Resource, c.namespace, claim.GenerateName, func() error {
		c.cluster.writes = append(c.cluster.writes, Write{Verb: "create", Resource: resourceClaims.Resource, Name: claim.GenerateName, Body: sent})
		version := next(&c.cluster.version)
		created.Name, created.UID, created.ResourceVersion = claim.GenerateName+version, types.UID("uid-"+version), version
		return c.cluster.tracker.Create(resourceClaims, created.DeepCopy(), c.namespace)
	})
	return created, err
}

// Delete deletes a claim whose finalizers are gone.
func (c *resourceClaimClient) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	return c.cluster.await("delete", resourceClaims.Resource, c.namespace, name, func() error {
		c.cluster.writes = append(c.cluster.writes, Write{Verb: "delete", Resource: resourceClaims.Resource, Name: name, Body: json.RawMessage("null")})
		return c.cluster.tracker.Delete(resourceClaims, c.namespace, name)
	})
}

// keepShares copies the identities of shares to a new version of a claim. The history has others,
// because each side chooses them at random.
func keepShares(old, claim *resource.ResourceClaim) {
	if old.Status.Allocation == nil || claim.Status.Allocation == nil {
		return
	}
	stored := old.Status.Allocation.Devices.Results
	results := claim.Status.Allocation.Devices.Results
	for i := range min(len(stored), len(results)) {
		was, is := &stored[i], &results[i]
		if was.ShareID == nil || is.ShareID == nil || deviceOf(was) != deviceOf(is) {
			continue
		}
		identity := string(*was.ShareID)
		for j := range claim.Status.Devices {
			device := &claim.Status.Devices[j]
			if device.ShareID != nil && *device.ShareID == string(*is.ShareID) {
				device.ShareID = &identity
			}
		}
		is.ShareID = was.ShareID
	}
}

func deviceOf(result *resource.DeviceRequestAllocationResult) [3]string {
	return [3]string{result.Driver, result.Pool, result.Device}
}

// firstClaim makes DynamicResources take the allocation of the first claim away, where upstream
// takes that of any.
type firstClaim struct{ fwk.PostFilterPlugin }

func attachDeallocation(fw framework.Framework) {
	plugins := *field[[]fwk.PostFilterPlugin](fw, "postFilterPlugins")
	for i, plugin := range plugins {
		if plugin.Name() == "DynamicResources" {
			plugins[i] = firstClaim{plugin}
		}
	}
}

func (f firstClaim) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	if data, err := state.Read("DynamicResources"); err == nil {
		store := reflect.ValueOf(data).Elem().FieldByName("claims").FieldByName("claims")
		claims := *(*[]*resource.ResourceClaim)(unsafe.Pointer(store.UnsafeAddr()))
		unavailable := field[sets.Set[int]](data, "unavailableClaims")
		for _, index := range sets.List(*unavailable) {
			reserved := claims[index].Status.ReservedFor
			if len(reserved) == 0 || len(reserved) == 1 && reserved[0].UID == pod.UID {
				*unavailable = sets.New(index)
				break
			}
		}
	}
	return f.PostFilterPlugin.PostFilter(ctx, state, pod, nodes)
}
