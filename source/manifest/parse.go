// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/document"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// parse returns either all objects of a file or its problems. It is pure; file is for
// messages only.
func parse(file string, data []byte, policy reduce.Policy) ([]object, []Problem) {
	var objects []object
	var problems []Problem
	lines := make(map[objectID]int)
	err := document.Each(data, func(root *document.Document) {
		members, err := split(root)
		if err != nil {
			problems = append(problems, problemOf(file, "", *err))
			return
		}
		for _, member := range members {
			parsed, found := parseObject(file, member, policy)
			if first, twice := lines[parsed.id]; twice && len(found) == 0 {
				found = []Problem{{
					File: file, Line: parsed.line, Object: parsed.id.String(), Field: "metadata.name",
					Message: fmt.Sprintf("is already defined on line %d", first),
				}}
			}
			lines[parsed.id] = parsed.line
			objects = append(objects, parsed)
			problems = append(problems, found...)
		}
	})
	switch {
	case err != nil: // a file that is not YAML is rejected as a whole
		return nil, []Problem{problemOf(file, "", *err)}
	case len(problems) > 0:
		return nil, problems
	}
	return objects, nil
}

// split opens a List into its items; anything else is one object.
func split(root *document.Document) ([]*document.Document, *document.Mistake) {
	if root.Text("kind") != "List" || root.Text("apiVersion") != "v1" {
		return []*document.Document{root}, nil
	}
	members, isList := root.Items("items")
	for key, line := range root.Fields() {
		switch {
		case !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, key):
			return nil, &document.Mistake{Line: line, Message: fmt.Sprintf("List: %s: unknown field", key)}
		case key == "items" && !isList:
			return nil, &document.Mistake{Line: line, Message: "List: items: must be a list"}
		}
	}
	return members, nil
}

// parseObject decodes, completes, checks and reduces one object.
func parseObject(file string, d *document.Document, policy reduce.Policy) (object, []Problem) {
	if !d.IsObject() {
		return object{}, []Problem{{File: file, Line: d.Start(), Message: "must be an object with apiVersion and kind"}}
	}
	kind := typeMeta{d.Text("apiVersion"), d.Text("kind")}
	read, ok := readers[kind]
	if !ok {
		return object{}, []Problem{unknownKind(file, d, kind)}
	}
	parsed, found := read(d, policy)
	parsed.line = d.Start()
	var problems []Problem
	for _, m := range found {
		problems = append(problems, problemOf(file, nameOf(d, kind.kind), m))
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return parsed, problems
}

func unknownKind(file string, d *document.Document, kind typeMeta) Problem {
	problem := Problem{File: file, Line: d.Line("kind"), Field: "kind"}
	switch {
	case kind.apiVersion == "" || kind.kind == "":
		problem.Message = "apiVersion and kind are required"
	default:
		problem.Message = fmt.Sprintf("%s %s is not understood; expected v1 Service, discovery.k8s.io/v1 EndpointSlice, "+
			"v1 Node, networking.k8s.io/v1 ServiceCIDR or v1 List", kind.apiVersion, kind.kind)
	}
	return problem
}

// nameOf returns the name of an object as far as it can be read.
func nameOf(d *document.Document, kind string) string {
	id := objectID{kind: kind, namespace: d.Text("metadata", "namespace"), name: d.Text("metadata", "name")}
	if id.name == "" {
		return kind
	}
	if id.namespace == "" && namespaced(kind) {
		id.namespace = defaultNamespace
	}
	return id.String()
}

func problemOf(file, object string, m document.Mistake) Problem {
	return Problem{File: file, Line: m.Line, Object: object, Field: m.Path, Message: m.Message}
}

// typeMeta is the apiVersion and kind of an object.
type typeMeta struct {
	apiVersion, kind string
}

// readers hold the reader of each kind.
var readers = map[typeMeta]func(*document.Document, reduce.Policy) (object, []document.Mistake){
	{"v1", kindService}: reader(kindService, defaultService, checkService,
		func(o *object, p reduce.Policy, read *corev1.Service) {
			o.spec, o.warnings = p.Service(read)
			o.unserved = reduce.Unserved(read)
		}),
	{"discovery.k8s.io/v1", kindEndpointSlice}: reader(kindEndpointSlice, defaultEndpointSlice, checkEndpointSlice,
		func(o *object, p reduce.Policy, read *discoveryv1.EndpointSlice) {
			o.slice, o.warnings = p.EndpointSlice(read)
		}),
	{"v1", kindNode}: reader(kindNode, defaultNode, checkNode,
		func(o *object, _ reduce.Policy, read *corev1.Node) { o.node, o.warnings = reduce.Node(read) }),
	{"networking.k8s.io/v1", kindServiceCIDR}: reader(kindServiceCIDR, func(*networkingv1.ServiceCIDR) {}, func(*networkingv1.ServiceCIDR) findings { return nil },
		func(o *object, _ reduce.Policy, read *networkingv1.ServiceCIDR) {
			o.ranges, o.warnings = reduce.ServiceCIDR(read)
		}),
}

// reader returns a function that decodes an object, completes it with the API's
// defaults, checks it and reduces it.
func reader[T any, P interface {
	*T
	metav1.Object
}](kind string, complete func(*T), check func(*T) findings, into func(*object, reduce.Policy, *T)) func(*document.Document, reduce.Policy) (object, []document.Mistake) {
	return func(d *document.Document, policy reduce.Policy) (object, []document.Mistake) {
		read := new(T)
		mistakes, whole := d.Decode(read, document.YAML12)
		if !whole {
			return object{}, mistakes
		}
		complete(read)
		meta := P(read)
		o := object{id: objectID{kind, "", meta.GetName()}}
		if namespaced(kind) {
			o.id.namespace = meta.GetNamespace()
		}
		into(&o, policy, read)
		for _, f := range rejected(check(read), o.warnings) {
			// What could not be decoded has the zero value, which says nothing about the file.
			if !slices.ContainsFunc(mistakes, func(m document.Mistake) bool { return overlap(m.Path, f.field) }) {
				mistakes = append(mistakes, document.Mistake{Line: d.Line(f.field), Path: f.field, Message: f.message})
			}
		}
		if len(mistakes) > 0 {
			return object{}, mistakes
		}
		return o, nil
	}
}

// overlap reports whether two field paths are equal, or one contains the other. It ignores case.
func overlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, within := strings.CutPrefix(b, a)
	return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// rejected adds to findings the warnings that reject an object in a manifest, apart from those about fields that have a
// finding already. Warnings about annotations and about slices of host names reject nothing, because an API server
// accepts both.
func rejected(found findings, warnings []service.Warning) findings {
	subject := func(field string) string {
		if strings.HasPrefix(field, "spec.clusterIP") || strings.HasPrefix(field, "spec.ipFamilies") {
			return "spec.clusterIP" // three fields say one thing
		}
		return field
	}
	for _, w := range warnings {
		known := slices.ContainsFunc(found, func(f finding) bool { return subject(f.field) == subject(w.Field) })
		if !known && !strings.HasPrefix(w.Field, "metadata.annotations[") && w.Field != "addressType" {
			found.add(w.Field, "%s", w.Problem)
		}
	}
	return found
}
