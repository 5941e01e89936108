package genl

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Timeouts are how long the kernel remembers connections that are idle; whole
// seconds.
type Timeouts struct {
	TCP time.Duration
	// TCPFin is that of a TCP connection that is being closed.
	TCPFin time.Duration
	UDP    time.Duration
}

// Timeouts gives those in force.
func (s *Socket) Timeouts(ctx context.Context) (Timeouts, error) {
	var t Timeouts
	err := s.ask(ctx, question{kind: s.family, command: getConfig, flags: unix.NLM_F_ACK}, func(attrs []byte) {
		for a := range wire.Attrs(attrs) {
			lasts := time.Duration(uint32At(a.Data)) * time.Second
			switch a.Type {
			case commandTimeoutTCP:
				t.TCP = lasts
			case commandTimeoutTCPFin:
				t.TCPFin = lasts
			case commandTimeoutUDP:
				t.UDP = lasts
			}
		}
	})
	if err != nil {
		return Timeouts{}, fmt.Errorf("look at the timeouts of IPVS: %w", err)
	}
	return t, nil
}

// SetTimeouts changes the timeouts that are above 0; parts of a second count as a
// whole one.
func (s *Socket) SetTimeouts(ctx context.Context, t Timeouts) error {
	var attrs []byte
	for _, timeout := range []struct {
		kind  uint16
		lasts time.Duration
	}{
		{commandTimeoutTCP, t.TCP}, {commandTimeoutTCPFin, t.TCPFin}, {commandTimeoutUDP, t.UDP},
	} {
		if timeout.lasts > 0 {
			seconds := min(math.Ceil(timeout.lasts.Seconds()), math.MaxInt32)
			attrs = appendUint32(attrs, timeout.kind, uint32(seconds))
		}
	}
	if attrs == nil {
		return nil
	}
	q := question{kind: s.family, command: setConfig, flags: unix.NLM_F_ACK, attrs: attrs}
	if err := s.ask(ctx, q, func([]byte) {}); err != nil {
		return fmt.Errorf("set the timeouts of IPVS: %w", err)
	}
	return nil
}

// Flush removes all virtual servers of the network namespace, of both families,
// whoever made them, those for packets with a mark included.
func (s *Socket) Flush(ctx context.Context) error {
	q := question{kind: s.family, command: flush, flags: unix.NLM_F_ACK}
	if err := s.ask(ctx, q, func([]byte) {}); err != nil {
		return fmt.Errorf("remove all virtual servers: %w", err)
	}
	return nil
}
