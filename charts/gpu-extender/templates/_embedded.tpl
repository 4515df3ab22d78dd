{{/* The pod of a laptop: it asks no API server. */}}
{{- define "gpu-extender.embeddedPod" -}}
automountServiceAccountToken: false
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "gpu-extender.podSecurity" false | nindent 2 }}
containers:
  - name: gpu-extender
    image: {{ include "gpu-extender.extenderImage" . }}
    args:
      - serve
      # For the probes; a port-forward arrives on loopback.
      - --bind-address=0.0.0.0
      - --port=8888
      - --log-format=json
      {{- with .Values.scheduler.extender.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: verbs
        containerPort: 8888
    readinessProbe:
      httpGet:
        port: verbs
        path: /readyz
      periodSeconds: 2
    livenessProbe:
      httpGet:
        port: verbs
        path: /livez
      periodSeconds: 10
      timeoutSeconds: 5
    # The example has 14 nodes.
    resources:
      requests:
        cpu: 100m
        memory: 128Mi
      limits:
        memory: 256Mi
    securityContext:
      {{- include "gpu-extender.containerSecurity" . | nindent 6 }}
{{- end -}}
