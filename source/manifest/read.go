package manifest

import (
	"encoding/json"
	"errors"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/sluice-proxy/sluice/source/reduce"
)

// typeMeta is the apiVersion and kind of an object.
type typeMeta struct {
	apiVersion, kind string
}

// readers decode an object of each kind, complete it with the API's defaults,
// check it as an API server would and reduce it.
var readers = map[typeMeta]func(*encoding) (object, findings){
	{"v1", kindService}:                        readService,
	{"discovery.k8s.io/v1", kindEndpointSlice}: readEndpointSlice,
	{"v1", kindNode}:                           readNode,
	{"networking.k8s.io/v1", kindServiceCIDR}:  readServiceCIDR,
}

func readService(encoded *encoding) (object, findings) {
	var read corev1.Service
	if found := decode(encoded, &read); len(found) > 0 {
		return object{}, found
	}
	defaultService(&read)
	if found := checkService(&read); len(found) > 0 {
		return object{}, found
	}
	spec, warnings := reduce.Service(&read)
	id := objectID{kindService, read.Namespace, read.Name}
	return object{id: id, spec: spec, warnings: warnings}, nil
}

func readEndpointSlice(encoded *encoding) (object, findings) {
	var read discoveryv1.EndpointSlice
	if found := decode(encoded, &read); len(found) > 0 {
		return object{}, found
	}
	defaultEndpointSlice(&read)
	if found := checkEndpointSlice(&read); len(found) > 0 {
		return object{}, found
	}
	slice, warnings := reduce.EndpointSlice(&read)
	id := objectID{kindEndpointSlice, read.Namespace, read.Name}
	return object{id: id, slice: slice, warnings: warnings}, nil
}

func readNode(encoded *encoding) (object, findings) {
	var read corev1.Node
	if found := decode(encoded, &read); len(found) > 0 {
		return object{}, found
	}
	defaultNode(&read)
	if found := checkNode(&read); len(found) > 0 {
		return object{}, found
	}
	node, warnings := reduce.Node(&read)
	return object{id: objectID{kind: kindNode, name: read.Name}, node: node, warnings: warnings}, nil
}

func readServiceCIDR(encoded *encoding) (object, findings) {
	var read networkingv1.ServiceCIDR
	if found := decode(encoded, &read); len(found) > 0 {
		return object{}, found
	}
	if found := checkServiceCIDR(&read); len(found) > 0 {
		return object{}, found
	}
	ranges, warnings := reduce.ServiceCIDR(&read)
	return object{id: objectID{kind: kindServiceCIDR, name: read.Name}, ranges: ranges, warnings: warnings}, nil
}

// decode refuses fields that the kind does not have, and values of the wrong
// type.
func decode(encoded *encoding, into any) findings {
	var found findings
	strict, err := strictjson.UnmarshalStrict(encoded.json, into)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		// mistyped.Field has no indices; the offset tells the exact place.
		found.add(encoded.pathAt(int(mistyped.Offset)), "must be a %s, is a %s", typeName(mistyped.Type.Kind()), mistyped.Value)
	case err != nil:
		found.add("", "cannot be decoded: %s", err)
	}
	for _, err := range strict {
		field := ""
		var at strictjson.FieldError
		if errors.As(err, &at) {
			field = at.FieldPath()
		}
		found.add(field, "unknown field")
	}
	return found
}

// typeName says the name of a Go type as a person who writes YAML would.
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
