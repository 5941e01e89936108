package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/sluice-proxy/sluice/internal/yamllines"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// parse returns either all objects of a file or its problems. It is pure; file is for
// messages only.
func parse(file string, data []byte, policy reduce.Policy) ([]object, []Problem) {
	var objects []object
	var problems []Problem
	lines := make(map[objectID]int)
	err := documents(data, func(root *yaml.Node) {
		members, err := split(root)
		if err != nil {
			problems = append(problems, problemOf(file, err))
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
	case err != nil: // what is not YAML is not half understood
		return nil, []Problem{problemOf(file, err)}
	case len(problems) > 0:
		return nil, problems
	}
	return objects, nil
}

// split opens a List into its items; anything else is one object.
func split(root *yaml.Node) ([]*yaml.Node, error) {
	if root.Kind != yaml.MappingNode {
		return nil, &yamllines.Error{Line: root.Line, Message: "must be an object with apiVersion and kind"}
	}
	if text(root, "kind") != "List" || text(root, "apiVersion") != "v1" {
		return []*yaml.Node{root}, nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "apiVersion", "kind", "metadata", "items":
		default:
			return nil, &yamllines.Error{Line: key.Line, Message: fmt.Sprintf("List: %s: unknown field", key.Value)}
		}
	}
	items := child(root, "items")
	if items == nil {
		return nil, nil
	}
	if items.Kind != yaml.SequenceNode {
		return nil, &yamllines.Error{Line: items.Line, Message: "List: items: must be a list"}
	}
	return items.Content, nil
}

// parseObject decodes, completes, checks and reduces one object.
func parseObject(file string, node *yaml.Node, policy reduce.Policy) (object, []Problem) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return object{}, []Problem{{File: file, Line: node.Line, Message: "must be an object with apiVersion and kind"}}
	}
	kind := typeMeta{text(node, "apiVersion"), text(node, "kind")}
	read, ok := readers[kind]
	if !ok {
		return object{}, []Problem{unknownKind(file, node, kind)}
	}
	encoded, err := encode(node)
	if err != nil {
		problem := problemOf(file, err)
		problem.Object = nameOf(node, kind.kind)
		return object{}, []Problem{problem}
	}
	parsed, found := read(encoded, policy)
	parsed.line = node.Line
	var problems []Problem
	for _, finding := range found {
		problems = append(problems, Problem{
			File: file, Line: encoded.lines.Of(finding.field), Object: nameOf(node, kind.kind),
			Field: finding.field, Message: finding.message,
		})
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return parsed, problems
}

func unknownKind(file string, node *yaml.Node, kind typeMeta) Problem {
	problem := Problem{File: file, Line: node.Line, Field: "kind"}
	switch {
	case kind.apiVersion == "" || kind.kind == "":
		problem.Message = "apiVersion and kind are required"
	default:
		problem.Message = fmt.Sprintf("%s %s is not understood; expected v1 Service, discovery.k8s.io/v1 EndpointSlice, "+
			"v1 Node, networking.k8s.io/v1 ServiceCIDR or v1 List", kind.apiVersion, kind.kind)
	}
	if at := child(node, "kind"); at != nil {
		problem.Line = at.Line
	}
	return problem
}

// nameOf returns the name of an object as far as it can be read.
func nameOf(node *yaml.Node, kind string) string {
	metadata := child(node, "metadata")
	if metadata == nil || text(metadata, "name") == "" {
		return kind
	}
	id := objectID{kind: kind, namespace: text(metadata, "namespace"), name: text(metadata, "name")}
	if id.namespace == "" && namespaced(kind) {
		id.namespace = defaultNamespace
	}
	return id.String()
}

func problemOf(file string, err error) Problem {
	problem := Problem{File: file, Message: err.Error()}
	var at *yamllines.Error
	if errors.As(err, &at) {
		problem.Line = at.Line
	}
	return problem
}

// typeMeta is the apiVersion and kind of an object.
type typeMeta struct {
	apiVersion, kind string
}

// readers hold the reader of each kind.
var readers = map[typeMeta]func(*encoding, reduce.Policy) (object, findings){
	{"v1", kindService}: reader(kindService, defaultService, checkService,
		func(o *object, p reduce.Policy, read *corev1.Service) { o.spec, o.warnings = p.Service(read) }),
	{"discovery.k8s.io/v1", kindEndpointSlice}: reader(kindEndpointSlice, defaultEndpointSlice, checkEndpointSlice,
		func(o *object, p reduce.Policy, read *discoveryv1.EndpointSlice) {
			o.slice, o.warnings = p.EndpointSlice(read)
		}),
	{"v1", kindNode}: reader(kindNode, defaultNode, checkNode,
		func(o *object, _ reduce.Policy, read *corev1.Node) { o.node, o.warnings = reduce.Node(read) }),
	{"networking.k8s.io/v1", kindServiceCIDR}: reader(kindServiceCIDR, func(*networkingv1.ServiceCIDR) {}, checkServiceCIDR,
		func(o *object, _ reduce.Policy, read *networkingv1.ServiceCIDR) {
			o.ranges, o.warnings = reduce.ServiceCIDR(read)
		}),
}

// reader returns a function that decodes an object, completes it with the API's
// defaults, checks it and reduces it.
func reader[T any, P interface {
	*T
	metav1.Object
}](kind string, complete func(*T), check func(*T) findings, into func(*object, reduce.Policy, *T)) func(*encoding, reduce.Policy) (object, findings) {
	return func(encoded *encoding, policy reduce.Policy) (object, findings) {
		read, found := decode[T](encoded)
		if read == nil {
			return object{}, found
		}
		complete(read)
		meta := P(read)
		o := object{id: objectID{kind, meta.GetNamespace(), meta.GetName()}}
		into(&o, policy, read)
		for _, f := range rejected(check(read), o.warnings) {
			// What could not be decoded has the zero value, which says nothing about the file.
			if !slices.ContainsFunc(found, func(known finding) bool { return overlap(known.field, f.field) }) {
				found = append(found, f)
			}
		}
		if len(found) > 0 {
			return object{}, found
		}
		return o, nil
	}
}

// overlap reports whether one of two fields is the other one, in another case perhaps, or part of it.
func overlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, within := strings.CutPrefix(b, a)
	return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// rejected adds to findings the warnings that reject an object in a manifest, apart
// from those about what has a finding already. An API server accepts any annotation,
// and slices of host names.
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

// mistypedMax bounds the values of the wrong type that one round finds in an object: each takes a
// further decoding.
const mistypedMax = 20

// decode decodes an object, and finds fields that the kind does not have and values of the wrong
// type, which it leaves out. It returns nil if the rest could not be decoded.
func decode[T any](encoded *encoding) (read *T, found findings) {
	for len(found) < mistypedMax {
		read = new(T)
		strict, err := strictjson.UnmarshalStrict(encoded.json, read)
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			// mistyped.Field has no indices; the offset tells the exact place.
			path := encoded.pathAt(int(mistyped.Offset))
			found.add(path, "must be a %s, is a %s", typeName(mistyped.Type.Kind()), mistyped.Value)
			if encoded.omitted[path] {
				return nil, found
			}
			if encoded, err = encoded.without(path); err == nil {
				continue
			}
		}
		if err != nil {
			found.add("", "cannot be decoded: %s", err)
			return nil, found
		}
		for _, err := range strict {
			field := ""
			var at strictjson.FieldError
			if errors.As(err, &at) {
				field = at.FieldPath()
			}
			found.add(field, "unknown field")
		}
		return read, found
	}
	return nil, found
}

// typeName returns the name of a Go type in the words of YAML.
func typeName(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "map"
	default:
		return "number"
	}
}
