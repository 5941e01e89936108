package localport

import (
	"io"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

func refusal(name string, err error) *openError {
	return &openError{
		owner: service.Key{Namespace: "ns1", Name: name},
		place: place{Protocol: service.UDP, At: netip.MustParseAddrPort("127.0.0.1:30053")}, err: err,
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		unix.EADDRINUSE:    "ss --listening --processes --numeric --udp 'sport = :30053'",
		unix.EACCES:        "CAP_NET_BIND_SERVICE",
		unix.EADDRNOTAVAIL: "bring the loopback interface up",
		unix.EMFILE:        "too many open files",
	} {
		text := refusal("dns", err).Error()
		for _, part := range []string{"Service ns1/dns", "node port 30053/udp", "127.0.0.1", err.Error(), want} {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not say %q", text, part)
			}
		}
	}
}

func TestOnlyTheHostIsToBlameForWhatItLacks(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EADDRINUSE: false, unix.EACCES: false, io.EOF: false,
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOBUFS: true, unix.EADDRNOTAVAIL: true, unix.EAFNOSUPPORT: true,
	} {
		if got := refusal("dns", err).nodesFault(); got != want {
			t.Errorf("%v is the node's fault: %v, want %v", err, got, want)
		}
	}
}
