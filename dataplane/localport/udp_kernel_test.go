// SPDX-License-Identifier: Apache-2.0

package localport_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/service"
)

// datagramServer answers datagrams at an address of the node. A nil answer is not sent.
func (w *world) datagramServer(at netip.AddrPort, answer func(question []byte, from net.Addr) []byte) {
	w.Helper()
	socket, err := w.node.ListenPacket("udp", at.String())
	check(w, err)
	var running sync.WaitGroup
	running.Go(func() {
		question := make([]byte, 1<<16)
		for {
			size, from, err := socket.ReadFrom(question)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				w.Error(err)
				return
			}
			if reply := answer(question[:size], from); reply != nil {
				if _, err := socket.WriteTo(reply, from); err != nil {
					w.Error(err)
				}
			}
		}
	})
	w.Cleanup(func() {
		check(w, socket.Close())
		running.Wait()
	})
}

// datagramClient is a socket that talks to a node port on the loopback address.
type datagramClient struct {
	*world
	conn net.Conn
}

func (w *world) datagramClient(port uint16) *datagramClient {
	w.Helper()
	conn, err := w.node.DialContext(w.Context(), "udp", w.listen(port).String())
	check(w, err)
	w.Cleanup(func() { check(w, conn.Close()) })
	check(w, conn.SetDeadline(time.Now().Add(patience)))
	return &datagramClient{w, conn}
}

func (c *datagramClient) send(question string) {
	c.Helper()
	_, err := c.conn.Write([]byte(question))
	check(c, err)
}

// ask sends a datagram and returns the next one that arrives.
func (c *datagramClient) ask(question string) string {
	c.Helper()
	c.send(question)
	reply := make([]byte, 1<<16)
	size, err := c.conn.Read(reply)
	check(c, err)
	return string(reply[:size])
}

// whoAsks answers with the address of its client: one per session.
func whoAsks(_ []byte, from net.Addr) []byte { return []byte(from.String()) }

// TestKernelUDP_AnswersReachTheirClients: each of many clients has its own session and gets the answers to its own
// datagrams.
func TestKernelUDP_AnswersReachTheirClients(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		w.datagramServer(netip.AddrPortFrom(w.own(), nodePort), func(question []byte, from net.Addr) []byte {
			return fmt.Appendf(nil, "%s to %s", question, from)
		})
		w.forward(service.UDP)
		const clients, questions = 20, 20
		var asking sync.WaitGroup
		for n := range clients {
			c := w.datagramClient(nodePort)
			asking.Go(func() {
				from := ""
				for q := range questions {
					question := fmt.Sprintf("question %d of client %d", q, n)
					reply := c.ask(question)
					session, found := bytes.CutPrefix([]byte(reply), []byte(question+" to "))
					if from == "" {
						from = string(session)
					}
					if !found || string(session) != from {
						w.Errorf("%q was answered by %q, want the session %s", question, reply, from)
					}
				}
			})
		}
		asking.Wait()
		if s := w.writer.Stats(); s.Sessions.Load() != clients || s.SessionsOpened.Load() != clients || s.DatagramsDropped.Load() != 0 {
			w.Errorf("counted %+v", s)
		}
	})
}

// TestKernelUDP_CarriesEverySize: datagrams of every size pass both ways, from an empty one to the largest that the
// family allows.
func TestKernelUDP_CarriesEverySize(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		w.datagramServer(netip.AddrPortFrom(w.own(), nodePort), func(question []byte, _ net.Addr) []byte { return question })
		w.forward(service.UDP)
		c := w.datagramClient(nodePort)
		most := map[service.Family]int{service.IPv4: 65507, service.IPv6: 65527}[w.family]
		total := uint64(0)
		for _, size := range []int{0, 1, 1472, most} {
			sent := make([]byte, size)
			rand.Read(sent)
			if got := c.ask(string(sent)); got != string(sent) {
				w.Errorf("%d bytes came back of %d, or others", len(got), size)
			}
			total += uint64(size)
		}
		w.await("all is counted", func() bool {
			s := w.writer.Stats()
			return s.Bytes.ToTargets.Load() == total && s.Bytes.ToClients.Load() == total
		})
	})
}

// TestKernelUDP_SessionsExpire: a session without traffic expires (see TestSession_Expiry in package relay).
func TestKernelUDP_SessionsExpire(t *testing.T) {
	const unreplied = 200 * time.Millisecond
	w := newWorld(t, service.IPv4, localport.Config{Unreplied: unreplied, Replied: time.Hour})
	w.datagramServer(netip.AddrPortFrom(w.own(), nodePort), whoAsks)
	w.forward(service.UDP)
	began := time.Now()
	w.datagramClient(nodePort).ask("?")
	w.await("the session expires", func() bool {
		s := w.writer.Stats()
		return s.SessionsOpened.Load() == 1 && s.Sessions.Load() == 0
	})
	if took := time.Since(began); took < unreplied {
		t.Errorf("expired after %v, want %v", took, unreplied)
	}
}

// TestKernelUDP_SessionLimitReached: at the limit of a listener or of all listeners, a new session replaces the one
// that was silent longest.
func TestKernelUDP_SessionLimitReached(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{Sessions: 3, SessionsPerListener: 2})
	target := netip.AddrPortFrom(w.own(), nodePort)
	w.datagramServer(target, whoAsks)
	w.write(w.want(w.listener(service.UDP, nodePort, target)), w.want(w.listener(service.UDP, 30081, target)),
		w.want(w.listener(service.UDP, 30082, target)))
	a, b, c := w.datagramClient(nodePort), w.datagramClient(nodePort), w.datagramClient(nodePort)
	asA, asB := a.ask("?"), b.ask("?")
	if a.ask("?") != asA {
		t.Error("a has got another session")
	}
	c.ask("?")
	if a.ask("?") != asA {
		t.Error("a has lost its session, and b was silent for longer")
	}
	if b.ask("?") == asB {
		t.Error("b has kept its session beyond the bound")
	}
	if s := w.writer.Stats(); s.Sessions.Load() != 2 || s.SessionsEvicted.Load() != 2 || s.SessionsOpened.Load() != 4 {
		t.Errorf("counted %+v", s)
	}

	// The bound of all listeners: the listener that has most loses one. None is without.
	d, e, f := w.datagramClient(30081), w.datagramClient(30081), w.datagramClient(30082)
	d.ask("?")
	e.ask("?")
	f.ask("?")
	if s := w.writer.Stats(); s.Sessions.Load() != 3 || s.SessionsEvicted.Load() != 4 || s.SessionsOpened.Load() != 7 || s.DatagramsDropped.Load() != 0 {
		t.Errorf("counted %+v", s)
	}
}

// TestKernelUDP_RefusalEndsSession: a session ends when its target refuses, and the next datagram begins a new session.
func TestKernelUDP_RefusalEndsSession(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		w.forward(service.UDP)
		c := w.datagramClient(nodePort)
		c.send("?")
		w.await("the refusal comes", func() bool { return w.writer.Stats().SessionsRefused.Load() == 1 })
		w.await("the session ends", func() bool { return w.writer.Stats().Sessions.Load() == 0 })
		w.datagramServer(netip.AddrPortFrom(w.own(), nodePort), whoAsks)
		c.ask("?")
		if s := w.writer.Stats(); s.SessionsOpened.Load() != 2 || s.Sessions.Load() != 1 {
			w.Errorf("counted %+v", s)
		}
	})
}

// TestKernelUDP_SessionsFollowTarget: the next datagram of a client follows a changed target, and the session ends with
// its listener.
func TestKernelUDP_SessionsFollowTarget(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		for _, own := range []netip.Addr{w.own(), w.second()} {
			w.datagramServer(netip.AddrPortFrom(own, nodePort), func([]byte, net.Addr) []byte { return []byte(own.String()) })
		}
		o := w.forward(service.UDP)
		c := w.datagramClient(nodePort)
		if got := c.ask("?"); got != w.own().String() {
			w.Errorf("answered by %s", got)
		}
		o.Body = "to " + netip.AddrPortFrom(w.second(), nodePort).String()
		w.write(w.want(o))
		if got := c.ask("?"); got != w.second().String() {
			w.Errorf("after the target has changed: answered by %s", got)
		}
		if s := w.writer.Stats(); s.Sessions.Load() != 1 || s.SessionsOpened.Load() != 2 {
			w.Errorf("counted %+v", s)
		}
		w.write(w.gone(o))
		w.await("the session ends with its listener", func() bool { return w.writer.Stats().Sessions.Load() == 0 })
	})
}
