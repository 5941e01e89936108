// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/sluice-proxy/sluice/service"
)

// ServiceName names a Service.
type ServiceName = service.Key

// ServiceKinds are the words that may precede the name of a Service, as in svc/web, and PodKinds are those for pods.
var (
	ServiceKinds = []string{"svc", "service", "services", "endpoints", "ep"}
	PodKinds     = []string{"pod", "pods", "po"}
)

// ParseName reads NAME or NAMESPACE/NAME, with or without KIND/ before it. Namespace is the value of --namespace. The
// namespace of the result is empty if neither contains one.
func ParseName(namespace, text string, kinds []string) (n ServiceName, err error) {
	parts := strings.Split(text, "/")
	if len(parts) > 1 && slices.Contains(kinds, parts[0]) {
		parts = parts[1:]
	}
	switch {
	case slices.Contains(parts, "") || len(parts) > 2:
		return n, fmt.Errorf("%q: must be NAME, NAMESPACE/NAME or %s/NAME", text, kinds[0])
	case len(parts) == 1:
		return ServiceName{Namespace: namespace, Name: parts[0]}, nil
	case namespace != "" && namespace != parts[0]:
		return n, fmt.Errorf("%q: not in namespace %s of --namespace; leave out one of the two", text, namespace)
	}
	return ServiceName{Namespace: parts[0], Name: parts[1]}, nil
}

// Find returns the Services with a name in all namespaces. N must contain the names of all namespaces.
func (n *Names) Find(name string) (all []ServiceName) {
	for _, text := range n.Services {
		if namespace, found := strings.CutSuffix(text, "/"+name); found {
			all = append(all, ServiceName{Namespace: namespace, Name: name})
		}
	}
	return all
}

// selectable are the fields of field selectors.
var selectable = []string{"metadata.name", "metadata.namespace", "state"}

// Select keeps the Services that a field selector selects, and that are in a state unless it is empty. The error begins
// with the name of the flag.
func (l *ServiceList) Select(selector, state string) error {
	if state != "" && colors[state] == "" {
		return fmt.Errorf("state %q: must be one of %s", state, strings.Join(slices.Sorted(maps.Keys(colors)), ", "))
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return fmt.Errorf("field-selector %q: %w", selector, err)
	}
	for _, r := range parsed.Requirements() {
		if !slices.Contains(selectable, r.Field) {
			return fmt.Errorf("field-selector %q: the fields must be %s", selector, strings.Join(selectable, ", "))
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(s Service) bool {
		set := fields.Set{"metadata.namespace": s.Namespace, "metadata.name": s.Name, "state": string(s.State.Class())}
		return !parsed.Matches(set) || state != "" && string(s.State.Class()) != state
	})
	return nil
}

// Keep keeps the named Services, and returns those that are missing.
func (l *ServiceList) Keep(names []ServiceName) (missing []ServiceName) {
	missing = slices.Clone(names)
	l.Items = slices.DeleteFunc(l.Items, func(s Service) bool {
		is := func(n ServiceName) bool { return n.Namespace == s.Namespace && n.Name == s.Name }
		missing = slices.DeleteFunc(missing, is)
		return !slices.ContainsFunc(names, is)
	})
	return missing
}
