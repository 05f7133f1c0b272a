{{/* The name of all objects. */}}
{{- define "supercargo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of all objects, also used as pod selectors. The last one distinguishes releases. */}}
{{- define "supercargo.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/instance: {{ include "supercargo.fullname" . }}
{{- end -}}

{{- define "supercargo.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "supercargo.fullname" .) -}}
{{- end -}}

{{/* The subjects of role bindings. */}}
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

{{/* The Lease used for leader election by this release. */}}
{{- define "supercargo.leaseName" -}}
{{- .Values.leaderElection.resourceName | default (include "supercargo.fullname" .) -}}
{{- end -}}

{{- define "supercargo.leaseNamespace" -}}
{{- .Values.leaderElection.resourceNamespace | default "kube-system" -}}
{{- end -}}

{{/* The configuration. Only a release with the default name uses the default Lease. */}}
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

{{/* Pods of one revision are kept apart; manifests/ha has the reason. */}}
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

{{/* A probe of a path, with its other fields. */}}
{{- define "supercargo.probe" -}}
httpGet:
  path: {{ .path }}
  port: https
  scheme: HTTPS
{{ toYaml .fields }}
{{- end -}}
