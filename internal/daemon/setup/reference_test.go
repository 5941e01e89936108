// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/doctest"
)

// feature is a row of the table of docs/modes.md. A mode without the feature has the text "no".
type feature struct {
	name string
	text func(*testing.T, *Mode) string
	// compared is the row of docs/comparison.md whose cell of Sluice begins with the modes that have the feature; empty for
	// none.
	compared string
}

const (
	yes = "yes"
	no  = "no"
)

var features = []feature{
	{"runs without iptables binaries", func(_ *testing.T, m *Mode) string { return either(m.WithoutIPTables, yes, no) }, ""},
	{"[algorithms](balancing.md#choose-an-algorithm) besides `random`", algorithms, "Algorithm per Service"},
	{"[outlier detection](balancing.md#avoid-failing-endpoints)", func(_ *testing.T, m *Mode) string {
		return either(m.Forwards, "always: tries other endpoints", "opt-in")
	}, "Avoids endpoints that fail"},
	{"TCP connections to removed endpoints, without a [drain deadline](balancing.md#end-connections-to-removed-endpoints)",
		func(_ *testing.T, m *Mode) string {
			return either(m.DrainsItself || m.Forwards, fmt.Sprintf("end after %d min", drainDeadline/time.Minute), "continue")
		}, ""},
	{"[offload](modes.md#offload-connections) of TCP connections", func(_ *testing.T, m *Mode) string { return either(m.Offloads, "opt-in", no) }, "Offload of established connections"},
	{"values of [`sluice.dev/no-endpoints`](concepts.md#services-without-endpoints)", noEndpoints, ""},
	{"`sluice.dev/deny-source-ranges`", func(_ *testing.T, m *Mode) string { return either(m.Policy.NoDenyRanges == "", yes, no) }, ""},
	{"SCTP", func(_ *testing.T, m *Mode) string { return either(m.Forwards, no, yes) }, "SCTP"},
	{"node ports on localhost, by default", localhost, "Node ports on localhost"},
	{"new connections by Service", func(_ *testing.T, m *Mode) string { return either(m.Traffic != nil || m.Forwards, yes, no) }, "Connections per Service"},
	{"new connections by endpoint", func(_ *testing.T, m *Mode) string {
		return either(m.CountsEndpoints, yes, "with `traffic.endpoints`")
	}, ""},
	{"bytes", func(_ *testing.T, m *Mode) string { return either(m.CountsBytes, yes, "with `traffic.accounting`") }, "Bytes per Service"},
	{"refusals, by reason", refusals, ""},
	{"`sluice plan -o rules`", func(_ *testing.T, m *Mode) string { return either(m.Text != nil, yes, no) }, ""},
	{"`sluice explain`", func(_ *testing.T, m *Mode) string { return either(m.Forwards, no, yes) }, ""},
	{"NetworkPolicy applies to clients of Services", func(_ *testing.T, m *Mode) string { return either(m.Forwards, "**no**", yes) }, ""},
	{"open connections when the proxy exits", func(_ *testing.T, m *Mode) string { return either(m.Forwards, "end", "continue") }, ""},
}

// TestModes_Reference compares the table of docs/modes.md with the traits of the modes, and the rows of
// docs/comparison.md about Sluice with that table.
func TestModes_Reference(t *testing.T) {
	modes := Modes()
	heading := []string{"Feature"}
	for _, m := range modes {
		heading = append(heading, label(m))
	}
	var rows [][]string
	page, err := os.ReadFile("../../../docs/comparison.md")
	check(t, err)
	for _, f := range features {
		row, having := []string{f.name}, []string(nil)
		for i := range modes {
			text := f.text(t, &modes[i])
			if row = append(row, text); text != no {
				having = append(having, label(modes[i]))
			}
		}
		rows = append(rows, row)
		if want := "| " + f.compared + " | " + all(heading[1:], having); f.compared != "" && !strings.Contains(string(page), want) {
			t.Errorf("docs/comparison.md has no row that begins with %q", want)
		}
	}
	doctest.Generated(t, "../../../docs/modes.md", "features", doctest.Table(heading, rows))
}

// label returns the name of a mode in text.
func label(m Mode) string { return strings.Replace(string(m.Name), "ipvs", "IPVS", 1) }

// all returns in words which of the modes are having something.
func all(modes, having []string) string {
	lacking := slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return slices.Contains(having, m) })
	switch {
	case len(lacking) == 0:
		return "all modes"
	case len(lacking) == 1:
		return "all modes except " + lacking[0]
	case len(having) == 1:
		return having[0] + " mode"
	}
	return strings.Join(having, " and ") + " mode"
}

func either(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}

// code returns words as code, separated by commas, and "no" for none.
func code(words []string) string {
	if len(words) == 0 {
		return no
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

func algorithms(_ *testing.T, m *Mode) string {
	var possible []string
	for i, name := range service.Balancings() {
		if by := service.Balancing(i); by != service.Random && m.Policy.NoBalancing[by] == "" {
			possible = append(possible, name)
		}
	}
	if len(possible) == len(service.Balancings())-1 {
		return "all"
	}
	return code(possible)
}

func noEndpoints(_ *testing.T, m *Mode) string {
	var possible []string
	for value, name := range map[service.NoEndpoints]string{
		service.NoEndpointsReject: "reject", service.NoEndpointsDrop: "drop", service.NoEndpointsPass: "pass",
	} {
		if m.Policy.NoEndpoints[value] == "" {
			possible = append(possible, name)
		}
	}
	slices.Sort(possible)
	return code(possible)
}

// localhost says what the defaults of a configuration that names the mode give.
func localhost(t *testing.T, m *Mode) string {
	o := parsed(t, "--proxy-mode="+string(m.Name))
	settings, err := o.NodeSettings(m.Name)
	check(t, err)
	switch {
	case settings.LocalhostNodePorts:
		return either(m.Forwards, yes, "IPv4") // the kernel translates 127.0.0.0/8 only
	case m.LocalPorts:
		return "with an empty `mode`, or opt-in"
	}
	return no
}

func refusals(_ *testing.T, m *Mode) string {
	var reasons []string
	for _, r := range m.Refusals {
		reasons = append(reasons, r.String())
	}
	return code(reasons)
}
