// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// linesMax bounds the lines of the flow log in a second, and serviceMax those of one Service.
	linesMax, serviceMax = 1000, 500
	// flushPause is how long a line waits at most, and flushBytes how much may wait.
	flushPause, flushBytes = 200 * time.Millisecond, 32 << 10
	// again is the pause before a log is tried again after a failure.
	again = 10 * time.Second
)

// Log is the flow log: one line of JSON for each record.
type Log struct {
	// Path is the file; empty or "-" means Standard. It is opened again when another file is there, so that it may be
	// rotated.
	Path     string
	Standard io.Writer
	// Failed is called after each failure to write.
	Failed func(error)
}

// Omitted is a line of the log that tells how many records are missing before it.
type Omitted struct {
	Time    time.Time `json:"time"`
	Omitted uint64    `json:"omitted"`
}

// logWriter writes a log. Its goroutine owns it.
type logWriter struct {
	*Log
	from *Subscription
	// out is nil while nothing can be written, until retry. It is file, or Standard.
	out   io.Writer
	file  *os.File
	retry time.Time
	// text are lines that wait, which contain a number of records. torn means that a failure cut the line before them.
	text    []byte
	records uint64
	torn    bool
	// lines are those of this second.
	lines     int
	byService map[service.Key]int
}

// Write writes the records of the subscription until the context ends, and then those that still wait. It blocks as
// long as the file does, during which records are lost and counted.
func (l *Log) Write(ctx context.Context, from *Subscription) {
	w := &logWriter{Log: l, from: from, byService: map[service.Key]int{}}
	w.open()
	flush, second := time.NewTicker(flushPause), time.NewTicker(time.Second)
	defer flush.Stop()
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			for range len(from.C) {
				w.add(<-from.C)
			}
			w.tell()
			w.flush()
			w.close()
			return
		case flow := <-from.C:
			w.add(flow)
		case <-flush.C:
			w.flush()
		case <-second.C:
			w.lines = 0
			clear(w.byService)
			w.tell()
			if w.file != nil && moved(w.file, w.Path) {
				w.flush()
				w.close()
			}
			w.open()
		}
	}
}

// open opens the log if it is not open, and reports whether it is open now. A pipe without a reader is a failure. A log
// that was closed begins with the number of missing records.
func (w *logWriter) open() bool {
	switch {
	case w.out != nil:
		return true
	case time.Now().Before(w.retry):
		return false
	case w.Path == "" || w.Path == "-":
		w.out = w.Standard
	default:
		file, err := os.OpenFile(w.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o640)
		if err != nil {
			w.fail(err)
			return false
		}
		w.file, w.out = file, file
	}
	w.tell()
	return true
}

// add adds a line, unless there are too many. Only written lines count, so that a Service with too many leaves room for
// others.
func (w *logWriter) add(flow traffic.Flow) {
	key := flow.Service()
	if w.lines >= linesMax || w.byService[key] >= serviceMax || !w.open() {
		w.lose(1)
		return
	}
	w.lines++
	w.byService[key]++
	w.records++
	w.put(&flow)
}

// tell adds a line about missing records. While nothing can be written, it keeps their number for later.
func (w *logWriter) tell() {
	if w.out == nil {
		return
	}
	if n := w.from.Lost(); n > 0 {
		w.put(&Omitted{time.Now().UTC(), n})
	}
}

func (w *logWriter) put(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic("flows: plain values that JSON cannot express: " + err.Error())
	}
	if w.torn {
		w.text, w.torn = append(w.text, '\n'), false
	}
	if w.text = append(append(w.text, text...), '\n'); len(w.text) >= flushBytes {
		w.flush()
	}
}

// flush writes the lines that wait. They are lost if that fails.
func (w *logWriter) flush() {
	if len(w.text) == 0 {
		return
	}
	if n, err := w.out.Write(w.text); err != nil {
		w.torn = n > 0 && w.text[n-1] != '\n'
		w.lose(w.records)
		w.fail(err)
	}
	w.text, w.records = w.text[:0], 0
}

// fail closes the log, for a while.
func (w *logWriter) fail(err error) {
	w.Failed(err)
	w.close()
	w.retry = time.Now().Add(again)
}

func (w *logWriter) close() {
	if w.file != nil {
		_ = w.file.Close() // all is written, or lost
	}
	w.file, w.out = nil, nil
}

func (w *logWriter) lose(count uint64) {
	h := w.from.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose(w.from, count)
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
