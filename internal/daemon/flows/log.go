package flows

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

const (
	// linesMax bounds the lines of the flow log in a second, and serviceMax those of one Service.
	linesMax, serviceMax = 1000, 500
	// flushPause is how long a line waits at most.
	flushPause = 200 * time.Millisecond
	// again is the pause before a file is opened again after a failure.
	again = 10 * time.Second
)

// Log is the flow log: one line of JSON for each record.
type Log struct {
	// Path is the file; empty means Standard. It is opened again when another file is there, so that it may be
	// rotated.
	Path     string
	Standard io.Writer
	// Failed is told of each failure to write.
	Failed func(error)
}

// Omitted is a line of the log that tells how many records are missing before it.
type Omitted struct {
	Time    time.Time `json:"time"`
	Omitted uint64    `json:"omitted"`
}

// Write writes what the subscription gets until the context ends. A slow file holds nothing up: records are lost and
// counted.
func (l *Log) Write(ctx context.Context, from *Subscription) {
	var file *os.File
	to := bufio.NewWriter(l.Standard)
	defer func() { l.close(file, to) }()
	flush, second := time.NewTicker(flushPause), time.NewTicker(time.Second)
	defer flush.Stop()
	defer second.Stop()
	var retry time.Time
	lines, byService := 0, map[service.Key]int{}
	for {
		if l.Path != "" && file == nil && !time.Now().Before(retry) {
			var err error
			if file, err = os.OpenFile(l.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640); err != nil {
				l.Failed(err)
				file, retry = nil, time.Now().Add(again)
			} else {
				to.Reset(file)
			}
		}
		select {
		case <-ctx.Done():
			return
		case flow := <-from.C:
			key := flow.Service()
			if lines++; lines > linesMax || byService[key] >= serviceMax || l.Path != "" && file == nil {
				from.hub.loseOne(from)
				continue
			}
			byService[key]++
			put(to, &flow)
		case <-flush.C:
			if err := to.Flush(); err != nil {
				l.Failed(err)
				to.Reset(io.Discard)
				file, retry = drop(file), time.Now().Add(again)
			}
		case <-second.C:
			lines = 0
			clear(byService)
			if n := from.Lost(); n > 0 {
				put(to, &Omitted{time.Now().UTC(), n})
			}
			if file != nil && moved(file, l.Path) {
				l.close(file, to)
				file = nil
			}
		}
	}
}

func put(to io.Writer, line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic("flows: plain values that JSON cannot express: " + err.Error())
	}
	_, _ = to.Write(append(text, '\n')) // Flush returns the error
}

// close writes what still waits.
func (l *Log) close(file *os.File, to *bufio.Writer) {
	if err := to.Flush(); err != nil {
		l.Failed(err)
	}
	drop(file)
}

// drop closes a file and returns nil.
func drop(file *os.File) *os.File {
	if file != nil {
		_ = file.Close() // all is flushed, or lost
	}
	return nil
}

// moved reports whether another file, or none, is at a path.
func moved(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(path)
	return err != nil || !os.SameFile(open, there)
}

func (h *Hub) loseOne(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose(s, 1)
}
