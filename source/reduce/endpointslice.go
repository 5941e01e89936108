package reduce

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

// EndpointSlice reduces an EndpointSlice. The result is nil when it belongs to no
// Service or holds no IP addresses. Who manages the slice does not matter.
func EndpointSlice(object *discoveryv1.EndpointSlice) (*service.Slice, []service.Warning) {
	n := &notes{kind: "EndpointSlice", namespace: object.Namespace, name: object.Name}
	owner := object.Labels[discoveryv1.LabelServiceName]
	family, ok := familyOf(object.AddressType)
	switch {
	case object.Namespace == "" || object.Name == "":
		n.add(field("metadata"), "namespace and name are required; the slice is ignored")
		return nil, n.warnings
	case owner == "":
		n.add(field("metadata.labels["+discoveryv1.LabelServiceName+"]"),
			"missing or empty, so that the slice has no Service; the slice is ignored")
		return nil, n.warnings
	case !ok:
		n.add(field("addressType"), "%q addresses cannot be served; the slice is ignored", object.AddressType)
		return nil, n.warnings
	}
	return &service.Slice{
		Service:   service.Key{Namespace: intern(object.Namespace), Name: strings.Clone(owner)},
		Name:      strings.Clone(object.Name),
		Family:    family,
		Ports:     slicePorts(n, object.Ports),
		Endpoints: sliceEndpoints(n, family, object.Endpoints),
		Trigger:   trigger(n, object.Annotations),
	}, n.warnings
}

// trigger reads when the change that the slice carries was caused.
func trigger(n *notes, annotations map[string]string) time.Time {
	text, ok := annotations[corev1.EndpointsLastChangeTriggerTime]
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		n.add(field("metadata.annotations["+corev1.EndpointsLastChangeTriggerTime+"]"),
			"%q is not a time; the latency of this change is not measured", text)
		return time.Time{}
	}
	return t
}
