{{/* What everything is called. */}}
{{- define "supercargo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of everything, by which its pods are found, too. The last one says of which release: others may be beside it. */}}
{{- define "supercargo.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/instance: {{ include "supercargo.fullname" . }}
{{- end -}}

{{- define "supercargo.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "supercargo.fullname" .) -}}
{{- end -}}

{{/* Who a role is for. */}}
{{- define "supercargo.subjects" -}}
- kind: ServiceAccount
  name: {{ include "supercargo.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "supercargo.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The Lease that replicas of this release take the lead by. */}}
{{- define "supercargo.leaseName" -}}
{{- .Values.leaderElection.resourceName | default (include "supercargo.fullname" .) -}}
{{- end -}}

{{- define "supercargo.leaseNamespace" -}}
{{- .Values.leaderElection.resourceNamespace | default "kube-system" -}}
{{- end -}}

{{/* The configuration. Another release must not have the default Lease. */}}
{{- define "supercargo.config" -}}
{{- $election := deepCopy .Values.leaderElection -}}
{{- if ne (include "supercargo.leaseName" .) .Chart.Name -}}
{{- $_ := set $election "resourceName" (include "supercargo.leaseName" .) -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- if $election -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{ toYaml $config }}
{{- end -}}

{{/* Why the pods of one revision are kept apart, and not all: manifests/ha. */}}
{{- define "supercargo.antiAffinity" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "supercargo.labels" . | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
{{- end -}}

{{- define "supercargo.zoneSpread" -}}
- topologyKey: topology.kubernetes.io/zone
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "supercargo.labels" . | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end -}}

{{/* A probe: of a path, with the rest of its fields. */}}
{{- define "supercargo.probe" -}}
httpGet:
  path: {{ .path }}
  port: https
  scheme: HTTPS
{{ toYaml .fields }}
{{- end -}}
