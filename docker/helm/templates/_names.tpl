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
