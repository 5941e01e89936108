package memory

import (
	"fmt"
	"math"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// markTarget is MARK: it clears the bits of mask, then flips those of value.
type markTarget struct {
	value, mask uint32
	set         bool
}

func (t *markTarget) option(p *parser, name string) (bool, error) {
	switch name {
	case "--set-xmark", "--set-mark", "--or-mark", "--and-mark", "--xor-mark":
	default:
		return false, nil
	}
	text, err := p.value(name)
	if err != nil {
		return true, err
	}
	value, mask, err := parseMark(text)
	if err != nil {
		return true, err
	}
	if t.set {
		return true, refusef("MARK: Only one of --set-xmark, --{and,or,xor,set}-mark can be used")
	}
	t.set = true
	switch name {
	case "--set-xmark":
		t.value, t.mask = value, mask
	case "--set-mark":
		t.value, t.mask = value, value|mask
	case "--or-mark":
		t.value, t.mask = value, value
	case "--and-mark":
		t.value, t.mask = 0, ^value
	case "--xor-mark":
		t.value, t.mask = value, 0
	}
	return true, nil
}

func (t *markTarget) complete(*rule) error {
	if !t.set {
		return refusef("MARK: One of the --set-xmark, --{and,or,xor,set}-mark options is required")
	}
	return nil
}

func (t *markTarget) allowed(iptables.Table) hookSet { return anyHook }

func (t *markTarget) apply(w *walk) fate {
	w.mark = w.mark&(math.MaxUint32^t.mask) ^ t.value
	return onward
}

func (t *markTarget) print(b *strings.Builder) {
	write(b, false, "-j MARK --set-xmark", fmt.Sprintf("0x%x/0x%x", t.value, t.mask))
}
