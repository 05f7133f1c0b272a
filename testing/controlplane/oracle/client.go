package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// client is the scheduler's client. It reads and watches like the fake clientset, and writes into
// the cluster, because the fake's writes hold a lock that forbids waiting.
type client struct {
	kubernetes.Interface
	cluster *cluster
}

// IsWatchListSemanticsUnSupported makes informers list and then watch: the fake cannot send a list
// as events.
func (c *client) IsWatchListSemanticsUnSupported() bool { return true }

func (c *client) CoreV1() corev1.CoreV1Interface {
	return &coreClient{CoreV1Interface: c.Interface.CoreV1(), cluster: c.cluster}
}

type coreClient struct {
	corev1.CoreV1Interface
	cluster *cluster
}

func (c *coreClient) Pods(namespace string) corev1.PodInterface {
	return &podClient{PodInterface: c.CoreV1Interface.Pods(namespace), cluster: c.cluster, namespace: namespace}
}

func (c *coreClient) PersistentVolumes() corev1.PersistentVolumeInterface {
	return &volumeClient{PersistentVolumeInterface: c.CoreV1Interface.PersistentVolumes(), cluster: c.cluster}
}

func (c *coreClient) PersistentVolumeClaims(namespace string) corev1.PersistentVolumeClaimInterface {
	return &claimClient{
		PersistentVolumeClaimInterface: c.CoreV1Interface.PersistentVolumeClaims(namespace), cluster: c.cluster,
	}
}

type podClient struct {
	corev1.PodInterface
	cluster   *cluster
	namespace string
}

func (p *podClient) Bind(ctx context.Context, binding *v1.Binding, _ metav1.CreateOptions) error {
	return p.cluster.await("bind", "pods", p.namespace, binding.Name, func() error { return p.cluster.bind(binding) })
}

func (p *podClient) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	return p.cluster.await("delete", "pods", p.namespace, name, func() error {
		return p.cluster.deletePod(p.namespace, name)
	})
}

func (p *podClient) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (pod *v1.Pod, err error) {
	err = p.cluster.await("patch", "pods", p.namespace, name, func() error {
		pod, err = p.cluster.patchPod(p.namespace, name, kind, data)
		return err
	})
	return pod, err
}

type volumeClient struct {
	corev1.PersistentVolumeInterface
	cluster *cluster
}

func (c *volumeClient) Update(
	ctx context.Context, volume *v1.PersistentVolume, _ metav1.UpdateOptions,
) (updated *v1.PersistentVolume, err error) {
	err = c.cluster.await("update", "persistentvolumes", "", volume.Name, func() error {
		object, err := c.cluster.update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), volume)
		if err == nil {
			updated = object.(*v1.PersistentVolume)
		}
		return err
	})
	return updated, err
}

type claimClient struct {
	corev1.PersistentVolumeClaimInterface
	cluster *cluster
}

func (c *claimClient) Update(
	ctx context.Context, claim *v1.PersistentVolumeClaim, _ metav1.UpdateOptions,
) (updated *v1.PersistentVolumeClaim, err error) {
	err = c.cluster.await("update", "persistentvolumeclaims", claim.Namespace, claim.Name, func() error {
		object, err := c.cluster.update(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim)
		if err == nil {
			updated = object.(*v1.PersistentVolumeClaim)
		}
		return err
	})
	return updated, err
}
