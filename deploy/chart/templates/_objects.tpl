{{/* The templates read the manifests of deploy/base and deploy/monitoring from files/ (`make deploy` copies them), and
change what the values ask for. So the chart cannot differ from the manifests. */}}

{{/* sluice.named gives an object the name of the release in place of "sluice", its namespace and its labels.
Arguments: root, object, labels. It changes the object and prints nothing. */}}
{{- define "sluice.named" -}}
{{- $meta := .object.metadata -}}
{{- $_ := set $meta "name" (replace "sluice" .root.Release.Name $meta.name) -}}
{{- if not (hasPrefix "ClusterRole" .object.kind) -}}{{- $_ := set $meta "namespace" .root.Release.Namespace -}}{{- end -}}
{{- $_ := set $meta "labels" (merge (dict) .labels (default dict $meta.labels)) -}}
{{- end -}}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else if .tag }}:{{ .tag }}{{ else }}:{{ $.Chart.AppVersion }}
{{- /* A release for a registry has the digest of its image. */}}
{{- with index (default dict $.Chart.Annotations) "sluice.dev/image-digest" }}@{{ . }}{{ end }}{{ end }}
{{- end -}}
{{- end -}}

{{/* sluice.config is the data of the ConfigMap. Its kubeconfig is that of deploy/base. */}}
{{- define "sluice.config" -}}
{{- $documents := splitList "---\n" (.Files.Get "files/config.yaml") }}
{{- $config := mergeOverwrite (index $documents 0 | fromYaml) .Values.config | toYaml }}
{{- $config = printf "%s\n---\n%s" $config (mergeOverwrite (index $documents 1 | fromYaml) .Values.sluiceConfig | toYaml) }}
config.conf: {{ toJson $config }}
kubeconfig.conf: |
  apiVersion: v1
  kind: Config
  clusters:
    - name: default
      cluster:
        server: {{ .Values.apiServer }}
        certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  users:
    - name: default
      user:
        tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  contexts:
    - name: default
      context: {cluster: default, user: default}
  current-context: default
{{- end -}}
