package manifest

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// parse reads a whole file: either all of its objects, or what is wrong with it.
// It is pure; file is for messages only.
func parse(file string, data []byte) ([]object, []Problem) {
	roots, err := documents(data)
	if err != nil {
		return nil, []Problem{problemOf(file, err)}
	}
	var objects []object
	var problems []Problem
	lines := make(map[objectID]int)
	for _, root := range roots {
		members, err := split(root)
		if err != nil {
			problems = append(problems, problemOf(file, err))
			continue
		}
		for _, member := range members {
			parsed, found := parseObject(file, member)
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
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return objects, nil
}

// split opens a List into its items; anything else is one object.
func split(root *yaml.Node) ([]*yaml.Node, error) {
	if root.Kind != yaml.MappingNode {
		return nil, &lineError{root.Line, "must be an object with apiVersion and kind"}
	}
	if text(root, "kind") != "List" || text(root, "apiVersion") != "v1" {
		return []*yaml.Node{root}, nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "apiVersion", "kind", "metadata", "items":
		default:
			return nil, &lineError{key.Line, fmt.Sprintf("List: %s: unknown field", key.Value)}
		}
	}
	items := child(root, "items")
	if items == nil {
		return nil, nil
	}
	if items.Kind != yaml.SequenceNode {
		return nil, &lineError{items.Line, "List: items: must be a list"}
	}
	return items.Content, nil
}

// parseObject decodes, completes, checks and reduces one object.
func parseObject(file string, node *yaml.Node) (object, []Problem) {
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
	parsed, found := read(encoded)
	parsed.line = node.Line
	var problems []Problem
	for _, finding := range found {
		problems = append(problems, Problem{
			File: file, Line: encoded.line(finding.field), Object: nameOf(node, kind.kind),
			Field: finding.field, Message: finding.message,
		})
	}
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

// nameOf names an object as far as it can be read.
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
	var at *lineError
	if errors.As(err, &at) {
		problem.Line = at.line
	}
	return problem
}
