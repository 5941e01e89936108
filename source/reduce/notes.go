// SPDX-License-Identifier: Apache-2.0

package reduce

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-proxy/sluice/service"
)

// notes collects what is wrong with one object. Texts are put together only
// when there is something to say.
type notes struct {
	kind, namespace, name string
	warnings              []service.Warning
}

// warningsMax bounds the warnings about one object, which may have a hundred thousand errors.
const warningsMax = 100

// add records that a field cannot be used. The effect says what happens instead. Text among the
// arguments is cut at service.QuoteMax. The last warning says that there may be more.
func (n *notes) add(field path, effect, problem string, args ...any) {
	if len(n.warnings) == warningsMax {
		if last := &n.warnings[warningsMax-1]; !strings.HasSuffix(last.Problem, andMore) {
			last.Problem += andMore
		}
		return
	}
	for i, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.String && v.Len() > service.QuoteMax {
			args[i] = service.Cut(v.String(), service.QuoteMax)
		}
	}
	n.warnings = append(n.warnings, service.Warning{
		Object:  n.object(),
		Field:   field.String(),
		Problem: fmt.Sprintf(problem, args...),
		Effect:  effect,
	})
}

// andMore ends the last warning that is kept.
const andMore = " (and more errors that are not listed)"

// objectMax bounds the name of an object: a namespace of 63 bytes and a name of 253.
const objectMax = 63 + 1 + 253

// object names the object for people: "Service ns1/svc1", "Node n1".
func (n *notes) object() string {
	name := n.name
	if n.namespace != "" {
		name = n.namespace + "/" + n.name
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	return n.kind + " " + service.Cut(name, objectMax)
}

// path names a field of an object. It is put into words only for a warning.
type path struct {
	// list is a field, or the list that index points into.
	list string
	// index counts from 0; -1 when list is meant itself.
	index int
	// rest is the way from the element to the field, with its leading dot, or
	// empty.
	rest string
}

// field is the path of a field that is in no list: "spec.clusterIP".
func field(name string) path { return path{list: name, index: -1} }

// at is the path of an element: "spec.externalIPs[1]".
func at(list string, index int) path { return path{list: list, index: index} }

// dot goes on to a field of the element.
func (p path) dot(name string) path {
	p.rest = "." + name
	return p
}

// String returns the form in which the API itself reports fields:
// "spec.ports[2].nodePort".
func (p path) String() string {
	if p.index < 0 {
		return p.list + p.rest
	}
	return p.list + "[" + strconv.Itoa(p.index) + "]" + p.rest
}
