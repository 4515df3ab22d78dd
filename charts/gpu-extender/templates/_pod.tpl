{{/* The pod of the extender on a cluster, in all three modes. */}}
{{- define "gpu-extender.pod" -}}
{{- $namespace := include "gpu-extender.namespace" . -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
{{- $second := eq .Values.mode "second-scheduler" -}}
{{- $electing := eq .Values.mode "leader-election" -}}
{{- $policy := .Values.scheduler.defaultSchedulerPolicy -}}
serviceAccountName: gpu-extender
automountServiceAccountToken: false
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
priorityClassName: {{ .Values.scheduler.priorityClassName | default (ternary "system-node-critical" "system-cluster-critical" $sidecar) }}
{{- if $sidecar }}
# kube-scheduler's static pod is on the node's network, so its loopback is where the verbs are.
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
# Above the shutdown delay, the requests in flight and the giving up of the lease.
terminationGracePeriodSeconds: 40
securityContext:
  {{- include "gpu-extender.podSecurity" true | nindent 2 }}
{{- $selector := .Values.scheduler.nodeSelector }}
{{- if $sidecar }}{{ $selector = merge (dict "node-role.kubernetes.io/control-plane" "") $selector }}{{ end }}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not $sidecar }}
topologySpreadConstraints:
  {{- include "gpu-extender.spread" "kubernetes.io/hostname" | nindent 2 }}
  {{- include "gpu-extender.spread" "topology.kubernetes.io/zone" | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: gpu-extender
    image: {{ include "gpu-extender.extenderImage" . }}
    {{- if ne .Values.scheduler.extender.image.pullPolicy "IfNotPresent" }}
    imagePullPolicy: {{ .Values.scheduler.extender.image.pullPolicy }}
    {{- end }}
    args:
      - serve
      - --in-cluster
      # Elsewhere the verbs stay on loopback: the protocol has no authentication.
      - --bind-address={{ ternary "0.0.0.0" "127.0.0.1" $electing }}
      - --port=8888
      # A restarted container need not wait for the lease of the one before it.
      - --predecessor-lock=/var/run/gpu-extender/lock
      - --tls-cert-file=/etc/gpu-extender/tls/tls.crt
      - --tls-private-key-file=/etc/gpu-extender/tls/tls.key
      # The webhooks alone are reachable from outside.
      - --webhook-bind-address=0.0.0.0
      - --webhook-port=9443
      # Longer than endpoints take to be withdrawn.
      - --shutdown-delay=5
      - --log-format=json
      {{- if $electing }}
      - --verbs-client-ca=/etc/gpu-extender/verbs-ca/ca.crt
      - --leader-label
      {{- else }}
      # The kube-scheduler beside it leads, or not; the extender does the same.
      - --follow-lease
      - --lease-name={{ ternary "kube-scheduler" "gpu-scheduler" $sidecar }}
      {{- end }}
      {{- if and (not $sidecar) (ne $namespace "kube-system") }}
      - --lease-namespace={{ $namespace }}
      {{- end }}
      {{- if ne .Values.schedulerName "gpu-scheduler" }}
      - --scheduler-name={{ .Values.schedulerName }}
      {{- end }}
      {{- if ne $policy.nodeSchedulerPolicy "binpack" }}
      - --node-scheduler-policy={{ $policy.nodeSchedulerPolicy }}
      {{- end }}
      {{- if ne $policy.gpuSchedulerPolicy "spread" }}
      - --gpu-scheduler-policy={{ $policy.gpuSchedulerPolicy }}
      {{- end }}
      {{- if not .Values.scheduler.forceOverwriteDefaultScheduler }}
      - --no-replace-default-scheduler
      {{- end }}
      {{- include "gpu-extender.trustArgs" . | nindent 6 }}
      {{- include "gpu-extender.readingArgs" . | nindent 6 }}
      {{- if .Values.api.enabled }}
      - --api-bind-address=0.0.0.0
      - --api-port=9444
      {{- end }}
      {{- if .Values.holds.enabled }}
      - --hold-sets
      - --hold-resource=holds.v1alpha1.gpu-extender.io
      {{- end }}
      {{- if .Values.taintHeldCards.enabled }}
      - --taint-held-cards
      {{- end }}
      {{- with .Values.scheduler.extender.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    env:
      - name: POD_NAME
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      - name: POD_UID
        valueFrom:
          fieldRef:
            fieldPath: metadata.uid
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
    ports:
      - name: webhooks
        containerPort: 9443
      {{- if $electing }}
      - name: verbs
        containerPort: 8888
      {{- end }}
      {{- if .Values.api.enabled }}
      - name: api
        containerPort: 9444
      {{- end }}
    readinessProbe:
      # On this port "ready" means that the cluster was read, not that this replica leads.
      httpGet:
        scheme: HTTPS
        port: webhooks
        path: /readyz
      periodSeconds: 2
    livenessProbe:
      httpGet:
        scheme: HTTPS
        port: webhooks
        path: /livez
      periodSeconds: 10
      timeoutSeconds: 5
    {{- with .Values.scheduler.extender.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "gpu-extender.containerSecurity" . | nindent 6 }}
    volumeMounts:
      # The whole directory and no subPath: single files would never be updated.
      - name: tls
        mountPath: /etc/gpu-extender/tls
        readOnly: true
      - name: extender-account
        mountPath: /var/run/secrets/kubernetes.io/serviceaccount
        readOnly: true
      - name: run
        mountPath: /var/run/gpu-extender
      {{- if $electing }}
      - name: verbs-ca
        mountPath: /etc/gpu-extender/verbs-ca
        readOnly: true
      {{- end }}
      {{- if include "gpu-extender.hasDeviceConfig" . }}
      - name: vendors
        mountPath: /etc/gpu-extender/vendors
        readOnly: true
      {{- end }}
  {{- if $second }}
  {{- include "gpu-extender.kubeScheduler" . | nindent 2 }}
  {{- end }}
volumes:
  - name: extender-account
    projected:
      defaultMode: 0440
      sources:
        - serviceAccountToken:
            path: token
            expirationSeconds: 3607
        - configMap:
            name: kube-root-ca.crt
            items:
              - key: ca.crt
                path: ca.crt
        - downwardAPI:
            items:
              - path: namespace
                fieldRef:
                  fieldPath: metadata.namespace
  # The pod's own, so whoever gets the lock in it knows that the processes before have ended.
  - name: run
    emptyDir:
      sizeLimit: 1Mi
  - name: tls
    secret:
      # Written by `gpu-extender certs` or by cert-manager; until then the pod waits.
      secretName: gpu-extender-webhook-tls
      defaultMode: 0440
  {{- if $electing }}
  - name: verbs-ca
    secret:
      secretName: gpu-extender-verbs-ca
      defaultMode: 0440
  {{- end }}
  {{- if $second }}
  - name: scheduler-account
    secret:
      secretName: gpu-scheduler-token
      defaultMode: 0440
  - name: config
    configMap:
      name: gpu-scheduler-config
  {{- end }}
  {{- if include "gpu-extender.hasDeviceConfig" . }}
  - name: vendors
    configMap:
      name: gpu-extender-vendors
  {{- end }}
{{- end -}}

{{- define "gpu-extender.kubeScheduler" -}}
{{- $one := .Values.scheduler.kubeScheduler -}}
- name: kube-scheduler
  image: {{ include "gpu-extender.image" (dict "root" . "image" $one.image "tag" $one.image.tag) }}
  {{- if ne $one.image.pullPolicy "IfNotPresent" }}
  imagePullPolicy: {{ $one.image.pullPolicy }}
  {{- end }}
  command:
    - kube-scheduler
    - --config=/etc/gpu-scheduler/kube-scheduler-config.yaml
    # The same account for asking who may read its metrics.
    - --authentication-kubeconfig=/etc/gpu-scheduler/kubeconfig.yaml
    - --authorization-kubeconfig=/etc/gpu-scheduler/kubeconfig.yaml
    {{- with $one.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  livenessProbe:
    httpGet:
      scheme: HTTPS
      port: 10259
      path: /livez
    periodSeconds: 10
    timeoutSeconds: 15
  {{- with $one.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "gpu-extender.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/gpu-scheduler
      readOnly: true
    - name: scheduler-account
      mountPath: /var/run/secrets/gpu-scheduler
      readOnly: true
{{- end -}}
