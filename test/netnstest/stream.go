package netnstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Stream is a UDP client that sends every 5 ms from one socket, whatever becomes of its datagrams, as a client of DNS or
// of a game does.
type Stream struct {
	conn    net.Conn
	running sync.WaitGroup
	stop    context.CancelFunc

	mu sync.Mutex
	// last is the newest answer, and changed when its backend first answered in a row.
	last          string
	changed, came time.Time
}

const streamPause = 5 * time.Millisecond

// OpenStream begins to send from inside a namespace. The kernel chooses the zero source and port 0.
func OpenStream(ctx context.Context, n *netns.Namespace, source, target netip.AddrPort) (*Stream, error) {
	conn, err := n.DialFrom(ctx, "udp", source, target.String())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{conn: conn, stop: stop}
	s.running.Go(func() {
		tick := time.NewTicker(streamPause)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = conn.Write([]byte("?")) // an earlier datagram was refused
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	s.running.Go(s.listen)
	return s, nil
}

func (s *Stream) listen() {
	buffer := make([]byte, 256)
	for {
		size, err := s.conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		answer, parseErr := netns.ParseAnswer(string(buffer[:size]))
		if err != nil || parseErr != nil {
			continue // an earlier datagram was refused
		}
		s.mu.Lock()
		if s.came = time.Now(); answer.Backend != s.last {
			s.last, s.changed = answer.Backend, s.came
		}
		s.mu.Unlock()
	}
}

// Answers returns the backend that answered last, when its first answer in a row came, and when its last one did.
func (s *Stream) Answers() (backend string, since, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.changed, s.came
}

// String names both ends.
func (s *Stream) String() string {
	return fmt.Sprintf("stream from %s to %s", s.conn.LocalAddr(), s.conn.RemoteAddr())
}

// Close ends the stream.
func (s *Stream) Close() error {
	s.stop()
	err := s.conn.Close()
	s.running.Wait()
	return err
}
