package render_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/ipvstest"
)

var update = flag.Bool("update", false, "write what is rendered into testdata")

// Every feature in both families. The kernel test holds the same texts against
// the tools.
func TestRenderGolden(t *testing.T) {
	for _, c := range ipvstest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			var b strings.Builder
			for _, family := range service.Families {
				fmt.Fprintf(&b, "-- %s --\n%s", family, listing(c.Render(family)))
			}
			path := filepath.Join("testdata", c.Name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("differs from %s (go test -update rewrites it):\n%s", path, b.String())
			}
		})
	}
}
