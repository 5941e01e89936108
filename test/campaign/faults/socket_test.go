// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"sync"

	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// socket is a connection to nf_tables whose sending can be made to fail.
type socket struct {
	*wire.Socket
	gate *socketGate
}

var _ nftkernel.Socket = (*socket)(nil)

// socketGate decides which transactions of a domain reach the kernel.
type socketGate struct {
	mu sync.Mutex
	// decide is called before each transaction. If it returns an error, the kernel does not take
	// the transaction. Nil lets all pass.
	decide func() error
}

// open is for nftkernel.WriterConfig.
func (b *socketGate) open() (nftkernel.Socket, error) {
	s, err := wire.Open()
	if err != nil {
		return nil, err
	}
	return &socket{s, b}, nil
}

// set changes the decision.
func (b *socketGate) set(decide func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decide = decide
}

// Commit implements nftkernel.Socket.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	s.gate.mu.Lock()
	decide := s.gate.decide
	s.gate.mu.Unlock()
	if decide != nil {
		if err := decide(); err != nil {
			return nil, &netlink.NotSentError{Err: err}
		}
	}
	return s.Socket.Commit(t)
}
