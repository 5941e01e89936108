package setup

import (
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestModesAreComplete: each mode has what a start, --init-only and the commands without a kernel call, and keeps its own
// rules only.
func TestModesAreComplete(t *testing.T) {
	kept := map[backend.Keep]bool{}
	for _, m := range Modes() {
		if m.domains == nil || m.prepare == nil || m.Renderer == nil || (m.Text == nil) != (m.Unprintable != "") {
			t.Errorf("%s is not complete", m.Name)
		}
		if m.Forwards == (m.Traffic != nil) {
			t.Errorf("%s: the kernel counts traffic, and forwards none", m.Name)
		}
		if m.WithoutIPTables && len(m.Tools) == 0 {
			t.Errorf("%s: a support bundle has nothing of the kernel", m.Name)
		}
		if kept[m.Keep] || m.Keep == (backend.Keep{}) {
			t.Errorf("%s keeps %+v", m.Name, m.Keep)
		}
		kept[m.Keep] = true
		if known := ModeNamed(m.Name); known.Name != m.Name {
			t.Errorf("%s is %q by its name", m.Name, known.Name)
		}
	}
	if m := ModeNamed(config.ModeBest); m.Name != "" || m.Forwards || m.LacksHashing(0) || m.Features(t.Context(), nil) != nil {
		t.Errorf("a mode that is not known yet: %+v", m.Traits)
	}
}

// TestARPIsRestored for a mode and a configuration that do not need it.
func TestARPIsRestored(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		words []string
		want  bool
	}{
		{NFTables, nil, true},
		{IPTables, nil, true},
		{IPVS, nil, true},
		{IPVS, []string{"--ipvs-strict-arp"}, false},
		{Userspace, nil, false},
		{Userspace, []string{testenv.Settings(t, "userspace: {answerARP: true}")}, true},
	} {
		if got := parsed(t, c.words...).restoresARP(c.mode); got != c.want {
			t.Errorf("%s %v: %t", c.mode.Name, c.words, got)
		}
	}
}
