// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-proxy/sluice/service"
)

// Problem says why a file, or the directory, is rejected.
type Problem struct {
	// File is the path of the file or of the directory.
	File string
	// Line is counted from 1; 0 if unknown.
	Line int
	// Object is kind and name, for example "Service default/web"; empty when
	// the file could not be read that far.
	Object string
	// Field is the path of the field, for example "spec.ports[0].port"; empty
	// if the problem concerns no single field.
	Field string
	// Message says what is wrong and, where possible, what to write instead.
	Message string
}

// String returns one line: "web.yaml:12: Service default/web: spec.ports[0].port:
// 0 is not a port number (1 to 65535)".
func (p Problem) String() string {
	var line strings.Builder
	line.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&line, ":%d", p.Line)
	}
	for _, part := range []string{p.Object, p.Field, p.Message} {
		if part != "" {
			line.WriteString(": " + oneLine(part))
		}
	}
	return line.String()
}

// partMax bounds what a line repeats of a file, in bytes.
const partMax = 400

// oneLine makes text from a file fit for a line: without control characters, and not too long.
func oneLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		text = strconv.Quote(text)
		text = text[1 : len(text)-1]
	}
	return service.Cut(text, partMax)
}

// finding is a problem inside one object, before its line is known.
type finding struct {
	field   string
	message string
}

// findings collects the problems of one object.
type findings []finding

func (f *findings) add(field, format string, arguments ...any) {
	*f = append(*f, finding{field, fmt.Sprintf(format, arguments...)})
}

// objectID names an object across all files. Namespace is empty for kinds that
// have none.
type objectID struct {
	kind, namespace, name string
}

// path returns "namespace/name", or the name alone.
func (id objectID) path() string {
	if id.namespace == "" {
		return id.name
	}
	return id.namespace + "/" + id.name
}

// String returns "Service default/web".
func (id objectID) String() string { return id.kind + " " + id.path() }

// object is one accepted object, reduced to the value of its kind. A nil value
// means that the object does not concern a proxy.
type object struct {
	id objectID
	// line is where the object starts in its file.
	line     int
	spec     *service.Spec
	slice    *service.Slice
	node     *service.NodeObject
	ranges   []netip.Prefix
	warnings []service.Warning
	// unserved are the addresses that a Service lists and no node serves, with the reasons.
	unserved map[netip.Addr]string
}

// The kinds that a manifest may hold.
const (
	kindService       = "Service"
	kindEndpointSlice = "EndpointSlice"
	kindNode          = "Node"
	kindServiceCIDR   = "ServiceCIDR"
)
