package reduce

import (
	"fmt"

	"github.com/sluice-proxy/sluice/service"
)

// notes collects what is wrong with one object. Texts are put together only
// when there is something to say.
type notes struct {
	kind, namespace, name string
	warnings              []service.Warning
}

// add records that a field cannot be used. The problem says what happens
// instead.
func (n *notes) add(field path, problem string, args ...any) {
	n.warnings = append(n.warnings, service.Warning{
		Object:  n.object(),
		Field:   field.String(),
		Problem: fmt.Sprintf(problem, args...),
	})
}

// object names the object for people: "Service ns1/svc1", "Node n1".
func (n *notes) object() string {
	if n.namespace == "" {
		return n.kind + " " + n.name
	}
	return n.kind + " " + n.namespace + "/" + n.name
}
