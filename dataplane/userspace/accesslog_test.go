package userspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
)

// end logs the ends of connections.
func end(l *AccessLog, times int) {
	for range times {
		l.put(&Open{Connection: &relay.Connection{Began: time.Now()}})
	}
}

// TestAccessLogIsBounded in the lines of a second. The rest is counted, and said once a minute.
func TestAccessLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 10_000
		lines, told, omitted := 0, 0, uint64(0)
		log := NewAccessLog(func(Ended) { lines++ }, func(n uint64) { told++; omitted += n })
		end(log, many)
		synctest.Wait()
		if lines != linesMax || told != 0 {
			t.Errorf("%d lines at once, want %d; told %d times", lines, linesMax, told)
		}
		time.Sleep(1500 * time.Millisecond)
		end(log, 10)
		time.Sleep(time.Minute)
		synctest.Wait()
		if lines != linesMax+10 || told != 1 || omitted != many-linesMax {
			t.Errorf("%d lines, %d omitted in %d lines; want %d, and %d in one", lines, omitted, told, linesMax+10, many-linesMax)
		}
		end(log, 3)
		log.Close()
		if lines != linesMax+13 {
			t.Errorf("%d lines after the end, want %d", lines, linesMax+13)
		}
	})
}

// TestAccessLogHoldsNobodyUp: not even if its lines cannot be written.
func TestAccessLogHoldsNobodyUp(t *testing.T) {
	moves := make(chan struct{})
	lines, omitted := 0, uint64(0)
	log := NewAccessLog(func(Ended) { <-moves; lines++ }, func(n uint64) { omitted += n })
	end(log, 3*waitingMax)
	close(moves)
	log.Close()
	if lines < 1 || uint64(lines)+omitted != 3*waitingMax || omitted < waitingMax {
		t.Errorf("%d lines, %d omitted", lines, omitted)
	}
}

// TestAccessLogRestsWithoutConnections: it has no goroutine to leave behind.
func TestAccessLogRestsWithoutConnections(t *testing.T) {
	synctest.Test(t, func(*testing.T) { NewAccessLog(nil, nil) })
	NewAccessLog(nil, nil).Close()
}
