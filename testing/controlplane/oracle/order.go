package main

import (
	"cmp"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// order sorts the lists of all informers by namespace and name. Upstream's order is that of maps,
// so plugins that take the first match would choose at random. It must be called before anything
// gets a lister.
func order(factory informers.SharedInformerFactory) {
	core, apps, storage := factory.Core().V1(), factory.Apps().V1(), factory.Storage().V1()
	for _, informer := range []cache.SharedIndexInformer{
		core.Pods().Informer(), core.Nodes().Informer(), core.Namespaces().Informer(), core.Services().Informer(),
		core.ReplicationControllers().Informer(), core.PersistentVolumes().Informer(),
		core.PersistentVolumeClaims().Informer(), apps.ReplicaSets().Informer(), apps.StatefulSets().Informer(),
		factory.Policy().V1().PodDisruptionBudgets().Informer(), storage.StorageClasses().Informer(),
		storage.CSINodes().Informer(), storage.CSIDrivers().Informer(), storage.CSIStorageCapacities().Informer(),
		storage.VolumeAttachments().Informer(),
	} {
		indexer := field[cache.Indexer](untyped(informer), "indexer")
		*indexer = ordered{*indexer}
	}
}

// untyped returns the informer that typed ones wrap.
func untyped(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	for {
		inner := reflect.ValueOf(informer).Elem().FieldByName("SharedIndexInformer")
		if !inner.IsValid() {
			return informer
		}
		informer = inner.Interface().(cache.SharedIndexInformer)
	}
}

type ordered struct{ cache.Indexer }

func (o ordered) List() []any {
	return sorted(o.Indexer.List())
}

func (o ordered) Index(name string, object any) ([]any, error) {
	objects, err := o.Indexer.Index(name, object)
	return sorted(objects), err
}

func (o ordered) ByIndex(name, value string) ([]any, error) {
	objects, err := o.Indexer.ByIndex(name, value)
	return sorted(objects), err
}

func sorted(objects []any) []any {
	slices.SortFunc(objects, func(a, b any) int {
		x, errX := meta.Accessor(a)
		y, errY := meta.Accessor(b)
		if errX != nil || errY != nil {
			return 0
		}
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return objects
}
