{{/* Where everything goes. */}}
{{- define "deathless.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels of every object; call with (dict "context" $ "component" "operator"). */}}
{{- define "deathless.labels" -}}
{{ include "deathless.selector" . }}
app.kubernetes.io/part-of: deathless
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name .context.Chart.Version | replace "+" "_" }}
{{- with .context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels that select a component's pods; they never change, not even by a release's name. */}}
{{- define "deathless.selector" -}}
app.kubernetes.io/name: deathless-{{ .component }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* metadata of an object; call with (dict "context" $ "component" C "name" N "keep" true "annotations" dict). */}}
{{- define "deathless.metadata" -}}
name: {{ .name }}
namespace: {{ include "deathless.namespace" .context }}
{{ include "deathless.metadata.rest" . }}
{{- end -}}

{{/* The same for objects without namespace. */}}
{{- define "deathless.metadata.cluster" -}}
name: {{ .name }}
{{ include "deathless.metadata.rest" . }}
{{- end -}}

{{- define "deathless.metadata.rest" -}}
labels:
  {{- include "deathless.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) (.annotations | default dict) .context.Values.commonAnnotations }}
{{- if .keep }}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "deathless.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{- define "deathless.lockStore.image" -}}
{{- with .Values.lockStore.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "deathless.imagePullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Name of cluster-wide objects: two installations in two namespaces keep apart. */}}
{{- define "deathless.clusterName" -}}
{{ .name }}:{{ include "deathless.namespace" .context }}
{{- end -}}

{{/* Namespaces whose services are looked after, separated by commas; empty: all. */}}
{{- define "deathless.watchNamespaces" -}}
{{- if .Values.operator.watchNamespaces -}}
{{ join "," .Values.operator.watchNamespaces }}
{{- else if eq .Values.scope "Namespaced" -}}
{{ include "deathless.namespace" . }}
{{- end -}}
{{- end -}}

{{- define "deathless.serviceAccount" -}}
{{ .Values.serviceAccount.name }}
{{- end -}}

{{/* Names of the lock store's members, separated by commas. */}}
{{- define "deathless.lockStore.members" -}}
{{- $names := list -}}
{{- range $i := until (int .Values.lockStore.members) -}}
{{- $names = append $names (printf "deathless-lock-store-%d" $i) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* Domain of the members' own names. */}}
{{- define "deathless.lockStore.domain" -}}
deathless-lock-store-members.{{ include "deathless.namespace" . }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* Names that the servers' certificate carries. */}}
{{- define "deathless.lockStore.dnsNames" -}}
{{- $namespace := include "deathless.namespace" . -}}
{{- $names := list -}}
{{- range $name := (splitList "," (include "deathless.lockStore.members" .)) -}}
{{- $short := printf "%s.deathless-lock-store-members" $name -}}
{{- $names = concat $names (list $short (printf "%s.%s" $short $namespace) (printf "%s.%s.svc" $short $namespace)) -}}
{{- $names = append $names (printf "%s.%s" $name (include "deathless.lockStore.domain" $)) -}}
{{- end -}}
{{- $service := "deathless-lock-store" -}}
{{- $names = concat $names (list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace)) -}}
{{- $names = append $names (printf "%s.%s.svc.%s" $service $namespace .Values.clusterDomain) -}}
{{- join "," $names -}}
{{- end -}}

{{/* Where clients find the lock store, separated by commas. */}}
{{- define "deathless.lockStore.endpoints" -}}
{{- if .Values.lockStore.enabled -}}
{{- $urls := list -}}
{{- range $name := (splitList "," (include "deathless.lockStore.members" .)) -}}
{{- $urls = append $urls (printf "https://%s.%s:2379" $name (include "deathless.lockStore.domain" $)) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- join "," .Values.lockStore.external.endpoints -}}
{{- end -}}
{{- end -}}

{{- define "deathless.lockStore.tlsSecret" -}}
{{- if .Values.lockStore.enabled -}}
deathless-lock-store-client-tls
{{- else -}}
{{ .Values.lockStore.external.tlsSecret }}
{{- end -}}
{{- end -}}

{{/* "on" where services have users at the chart's lock store, "withdraw" where they go back, else empty. */}}
{{- define "deathless.lockStore.users" -}}
{{- with .Values.lockStore -}}
{{- if .enabled -}}
{{- if .users.withdraw -}}
withdraw
{{- else if .users.enabled -}}
on
{{- else -}}
{{- with lookup "v1" "Secret" (include "deathless.namespace" $) "deathless-lock-users" -}}
{{- if not (dig "annotations" "deathless.dev/withdrawn" "" .metadata) -}}
withdraw
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "deathless.lockStore.userSecret" -}}
{{- if not .Values.lockStore.enabled -}}
{{ .Values.lockStore.external.userSecret }}
{{- end -}}
{{- end -}}

{{/* "true" where objects of the Prometheus operator are made; call with (dict "context" $ "mode" M "kind" K). */}}
{{- define "deathless.monitoring" -}}
{{- if or (eq .mode "Always") (and (eq .mode "Auto") (.context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind))) -}}
true
{{- end -}}
{{- end -}}

{{/* What can only go wrong later is refused here. */}}
{{- define "deathless.validate" -}}
{{- $election := .Values.operator.leaderElection -}}
{{- if and (not $election.enabled) (gt (int .Values.operator.replicas) 1) -}}
{{- fail "operator.leaderElection.enabled=false needs operator.replicas=1: two leaders would work against each other" -}}
{{- end -}}
{{- if not (and (gt (int $election.leaseSeconds) (int $election.renewSeconds)) (gt (int $election.renewSeconds) (int $election.retrySeconds))) -}}
{{- fail "operator.leaderElection: leaseSeconds > renewSeconds > retrySeconds must hold" -}}
{{- end -}}
{{- if and (eq .Values.scope "Namespaced") .Values.drills.nodeDrain.enabled -}}
{{- fail "drills.nodeDrain.enabled needs scope Cluster: nodes belong to no namespace" -}}
{{- end -}}
{{- with .Values.lockStore -}}
{{- if and .enabled (lt (int .electionMilliseconds) (mul 5 (int .heartbeatMilliseconds))) -}}
{{- fail "lockStore.electionMilliseconds must be at least five times lockStore.heartbeatMilliseconds" -}}
{{- end -}}
{{- if and .enabled .external.endpoints -}}
{{- fail "lockStore.external.endpoints is given while lockStore.enabled is true: choose one of them" -}}
{{- end -}}
{{- if and (not .enabled) (or .users.enabled .users.withdraw) -}}
{{- fail "lockStore.users is about the chart's own lock store: with an etcd of yours make its users yourself" -}}
{{- end -}}
{{- if and .enabled (eq .storage.type "EmptyDir") (gt (int .members) 1) -}}
{{- fail "lockStore.storage.type=EmptyDir needs lockStore.members=1: a member that lost its data cannot join again" -}}
{{- end -}}
{{- end -}}
{{- if .Values.lockStore.enabled -}}
{{- with lookup "apps/v1" "StatefulSet" (include "deathless.namespace" .) "deathless-lock-store" -}}
{{- if ne (int .spec.replicas) (int $.Values.lockStore.members) -}}
{{- fail (printf "lockStore.members is %d and the running lock store has %d: the number is fixed at the first installation" (int $.Values.lockStore.members) (int .spec.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
