package nftables_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// changing is the n-th Service in one of its states. Each removes some of what the others
// need: chains and maps of clients, slots, ranges, node ports, class chains.
func changing(n, state int) *service.View {
	view := plain(n, 3, 0)
	port := &view.Ports[service.IPv4][0]
	switch state % 5 {
	case 0:
		port.AffinitySeconds = 60
	case 1:
		port.AffinitySeconds = 90
		port.Cluster = port.Cluster[1:] // the others move
	case 2:
		port.LoadBalancerVIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})}
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/25")}
		port.NodePort = uint16(30000 + n)
	case 3:
		port.LoadBalancerVIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})}
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9"), netip.MustParsePrefix("192.0.2.0/24")}
		port.AffinitySeconds = 60
		port.NodePort = uint16(30000 + n)
	default:
		*view = *plain(n, 40+n%40, 1)
	}
	return view
}

// TestWhateverGoesIsReleased removes every kind of object and adds it again, with chains in
// the transaction of what leads to them and in later ones, in one transaction and in many, on
// whichever kernel runs the test.
func TestWhateverGoesIsReleased(t *testing.T) {
	const services, states = 40, 5
	for name, config := range map[string]nftables.WriterConfig{
		"together":          {},
		"together, divided": {TransactionBytes: 8 << 10},
		"late":              {LateRelease: true},
		"late, divided":     {LateRelease: true, TransactionBytes: 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service.IPv4, config)
			most := 0
			for state := range 2 * states {
				for n := range services {
					switch {
					case state >= states && (state+n)%3 == 0:
						w.want(changing(n, 0).Key, nil)
					default:
						w.serve(changing(n, state+n))
					}
				}
				most = max(most, w.commit().Written.Calls)
				if drift := w.audit(); drift.Any() {
					t.Fatalf("after step %d: %+v", state, drift)
				}
			}
			for n := range services {
				w.want(changing(n, 0).Key, nil)
			}
			calls := w.commit().Written.Calls
			if drift := w.audit(); drift.Any() {
				t.Errorf("after all had gone: %+v", drift)
			}
			if config.TransactionBytes == 0 && config.LateRelease && calls != 2 {
				t.Errorf("all went in %d transactions, want the chains in the second", calls)
			}
			if config.TransactionBytes == 0 && !config.LateRelease && (calls != 1 || most != 1) {
				t.Errorf("all went in %d transactions, steps in up to %d, want 1", calls, most)
			}
		})
	}
}

// TestManyChainsGoLate: the deletion of chains by themselves is divided like everything else.
// (Once they were too many for the socket, and the receipt blamed a Service.)
func TestManyChainsGoLate(t *testing.T) {
	const bytesMax = 16 << 10
	w := newWorld(t, service.IPv4, nftables.WriterConfig{LateRelease: true, TransactionBytes: bytesMax})
	serve := func(wanted bool) {
		for n := range 100 {
			view := changing(n, 0)
			w.want(view.Key, nil)
			if wanted {
				w.serve(view)
			}
		}
	}
	serve(true)
	w.commit()
	var sizes []int
	w.use(nftables.WriterConfig{LateRelease: true, TransactionBytes: bytesMax, Open: func() (nftables.Socket, error) {
		socket, err := wire.Open()
		return listening{socket, func(t *wire.Transaction) []*wire.Refusal {
			sizes = append(sizes, t.Bytes())
			return nil
		}}, err
	}})
	serve(false)
	w.commit()
	if drift := w.audit(); drift.Any() || slices.Max(sizes) > 2*bytesMax {
		t.Errorf("drift %+v; transactions of %v bytes, want about %d", drift, sizes, bytesMax)
	}
}

// listening is a socket that passes its transactions to a function first.
type listening struct {
	*wire.Socket
	hear func(*wire.Transaction) []*wire.Refusal
}

// Commit is for nftables.Socket.
func (l listening) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	if refusals := l.hear(t); refusals != nil {
		return refusals, nil
	}
	return l.Socket.Commit(t)
}

// TestAKernelThatHoldsOn: if the kernel refuses to delete a chain, whatever the probe found,
// the deletion of chains waits, and no Service's change.
func TestAKernelThatHoldsOn(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	for n := range 10 {
		w.serve(changing(n, 0))
	}
	w.commit()
	transactions, refused := 0, map[int]bool{1: true, 3: true}
	w.use(nftables.WriterConfig{Open: func() (nftables.Socket, error) {
		socket, err := wire.Open()
		return listening{socket, func(*wire.Transaction) []*wire.Refusal {
			if transactions++; refused[transactions] {
				return []*wire.Refusal{{Kind: unix.NFT_MSG_DELCHAIN, Errno: unix.EBUSY}}
			}
			return nil
		}}, err
	}})
	for n := range 5 {
		w.want(changing(n, 0).Key, nil)
	}
	w.serve(plain(7, 5, 0))
	for attempt, want := range []dataplane.Outcome{dataplane.Busy, dataplane.Busy, dataplane.Landed} {
		batch := w.ledger.Plan()
		receipt := w.writer.Write(t.Context(), batch)
		if receipt.Outcome != want || len(receipt.Suspects) > 0 || want == dataplane.Busy && !errors.Is(receipt.Err, unix.EBUSY) {
			t.Fatalf("attempt %d: got %v with suspects %v, want %v", attempt, receipt, receipt.Suspects, want)
		}
		checkCertain(w, batch, receipt, w.read())
		w.ledger.Settle(batch, receipt)
		if attempt == 1 {
			w.lacksNothing()
		}
	}
	if drift := w.audit(); drift.Any() {
		t.Errorf("in the end: %+v", drift)
	}
}

// lacksNothing fails unless the Service that changed and its neighbours are served, and the
// deleted ones are not.
func (w *world) lacksNothing() {
	w.Helper()
	listed := w.nft("", "list", "map", w.table(), "frontends")
	for n := range 10 {
		if served := strings.Contains(listed, fmt.Sprintf("172.16.0.%d . tcp . 80", n)); served != (n >= 5) {
			w.Errorf("Service %d is served: %t", n, served)
		}
	}
	if !strings.Contains(listed, "172.16.0.7 . tcp . 80 comment \"ns/svc7:http\" : goto cluster-") {
		w.Errorf("Service 7 is not as it is wanted:\n%s", listed)
	}
}
