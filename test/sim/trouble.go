package sim

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// Trouble is carried by the number of a Service's first port: whatever is
// rendered from it names that port in at least one rule, and nothing else does.
const (
	poisonBase = 20000
	curseBase  = 21000
	curseEnd   = 22000
)

// troubles knows which trouble is over. It is asked by kernels and renderers,
// and safe for that.
type troubles struct {
	mu    sync.Mutex
	cured map[uint16]bool
}

func (t *troubles) cure(port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cured == nil {
		t.cured = make(map[uint16]bool)
	}
	t.cured[port] = true
}

func (t *troubles) active(port uint16, from, to uint16) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return port >= from && port < to && !t.cured[port]
}

func (t *troubles) poisons(port uint16) bool { return t.active(port, poisonBase, curseBase) }
func (t *troubles) curses(port uint16) bool  { return t.active(port, curseBase, curseEnd) }

// refusal gives what the kernel refuses in an input, or nothing.
func (t *troubles) refusal(input []byte) string {
	const dport = "--dport "
	for rest := input; ; {
		_, after, found := bytes.Cut(rest, []byte(dport))
		if !found {
			return ""
		}
		rest = after
		var port uint16
		if _, err := fmt.Fscan(bytes.NewReader(after[:min(len(after), 6)]), &port); err == nil && t.poisons(port) {
			return fmt.Sprintf("%s%d ", dport, port)
		}
	}
}

// cursed tells whether rendering a view has to fail.
func (t *troubles) cursed(view *service.View) bool {
	for _, family := range service.Families {
		for i := range view.Ports[family] {
			if t.curses(view.Ports[family][i].Port) {
				return true
			}
		}
	}
	return false
}

// holdsBack tells whether a Service, as it is now, cannot get its rules for a
// family into the kernel, so that the last ones that could stay.
func (t *troubles) holdsBack(spec *service.Spec, family service.Family) bool {
	if spec == nil {
		return false
	}
	for i := range spec.Ports {
		// A cursed rendering keeps everything back, a refused one only what has
		// rules at all.
		if t.curses(spec.Ports[i].Port) || (t.poisons(spec.Ports[i].Port) && spec.ClusterIPs[family].IsValid()) {
			return true
		}
	}
	return false
}
