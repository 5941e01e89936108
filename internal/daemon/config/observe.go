package config

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Values of BalancingConfiguration.ObserveConnections, besides names of namespaces.
const (
	ObserveOff = "off"
	ObserveAll = "all"
)

// Observed says in which namespaces Services may ask for the kernel's announcements of connections.
type Observed string

// UnmarshalJSON takes text, and true and false, which earlier versions had.
func (o *Observed) UnmarshalJSON(text []byte) error {
	if string(text) == "true" || string(text) == "false" {
		*o = Observed(text)
		return nil
	}
	return json.Unmarshal(text, (*string)(o))
}

// In reports whether Services of a namespace may ask.
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
