{{- define "gpu-extender.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "gpu-extender.image" -}}
{{- $registry := .image.registry | default .root.Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}:{{ .tag -}}
{{- end -}}

{{- define "gpu-extender.extenderImage" -}}
{{- $image := .Values.scheduler.extender.image -}}
{{- $tag := $image.tag | default .Values.global.imageTag | default .Chart.AppVersion -}}
{{- include "gpu-extender.image" (dict "root" . "image" $image "tag" $tag) -}}
{{- end -}}

{{/* The objects of a file under files/, in this namespace. What belongs to Kubernetes' own namespace stays there. */}}
{{- define "gpu-extender.objects" -}}
{{- $namespace := include "gpu-extender.namespace" .root -}}
{{- $but := .but | default list -}}
{{- range $text := splitList "\n---\n" (.root.Files.Get .file) }}
{{- $object := fromYaml $text }}
{{- if not (has $object.metadata.name $but) }}
{{- if and (hasKey $object.metadata "namespace") (not (hasKey (dict "gpu-scheduler-authentication" 1) $object.metadata.name)) }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- range $subject := $object.subjects | default list }}
{{- $_ := set $subject "namespace" $namespace }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gpu-extender.hasDeviceConfig" -}}
{{- $own := list .Values.resourceName .Values.resourceMem .Values.resourceMemPercentage .Values.resourceCores .Values.resourcePriority -}}
{{- $usual := list "nvidia.com/gpu" "nvidia.com/gpumem" "nvidia.com/gpumem-percentage" "nvidia.com/gpucores" "nvidia.com/priority" -}}
{{- if or .Values.deviceConfig (not (deepEqual $own $usual)) }}true{{ end -}}
{{- end -}}

{{/* The flags by which requests are read. Whatever reads pods must be given the same. */}}
{{- define "gpu-extender.readingArgs" -}}
{{- if include "gpu-extender.hasDeviceConfig" . }}
- --vendor-config=/etc/gpu-extender/vendors/device-config.yaml
{{- end }}
{{- range .Values.rawKeys }}
- --raw-key={{ . }}
{{- end }}
{{- end -}}

{{/* Who may write the scheduler's annotations, where that is not the default. */}}
{{- define "gpu-extender.trustArgs" -}}
{{- $own := printf "system:serviceaccount:%s:gpu-extender" (include "gpu-extender.namespace" .) -}}
{{- $accounts := prepend .Values.trustedAccounts $own -}}
{{- $usual := list "system:serviceaccount:kube-system:gpu-extender" "system:serviceaccount:kube-system:hami-device-plugin" -}}
{{- if not (deepEqual $accounts $usual) }}
{{- range $accounts }}
- --trusted-account={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Names of the certificate beside the webhooks' own. */}}
{{- define "gpu-extender.hostArgs" -}}
{{- $namespace := include "gpu-extender.namespace" . -}}
{{- $more := list -}}
{{- if eq .Values.mode "leader-election" }}{{ $more = append $more "gpu-extender" }}{{ end -}}
{{- if .Values.api.enabled }}{{ $more = append $more "gpu-extender-api" }}{{ end -}}
{{- range $more }}
- --host={{ . }}.{{ $namespace }}.svc
{{- end }}
{{- end -}}

{{- define "gpu-extender.podMetadata" -}}
labels:
  app.kubernetes.io/name: {{ .name }}
  {{- with .root.Values.global.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := mergeOverwrite (dict) .root.Values.global.annotations .root.Values.scheduler.podAnnotations }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gpu-extender.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{- if . }}
# So that the key can be read.
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "gpu-extender.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "gpu-extender.spread" -}}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: gpu-extender
  matchLabelKeys: [pod-template-hash]
{{- end -}}
