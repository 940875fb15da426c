{{- define "pocketmq.name" -}}
{{- printf "%s-pocketmq" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "pocketmq.selector" -}}
app.kubernetes.io/name: pocketmq
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "pocketmq.labels" -}}
{{ include "pocketmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* What a pod runs: all in one, or a broker of a set. */}}
{{- define "pocketmq.role" -}}
{{- if gt (int .Values.replicas) 1 }}"broker"{{ else }}"up"{{ end -}}
{{- end -}}

{{- /* Environment of a broker of a set. Its SIGTERM has another broker elected first: that is the preStop. */}}
{{- define "pocketmq.member" -}}
- name: POCKETMQ_ENABLE_CONTROLLER_MODE
  value: "true"
- name: POCKETMQ_CONTROLLER_ADDR
  value: {{ printf "%s-names:9878" (include "pocketmq.name" .) | quote }}
- name: NAMESRV_ADDR
  value: {{ printf "%s-names:9876" (include "pocketmq.name" .) | quote }}
- name: POCKETMQ_MIN_IN_SYNC_REPLICAS
  value: {{ ternary "2" "1" (gt (int .Values.replicas) 2) | quote }}
- name: POCKETMQ_GRPC_SERVER_PORT
  value: "8081"
{{- if .Values.console.enabled }}
- name: POCKETMQ_CONSOLE_PORT
  value: "8082"
{{- end }}
{{- end -}}

{{- /* Brokers of a set are on different nodes. */}}
{{- define "pocketmq.apart" -}}
{{- if gt (int .Values.replicas) 1 -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "pocketmq.selector" . | nindent 10 }}
{{- end -}}
{{- end -}}
