// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// keyText prints a key, for example "172.30.0.41 tcp 80".
func keyText(k tree.Key) string {
	switch {
	case k.Lane == tree.Tail:
		return "tail " + k.Text
	case !k.HasPort:
		return k.Addr.String()
	case !k.Addr.IsValid():
		return fmt.Sprintf("%s %d", k.Protocol, k.Port)
	default:
		return fmt.Sprintf("%s %s %d", k.Addr, k.Protocol, k.Port)
	}
}

// listing prints objects, sorted: elements one per line, chains with their rules below.
func listing(objects []dataplane.Object) string {
	lines := map[string]string{}
	for _, o := range objects {
		name, body := o.ID.Container+" "+o.ID.Name, "  "+strings.ReplaceAll(o.Body, "\n", "\n  ")
		if o.Kind == dataplane.Element {
			key, err := tree.DecodeKey(o.ID.Name)
			if err != nil {
				panic(err)
			}
			name = fmt.Sprintf("%s [%s]", o.ID.Container, keyText(key))
		}
		if o.Body == "" {
			body = "  (empty)"
		}
		lines[name] = name + "\n" + body + "\n"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[name])
	}
	return b.String()
}

// TestRender_Golden compares the rules of every feature in both families with golden files.
// TestKernelText_PrintedAsRendered compares the same texts with the tools.
func TestRender_Golden(t *testing.T) {
	for _, c := range rendertest.IPTables {
		t.Run(c.Name, func(t *testing.T) {
			var b strings.Builder
			for _, family := range service.Families {
				fmt.Fprintf(&b, "-- %s --\n%s", family, listing(rendertest.RenderIPTables(c, family)))
			}
			rendertest.Golden(t, c.Name+".txt", b.String())
		})
	}
}
