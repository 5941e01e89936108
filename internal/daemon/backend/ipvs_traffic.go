package backend

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
)

// IPVSTraffic gives what the kernel has counted, by virtual server, from one list. It
// opens a socket of its own: nobody who serves waits for those who look.
func IPVSTraffic(ctx context.Context) (map[dataplane.Frontend]genl.Stats, error) {
	socket, err := genl.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be said over it
	return socket.Stats(ctx)
}
