{{- define "vgpud.name" -}}
{{- if contains "vgpud" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-vgpud" (.Release.Name | trunc 44 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "vgpud.account" -}}
{{- default (printf "%s-driver" (include "vgpud.name" .)) .Values.serviceAccount.name }}
{{- end }}

{{- define "vgpud.image" -}}
{{- $name := required "image.repository is not set: build the image (docker/Dockerfile, target vgpud-k8s), push it, and name it by --set image.repository=REGISTRY/vgpud-k8s" .Values.image.repository -}}
{{ $name }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "vgpud.labels" -}}
app.kubernetes.io/name: vgpud
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "vgpud.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* whether the process in this folder's file was seen to work within 90 s; a shell alone, which costs a busy node little */}}
{{- define "vgpud.beats" -}}
exec:
  command:
    - sh
    - -c
    - read -r now _ </proc/uptime && read -r beat <{{ . }}/beat && [ $((${now%.*} - beat)) -lt 90 ]
periodSeconds: 30
timeoutSeconds: 30
failureThreshold: 6
{{- end }}

{{- /* "true" where fixed sizes are published: before 1.35 counters cannot be in a ResourceSlice of their own */}}
{{- define "vgpud.fixedSizes" -}}
{{- if and .Values.driver.fixedSizes (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}
