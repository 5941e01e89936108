// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
)

// The annotations by which a Service chooses how its connections are balanced; see docs/balancing.md.
const (
	annotationBalancing = "sluice.dev/balancing"
	annotationSlowStart = "sluice.dev/slow-start"
	annotationOutlier   = "sluice.dev/outlier"
	annotationZoneMin   = "sluice.dev/zone-min-endpoints"
	annotationZoneShare = "sluice.dev/zone-share"
)

func (p *Policy) balancing(n *notes, object *corev1.Service) service.Balancing {
	const isRandom = "endpoints are chosen at random"
	name, asked := object.Annotations[annotationBalancing]
	if !asked {
		return service.Random
	}
	by, known := service.ParseBalancing(strings.TrimSpace(name))
	switch {
	case !known:
		n.add(annotation(annotationBalancing), isRandom, "unknown algorithm %q; must be one of %s", name, strings.Join(service.Balancings(), ", "))
	case by == service.Random:
	case object.Spec.SessionAffinity == corev1.ServiceAffinityClientIP:
		n.add(annotation(annotationBalancing), "clients keep the endpoint that was chosen at random", "%s cannot be combined with spec.sessionAffinity ClientIP", by)
		return service.Random
	case by == service.LeastConnections && p.UnobservedLeast && p.unobserved(object.Namespace):
		n.add(annotation(annotationBalancing), isRandom, "%s %s", by, unobserved)
		return service.Random
	case p.NoBalancing[by] != "":
		n.add(annotation(annotationBalancing), isRandom, "%s %s", by, p.NoBalancing[by])
		return service.Random
	}
	return by
}

// slowStartMin and slowStartMax bound the time of a slow start.
const slowStartMin, slowStartMax = time.Second, time.Hour

// unobserved is why a value has no effect in a namespace whose connections the node does not observe.
const unobserved = "needs balancing.observeConnections, which does not include this namespace on this node"

func (p *Policy) unobserved(namespace string) bool {
	return p.Unobserved != nil && p.Unobserved(namespace)
}

func (p *Policy) adaptation(n *notes, namespace string, annotations map[string]string) (a service.Adaptation) {
	if text, asked := annotations[annotationSlowStart]; asked {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		switch {
		case err == nil && d == 0:
		case err != nil || d < slowStartMin || d > slowStartMax:
			n.add(annotation(annotationSlowStart), "new endpoints get their full share", "%q: must be a duration from 1s to 1h", text)
		default:
			a.SlowStart = d
		}
	}
	switch text := annotations[annotationOutlier]; strings.TrimSpace(text) {
	case "passive":
		if a.Outliers = !p.unobserved(namespace); !a.Outliers {
			n.add(annotation(annotationOutlier), "failing endpoints are not avoided", "passive "+unobserved)
		}
	case "", "off":
	default:
		n.add(annotation(annotationOutlier), "failing endpoints are not avoided", "%q: must be passive or off", text)
	}
	return a
}

// zonesMax bounds zone-min-endpoints.
const zonesMax = 1000

func zonePolicy(n *notes, annotations map[string]string) (z service.ZonePolicy) {
	number := func(name, effect string, most uint64) uint64 {
		text, asked := annotations[name]
		if !asked {
			return 0
		}
		got, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil || got < 1 || got > most {
			n.add(annotation(name), effect, "%q: must be a number from 1 to %d", text, most)
			return 0
		}
		return got
	}
	z.MinEndpoints = uint16(number(annotationZoneMin, "a zone with one endpoint serves its clients alone", zonesMax))
	z.Share = uint8(number(annotationZoneShare, "all connections stay in the zone", 99))
	return z
}
