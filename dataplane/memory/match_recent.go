package memory

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// recentMatch is -m recent with the packet's source address: --set remembers it
// and holds, --rcheck --seconds holds for an address remembered lately.
type recentMatch struct {
	family service.Family
	name   string
	// action is "--set" or "--rcheck".
	action  string
	seconds int
	reap    bool
}

// recentNameMax is XT_RECENT_NAME_LEN of the kernel without the final NUL.
const recentNameMax = 199

func (m *recentMatch) option(p *parser, name string) (bool, error) {
	switch name {
	case "--set", "--rcheck":
		if m.action != "" {
			return true, refusef("recent: only one of `--set', `--rcheck' `--update' or `--remove' may be set")
		}
		m.action = name
	case "--reap":
		m.reap = true
	case "--rsource":
	case "--name":
		value, err := p.value(name)
		if err != nil {
			return true, err
		}
		if value == "" || len(value) > recentNameMax {
			return true, refusef("recent: bad value %q for option %q", value, name)
		}
		m.name = value
	case "--mask":
		value, err := p.value(name)
		if err == nil && value != m.mask() {
			err = refusef("recent: bad value %q for option %q", value, name)
		}
		return true, err
	case "--seconds":
		value, err := p.value(name)
		if err != nil {
			return true, err
		}
		if m.seconds, err = strconv.Atoi(value); err != nil || m.seconds < 1 {
			return true, refusef("recent: bad value %q for option %q, or out of range", value, name)
		}
	default:
		return false, nil
	}
	return true, nil
}

func (m *recentMatch) complete(*rule) error {
	switch {
	case m.action == "":
		return refusef("recent: you must specify one of `--set', `--rcheck' `--update' or `--remove'")
	case m.action == "--set" && (m.seconds > 0 || m.reap):
		return refusef("recent: option \"--seconds\" cannot be used together with \"--set\"")
	case m.reap && m.seconds == 0:
		return refusef("recent: option \"--reap\" requires option \"--seconds\"")
	case m.name == "":
		m.name = "DEFAULT"
	}
	return nil
}

func (m *recentMatch) holds(w *walk) bool {
	client := w.src.Addr()
	if m.action == "--set" {
		w.recent.remember(m.name, client, w.now)
		return true
	}
	since := time.Time{}
	if m.seconds > 0 {
		since = w.now.Add(-time.Duration(m.seconds) * time.Second)
	}
	held := w.recent.seen(m.name, client, since)
	if m.reap {
		w.recent.reap(m.name, since)
	}
	return held
}

// mask gives the mask of whole addresses, the only one that is understood.
func (m *recentMatch) mask() string {
	if m.family == service.IPv6 {
		return netip.AddrFrom16([16]byte{
			255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		}).String()
	}
	return "255.255.255.255"
}

func (m *recentMatch) print(b *strings.Builder) {
	write(b, false, "-m recent", m.action)
	if m.seconds > 0 {
		write(b, false, "--seconds", strconv.Itoa(m.seconds))
	}
	if m.reap {
		write(b, false, "--reap")
	}
	write(b, false, "--name", m.name, "--mask", m.mask(), "--rsource")
}
