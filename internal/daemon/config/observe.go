// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Values of BalancingConfiguration.ObserveConnections, in addition to names of namespaces.
const (
	ObserveOff = "off"
	ObserveAll = "all"
)

// Observed selects the namespaces whose Services may request the kernel's connection events.
type Observed string

// UnmarshalJSON accepts text, and also true and false, the values of earlier versions.
func (o *Observed) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		*o = Observed(text)
		return nil
	}
	return json.Unmarshal(text, (*string)(o))
}

// In reports whether Services of a namespace may request them.
func (o Observed) In(namespace string) bool {
	switch o {
	case ObserveOff, "":
		return false
	case ObserveAll:
		return true
	}
	return slices.Contains(strings.Split(string(o), ","), namespace)
}

// checkObserved replaces former values, and returns what to warn about.
func (s *SluiceConfiguration) checkObserved(found *findings) (odd findings) {
	const field = sluicePrefix + "balancing.observeConnections"
	o := &s.Balancing.ObserveConnections
	if former, ok := map[Observed]Observed{"true": ObserveAll, "false": ObserveOff}[*o]; ok {
		odd = findings{{field, string(*o) + " is a former value; write " + string(former) + ", or the names of namespaces"}}
		*o = former
	}
	for name := range strings.SplitSeq(string(*o), ",") {
		if len(validation.IsDNS1123Label(name)) > 0 {
			found.wrong(field, string(*o), "off, all, or names of namespaces, separated by commas without spaces")
			break
		}
	}
	return odd
}
