package userspace

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
)

// LinesMax is for tests outside the package, as is Put, which logs connections.
const LinesMax = linesMax

func Put(l *AccessLog, times int) {
	for range times {
		l.put(&Open{Connection: &relay.Connection{Began: time.Now()}})
	}
}
