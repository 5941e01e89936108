// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Recorder is a socket that records the statements of each transaction. Without a Socket, all transactions land.
type Recorder struct {
	Socket
	Sent []string
}

// Commit is for Socket.
func (r *Recorder) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	r.Sent = append(r.Sent, render.Statements(t.All()))
	if r.Socket == nil {
		return nil, nil
	}
	return r.Socket.Commit(t)
}
