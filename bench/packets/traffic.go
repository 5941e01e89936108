// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// payload is the size of every message.
const payload = 64

// traffic is what a case does over and over again.
type traffic interface {
	// turn exchanges something with every target, and returns how often. An error means that a
	// packet was lost or that something else answered than should.
	turn() (int, error)
	end()
}

// scene is where traffic takes place: the client's thread, the pods' sockets, and the targets.
type scene struct {
	server  server
	targets []target
	body    []byte
}

// check visits every target. Those that are sticky have to be so.
func (s *scene) check() error {
	for _, t := range s.targets {
		pod, err := t.visit(s.server)
		if err != nil {
			return err
		}
		if !t.sticky {
			continue
		}
		again, err := t.visit(s.server)
		if err == nil && again != pod {
			err = fmt.Errorf("%s has affinity and is answered by %s and by %s", t.at, pod, again)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// established sends a request and an answer on open connections.
type established struct {
	*scene
	clients, peers []int
}

func beginEstablished(s *scene) (traffic, error) {
	e := &established{scene: s}
	for _, t := range s.targets {
		client, err := dial(t.raw, unix.SOCK_STREAM)
		if err != nil {
			return e, err
		}
		e.clients = append(e.clients, client)
		peer, err := accept(s.server.listener)
		if err != nil {
			return e, err
		}
		e.peers = append(e.peers, peer)
		for _, fd := range []int{client, peer} {
			err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			if err = errors.Join(err, failed("set timeout", setTimeout(fd, unix.SO_RCVTIMEO))); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

func (e *established) turn() (int, error) {
	for i, client := range e.clients {
		if err := send(client, e.body); err != nil {
			return 0, err
		}
		if err := receive(e.peers[i], e.body); err != nil {
			return 0, err
		}
		if err := send(e.peers[i], e.body); err != nil {
			return 0, err
		}
		if err := receive(client, e.body); err != nil {
			return 0, err
		}
	}
	return len(e.clients), nil
}

func (e *established) end() {
	for _, fd := range e.clients {
		_ = reset(fd)
	}
	closeAll(e.peers...)
}

// oneWay sends datagrams without responses, so that their flows stay new. (The visits before had
// other flows.)
type oneWay struct {
	*scene
	clients []int
}

func beginOneWay(s *scene) (traffic, error) {
	o := &oneWay{scene: s}
	for _, t := range s.targets {
		client, err := dial(t.raw, unix.SOCK_DGRAM)
		if err != nil {
			return o, err
		}
		o.clients = append(o.clients, client)
	}
	return o, nil
}

func (o *oneWay) turn() (int, error) {
	for _, client := range o.clients {
		if err := send(client, o.body); err != nil {
			return 0, err
		}
	}
	for range o.clients {
		if err := receive(o.server.datagrams, o.body); err != nil {
			return 0, err
		}
	}
	return len(o.clients), nil
}

func (o *oneWay) end() { closeAll(o.clients...) }

// connections opens a connection to each target, takes it, and resets it.
type connections struct{ *scene }

func beginConnections(s *scene) (traffic, error) { return connections{s}, nil }

func (c connections) turn() (int, error) {
	for i := range c.targets {
		client, err := dial(c.targets[i].raw, unix.SOCK_STREAM)
		if err != nil {
			return 0, err
		}
		peer, err := accept(c.server.listener)
		if err != nil {
			closeAll(client)
			return 0, err
		}
		err = reset(client)
		closeAll(peer)
		if err != nil {
			return 0, err
		}
	}
	return len(c.targets), nil
}

func (connections) end() {}

// questions opens a socket for each target, asks and is answered, as a resolver does.
type questions struct {
	*scene
	envelope *envelope
}

func beginQuestions(s *scene) (traffic, error) { return questions{s, newEnvelope(payload)}, nil }

func (q questions) turn() (int, error) {
	for i := range q.targets {
		if err := q.ask(q.targets[i].raw); err != nil {
			return 0, err
		}
	}
	return len(q.targets), nil
}

func (q questions) ask(to *address) error {
	client, err := dial(to, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	if err = send(client, q.body); err == nil {
		err = q.envelope.receive(q.server.datagrams)
	}
	if err == nil {
		err = q.envelope.answer(q.server.datagrams)
	}
	if err == nil {
		err = receive(client, q.body)
	}
	closeAll(client)
	return err
}

func (questions) end() {}
