package main

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type root struct {
	apiVersion string
	object     reflect.Type
}

// roots are the kinds that the server in memory serves, and the kinds of their requests and
// answers.
func roots() []root {
	groups := []struct {
		apiVersion string
		objects    []any
	}{
		{"v1", []any{
			corev1.Binding{},
			corev1.ConfigMap{}, corev1.ConfigMapList{},
			corev1.Endpoints{}, corev1.EndpointsList{},
			corev1.Event{}, corev1.EventList{},
			corev1.LimitRange{}, corev1.LimitRangeList{},
			corev1.Namespace{}, corev1.NamespaceList{},
			corev1.Node{}, corev1.NodeList{},
			corev1.PersistentVolumeClaim{}, corev1.PersistentVolumeClaimList{},
			corev1.PersistentVolume{}, corev1.PersistentVolumeList{},
			corev1.Pod{}, corev1.PodList{},
			corev1.PodTemplate{}, corev1.PodTemplateList{},
			corev1.ReplicationController{}, corev1.ReplicationControllerList{},
			corev1.ResourceQuota{}, corev1.ResourceQuotaList{},
			corev1.Secret{}, corev1.SecretList{},
			corev1.ServiceAccount{}, corev1.ServiceAccountList{},
			corev1.Service{}, corev1.ServiceList{},
			metav1.Status{}, metav1.DeleteOptions{}, metav1.WatchEvent{},
			metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, metav1.APIGroup{},
		}},
		{"meta.k8s.io/v1", []any{metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{}}},
		{"apps/v1", []any{
			appsv1.ControllerRevision{}, appsv1.ControllerRevisionList{},
			appsv1.DaemonSet{}, appsv1.DaemonSetList{},
			appsv1.Deployment{}, appsv1.DeploymentList{},
			appsv1.ReplicaSet{}, appsv1.ReplicaSetList{},
			appsv1.StatefulSet{}, appsv1.StatefulSetList{},
		}},
		{"events.k8s.io/v1", []any{eventsv1.Event{}, eventsv1.EventList{}}},
		{"authentication.k8s.io/v1", []any{
			authenticationv1.SelfSubjectReview{}, authenticationv1.TokenReview{}, authenticationv1.TokenRequest{},
		}},
		{"authorization.k8s.io/v1", []any{
			authorizationv1.LocalSubjectAccessReview{}, authorizationv1.SelfSubjectAccessReview{},
			authorizationv1.SelfSubjectRulesReview{}, authorizationv1.SubjectAccessReview{},
		}},
		{"autoscaling/v1", []any{autoscalingv1.Scale{}}},
		{"autoscaling/v2", []any{
			autoscalingv2.HorizontalPodAutoscaler{}, autoscalingv2.HorizontalPodAutoscalerList{},
		}},
		{"batch/v1", []any{batchv1.CronJob{}, batchv1.CronJobList{}, batchv1.Job{}, batchv1.JobList{}}},
		{"networking.k8s.io/v1", []any{
			networkingv1.Ingress{}, networkingv1.IngressList{},
			networkingv1.NetworkPolicy{}, networkingv1.NetworkPolicyList{},
		}},
		{"node.k8s.io/v1", []any{nodev1.RuntimeClass{}, nodev1.RuntimeClassList{}}},
		{"policy/v1", []any{
			policyv1.Eviction{}, policyv1.PodDisruptionBudget{}, policyv1.PodDisruptionBudgetList{},
		}},
		{"rbac.authorization.k8s.io/v1", []any{
			rbacv1.ClusterRoleBinding{}, rbacv1.ClusterRoleBindingList{},
			rbacv1.ClusterRole{}, rbacv1.ClusterRoleList{},
			rbacv1.RoleBinding{}, rbacv1.RoleBindingList{},
			rbacv1.Role{}, rbacv1.RoleList{},
		}},
		{"storage.k8s.io/v1", []any{
			storagev1.CSIDriver{}, storagev1.CSIDriverList{},
			storagev1.CSINode{}, storagev1.CSINodeList{},
			storagev1.CSIStorageCapacity{}, storagev1.CSIStorageCapacityList{},
			storagev1.StorageClass{}, storagev1.StorageClassList{},
			storagev1.VolumeAttachment{}, storagev1.VolumeAttachmentList{},
		}},
		{"apiextensions.k8s.io/v1", []any{
			apiextensionsv1.CustomResourceDefinition{}, apiextensionsv1.CustomResourceDefinitionList{},
		}},
		{"scheduling.k8s.io/v1", []any{schedulingv1.PriorityClass{}, schedulingv1.PriorityClassList{}}},
		{"scheduling.k8s.io/v1beta1", []any{
			schedulingv1beta1.PodGroup{}, schedulingv1beta1.PodGroupList{},
			schedulingv1beta1.Workload{}, schedulingv1beta1.WorkloadList{},
		}},
		{"scheduling.k8s.io/v1alpha3", []any{
			schedulingv1alpha3.CompositePodGroup{}, schedulingv1alpha3.CompositePodGroupList{},
			schedulingv1alpha3.PodGroup{}, schedulingv1alpha3.PodGroupList{},
			schedulingv1alpha3.Workload{}, schedulingv1alpha3.WorkloadList{},
		}},
		{"coordination.k8s.io/v1", []any{coordinationv1.Lease{}, coordinationv1.LeaseList{}}},
		{"discovery.k8s.io/v1", []any{discoveryv1.EndpointSlice{}, discoveryv1.EndpointSliceList{}}},
		{"resource.k8s.io/v1", []any{
			resourcev1.DeviceClass{}, resourcev1.DeviceClassList{},
			resourcev1.DeviceTaintRule{}, resourcev1.DeviceTaintRuleList{},
			resourcev1.ResourceClaim{}, resourcev1.ResourceClaimList{},
			resourcev1.ResourceClaimTemplate{}, resourcev1.ResourceClaimTemplateList{},
			resourcev1.ResourceSlice{}, resourcev1.ResourceSliceList{},
		}},
	}
	var all []root
	for _, group := range groups {
		for _, object := range group.objects {
			all = append(all, root{group.apiVersion, reflect.TypeOf(object)})
		}
	}
	return all
}
