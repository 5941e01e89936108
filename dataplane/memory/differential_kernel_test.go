package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// realTool runs the programs of one variant and family in a namespace of its
// own.
type realTool struct {
	namespace *netns.Namespace
	// prefix and variant make a program's name: "ip6tables" + "-nft" + "-save".
	prefix, variant string
}

// onRealTools runs a test once for each variant and each of the families.
func onRealTools(t *testing.T, families []service.Family, test func(*testing.T, service.Family, realTool)) {
	for _, variant := range []string{"-legacy", "-nft"} {
		for _, family := range families {
			prefix := NewKernel(family).program("")
			t.Run(prefix+variant, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath(prefix + variant); err != nil {
					t.Fatalf("install the Debian package iptables: %v", err)
				}
				n := netnstest.New(t, "memory")
				test(t, family, realTool{n, prefix, variant})
			})
		}
	}
}

// restore gives what the tool said, and an error when it refused.
func (r realTool) restore(input string) (string, error) {
	cmd := exec.Command(r.prefix+r.variant+"-restore", "--noflush")
	cmd.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	err := r.namespace.Run(cmd)
	return said.String(), err
}

func (r realTool) save(t *testing.T, table string) string {
	t.Helper()
	out, err := r.namespace.Output(exec.Command(r.prefix+r.variant+"-save", "-t", table))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// withoutComments leaves out the lines of a saved table that begin with "#".
func withoutComments(saved string) string {
	var kept strings.Builder
	for line := range strings.Lines(saved) {
		if !strings.HasPrefix(line, "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// TestSavedTextIsThatOfTheRealTools gives one input with every rule of the
// canonical table to both, and compares what they save.
func TestSavedTextIsThatOfTheRealTools(t *testing.T) {
	onRealTools(t, service.Families[:], func(t *testing.T, family service.Family, real realTool) {
		for _, table := range []string{"nat", "filter"} {
			var input strings.Builder
			fmt.Fprintf(&input, "*%s\n:OTHER - [0:0]\n:C - [0:0]\n", table)
			for _, c := range canonical {
				if c.table == table && strings.Contains(c.family, familyDigits[family]) {
					fmt.Fprintf(&input, "-A C %s\n", c.written)
				}
			}
			input.WriteString("COMMIT\n")
			if said, err := real.restore(input.String()); err != nil {
				t.Fatalf("%v: %s\n%s", err, said, input.String())
			}
			k := NewKernel(family)
			if err := k.Restore(context.Background(), []byte(input.String())); err != nil {
				t.Fatal(err)
			}
			saved, err := k.Save(context.Background(), iptables.Table(table))
			if err != nil {
				t.Fatal(err)
			}
			want := withoutComments(real.save(t, table))
			if got := withoutComments(string(saved)); got != want {
				t.Errorf("got\n%s\nthe real tool says\n%s", got, want)
			}
		}
	})
}

// TestRealToolsRefuseTheSame runs every refusal on the real tools, except where
// this package is stricter on purpose.
func TestRealToolsRefuseTheSame(t *testing.T) {
	// The inputs hold IPv4 addresses; the programs of the families share their code.
	onRealTools(t, []service.Family{service.IPv4}, func(t *testing.T, _ service.Family, real realTool) {
		if said, err := real.restore(before); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, c := range refusals {
			var exit *exec.ExitError
			said, err := real.restore(c.input)
			if refused := errors.As(err, &exit); refused == stricter[c.name] {
				t.Errorf("%s: error %v, stricter %v: %s", c.name, err, stricter[c.name], said)
			}
		}
	})
}
