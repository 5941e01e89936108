// SPDX-License-Identifier: Apache-2.0

package events

// Reasons of events. Reasons that kube-proxy has as well are spelled as there.
const (
	reasonStarting              = "Starting"
	reasonDefaultMode           = "KubeProxyDefaultMode"
	reasonIPVS                  = "IPVSDeprecation"
	reasonHealthServerFailed    = "FailedToStartProxierHealthcheck"
	reasonMetricsServerFailed   = "FailedToStartMetricServer"
	reasonReloaded              = "Reloaded"
	reasonConfigurationRejected = "ConfigurationRejected"
	reasonConfigurationHeld     = "ConfigurationHeld"
	reasonAddressTaken          = "AddressTaken"
	reasonRulesRejected         = "RulesRejected"
	reasonRulesChanged          = "RulesChanged"
	reasonHealthPortFailed      = "FailedToStartServiceHealthcheck"
	reasonQuarantined           = "ServiceQuarantined"
	reasonAccepted              = "ServiceAccepted"
	reasonAnnotationIgnored     = "AnnotationIgnored"
	reasonShadowed              = "ServiceShadowed"
	reasonParked                = "ActorParked"
	reasonTooLarge              = "ServiceTooLarge"
	reasonSuspect               = "EndpointSuspect"
)

// Reason is a reason of events, for the documentation.
type Reason struct {
	Name string
	// About is the kind of the objects that the events are about: Node, Service, or both.
	About   string
	Meaning string
}

// Reasons lists the reasons of all events that Sluice sends.
var Reasons = []Reason{
	{reasonStarting, "Node", "the proxy starts"},
	{reasonDefaultMode, "Node", "no mode is set; the note names the selected mode"},
	{reasonIPVS, "Node", "IPVS mode is used, which Kubernetes v1.43 removes from kube-proxy"},
	{reasonHealthServerFailed, "Node", "the health server cannot listen, and `bindAddressHardFail` is set"},
	{reasonMetricsServerFailed, "Node", "the metrics server cannot listen, and `bindAddressHardFail` is set"},
	{reasonReloaded, "Node", "a changed configuration file was applied; the note lists the changed fields"},
	{reasonConfigurationRejected, "Node", "a changed file is invalid or cannot be applied; the previous configuration remains"},
	{reasonConfigurationHeld, "Node", "a changed configuration file is not applied, because of `reload: off`; a restart of the proxy applies it"},
	{reasonAddressTaken, "Node", "another process is bound to the health or metrics address; the note names it, and Sluice retries"},
	{reasonRulesRejected, "Node", "the kernel rejected node-wide rules (rules that belong to no Service)"},
	{reasonRulesChanged, "Node", "another process changed rules; Sluice restores them. The note names the process if the kernel reports it"},
	{reasonHealthPortFailed, "Service", "the Service's health-check node port cannot be opened"},
	{reasonQuarantined, "Service", "the Service's rules cannot be written in the named domain (backend and IP family); its previous rules remain"},
	{reasonAccepted, "Service", "the domain accepted the Service again"},
	{reasonAnnotationIgnored, "Service", "the value of an annotation cannot be used"},
	{reasonShadowed, "Service", "another Service owns some of its addresses"},
	{reasonParked, "Service, Node", "processing failed repeatedly and is suspended; the rules remain"},
	{reasonTooLarge, "Service", "the Service needs more objects than `actors.objectsMax`; some of its frontends are left out"},
	{reasonSuspect, "Service", "a node avoids an endpoint that does not answer, by `sluice.dev/outlier`; the note names it"},
}
