package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// wire prepares a factory's informer of pods, which drops managed fields as kube-scheduler's does.
func wire(todo task) (*bench, error) {
	config := &rest.Config{Host: todo.URL, QPS: -1}
	// Typed clients request protobuf by default.
	config.AcceptContentTypes = "application/json"
	if todo.Content == "protobuf" {
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	err = informer.SetTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
		}
		return object, nil
	})
	return &bench{informer: informer, release: func() {}}, err
}
