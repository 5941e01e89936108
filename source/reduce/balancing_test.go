// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
)

func TestService_Balancing(t *testing.T) {
	impossible := Policy{NoBalancing: map[service.Balancing]string{service.RoundRobin: "is not possible here"}}
	unobserved := Policy{Unobserved: func(namespace string) bool { return namespace == "ns1" }, UnobservedLeast: true}
	for name, c := range map[string]struct {
		policy Policy
		value  string
		sticky bool
		want   service.Balancing
		warned string
	}{
		"random":               {value: "random"},
		"round robin":          {value: "roundRobin", want: service.RoundRobin},
		"spaces around":        {value: " sourceHash ", want: service.SourceHash},
		"by connection":        {value: "connectionHash", want: service.ConnectionHash},
		"unknown":              {value: "fastest", warned: `unknown algorithm "fastest"; must be one of random, roundRobin, sourceHash, connectionHash`},
		"another case":         {value: "RoundRobin", warned: "unknown algorithm"},
		"empty":                {value: "", warned: "unknown algorithm"},
		"with affinity":        {value: "sourceHash", sticky: true, warned: "cannot be combined with spec.sessionAffinity ClientIP"},
		"random with affinity": {value: "random", sticky: true},
		"least connections":    {value: "leastConnections", want: service.LeastConnections},
		"impossible":           {value: "roundRobin", policy: impossible, warned: "roundRobin is not possible here"},
		"unobserved":           {value: "leastConnections", policy: unobserved, warned: "leastConnections needs balancing.observeConnections, which does not include this namespace"},
		"unobserved, unneeded": {value: "leastConnections", policy: Policy{Unobserved: unobserved.Unobserved}, want: service.LeastConnections},
		"possible":             {value: "sourceHash", policy: impossible, want: service.SourceHash},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
			object.Namespace, object.Name = "ns1", "svc1"
			object.Annotations = map[string]string{annotationBalancing: c.value}
			if c.sticky {
				seconds := int32(10)
				object.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				object.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
			}
			spec, warnings := c.policy.Service(object)
			if spec.Balancing != c.want {
				t.Errorf("%v, want %v", spec.Balancing, c.want)
			}
			expectWarning(t, warnings, "metadata.annotations[sluice.dev/balancing]", c.warned)
		})
	}
}

func TestService_Adaptation(t *testing.T) {
	for name, c := range map[string]struct {
		policy     Policy
		key, value string
		want       service.Adaptation
		zones      service.ZonePolicy
		warned     string
	}{
		"slow start":       {key: annotationSlowStart, value: " 90s ", want: service.Adaptation{SlowStart: 90 * time.Second}},
		"no slow start":    {key: annotationSlowStart, value: "0s"},
		"too short":        {key: annotationSlowStart, value: "10ms", warned: "must be a duration from 1s to 1h"},
		"too long":         {key: annotationSlowStart, value: "61m", warned: "must be a duration from 1s to 1h"},
		"negative":         {key: annotationSlowStart, value: "-5s", warned: "must be a duration from 1s to 1h"},
		"no duration":      {key: annotationSlowStart, value: "60", warned: "must be a duration from 1s to 1h"},
		"outliers":         {key: annotationOutlier, value: "passive", want: service.Adaptation{Outliers: true}},
		"outliers off":     {key: annotationOutlier, value: "off"},
		"outliers unknown": {key: annotationOutlier, value: "active", warned: "must be passive or off"},
		"unobserved":       {key: annotationOutlier, value: "passive", policy: Policy{Unobserved: func(namespace string) bool { return namespace == "ns1" }}, warned: "passive needs balancing.observeConnections"},
		"observed":         {key: annotationOutlier, value: "passive", policy: Policy{Unobserved: func(namespace string) bool { return namespace != "ns1" }}, want: service.Adaptation{Outliers: true}},
		"zone":             {key: annotationZoneMin, value: "3", zones: service.ZonePolicy{MinEndpoints: 3}},
		"zone of none":     {key: annotationZoneMin, value: "0", warned: "must be a number from 1 to 1000"},
		"zone of too many": {key: annotationZoneMin, value: "1001", warned: "must be a number from 1 to 1000"},
		"share":            {key: annotationZoneShare, value: "80", zones: service.ZonePolicy{Share: 80}},
		"share of all":     {key: annotationZoneShare, value: "100", warned: "must be a number from 1 to 99"},
		"share in percent": {key: annotationZoneShare, value: "80%", warned: "must be a number from 1 to 99"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
			object.Namespace, object.Name, object.Annotations = "ns1", "svc1", map[string]string{c.key: c.value}
			spec, warnings := c.policy.Service(object)
			if spec.Adaptation != c.want || spec.Zones != c.zones {
				t.Errorf("%+v and %+v, want %+v and %+v", spec.Adaptation, spec.Zones, c.want, c.zones)
			}
			expectWarning(t, warnings, "metadata.annotations["+c.key+"]", c.warned)
		})
	}
}

// expectWarning fails unless there is one warning about a field that has the words, or none for no words.
func expectWarning(t *testing.T, warnings []service.Warning, field, words string) {
	t.Helper()
	if words == "" && len(warnings) == 0 {
		return
	}
	if len(warnings) != 1 || words == "" || warnings[0].Field != field || !strings.Contains(warnings[0].Problem, words) {
		t.Errorf("warnings %v, want %q about %s", warnings, words, field)
	}
}

func TestEndpointSlice_Weight(t *testing.T) {
	const ours, cilium = "sluice.dev/weight", "service.cilium.io/weight"
	for name, c := range map[string]struct {
		annotations map[string]string
		want        uint16
		drains      bool
		field       string
	}{
		"none":              {},
		"ours":              {annotations: map[string]string{ours: "7"}, want: 7},
		"Cilium's":          {annotations: map[string]string{cilium: "65535"}, want: 65535},
		"ours counts":       {annotations: map[string]string{ours: " 3 ", cilium: "5"}, want: 3},
		"zero":              {annotations: map[string]string{ours: "0"}, drains: true},
		"too large":         {annotations: map[string]string{ours: "65536"}, field: ours},
		"negative":          {annotations: map[string]string{cilium: "-1"}, field: cilium},
		"a wrong one hides": {annotations: map[string]string{ours: "many", cilium: "5"}, field: ours},
	} {
		t.Run(name, func(t *testing.T) {
			object := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
			object.Namespace, object.Name = "ns1", "svc1-1"
			object.Labels = map[string]string{discoveryv1.LabelServiceName: "svc1"}
			object.Annotations = c.annotations
			slice, warnings := Policy{}.EndpointSlice(object)
			if slice.Weight != c.want || slice.Drains != c.drains {
				t.Errorf("weight %d, drains %v", slice.Weight, slice.Drains)
			}
			words := ""
			if c.field != "" {
				words = "is not a weight (0 to 65535)"
			}
			expectWarning(t, warnings, "metadata.annotations["+c.field+"]", words)
		})
	}
}
