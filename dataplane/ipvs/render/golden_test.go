// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// TestRender_Golden compares the objects of every feature in both families with golden files. The kernel test compares
// the same texts with the tools.
func TestRender_Golden(t *testing.T) {
	for _, c := range rendertest.IPVS {
		t.Run(c.Name, func(t *testing.T) {
			var b strings.Builder
			for _, family := range service.Families {
				fmt.Fprintf(&b, "-- %s --\n%s", family, listing(rendertest.RenderIPVS(c, family)))
			}
			rendertest.Golden(t, c.Name+".txt", b.String())
		})
	}
}
