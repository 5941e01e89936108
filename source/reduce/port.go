package reduce

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

const portMax = 1<<16 - 1

// portNumber reads a port number that must not be 0.
func portNumber(number int32) (uint16, bool) {
	if number < 1 || number > portMax {
		return 0, false
	}
	return uint16(number), true
}

// protocol reads a protocol. An empty one means TCP, as the API has it; objects
// from manifests have not been through the API server's defaulting.
func protocol(name corev1.Protocol) (service.Protocol, bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return service.TCP, true
	case corev1.ProtocolUDP:
		return service.UDP, true
	case corev1.ProtocolSCTP:
		return service.SCTP, true
	default:
		return 0, false
	}
}

// familyOf reads an IP family by its API name.
func familyOf[T ~string](name T) (service.Family, bool) {
	for _, family := range service.Families {
		if string(name) == family.String() {
			return family, true
		}
	}
	return 0, false
}
