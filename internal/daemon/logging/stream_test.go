// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// newPipe returns a stream that ends in a pipe, and the other end.
func newPipe(t *testing.T) (*stream, *os.File) {
	r, w, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return &stream{file: w}, r
}

// TestPipe_WithoutReader: a pipe without a reader delays neither a logger nor the end of the process. Queued lines, and
// the error with which the process ends, are written if a reader appears.
func TestPipe_WithoutReader(t *testing.T) {
	to, pipe := newPipe(t)
	opened, err := newOutput(config.Log{Level: "info", Format: "json"}, streams{to, to})
	check(t, err)
	out := &switchable{}
	out.set(opened)
	log := zap.New(&logCore{out: out})
	const actors, each = 10, 100
	long := zap.String("stack", strings.Repeat("x", 10_000))
	var working sync.WaitGroup
	for range actors {
		working.Go(func() {
			for range each {
				log.Info("a line", long)
			}
		})
	}
	working.Wait()
	dropped := int(to.dropped.Load())
	if dropped == 0 || to.size > waitingMax {
		t.Errorf("%d lines dropped, %d bytes wait; want at most %d", dropped, to.size, waitingMax)
	}

	printError(to, config.FormatJSON, errors.New("no way"))
	check(t, log.Sync())
	read := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(pipe)
		read <- all
	}()
	check(t, to.Sync())
	check(t, to.file.Close())
	lines := bytes.Split(bytes.TrimSpace(<-read), []byte("\n"))
	if len(lines) != actors*each-dropped+1 {
		t.Errorf("%d lines came out of %d, and %d were dropped", len(lines)-1, actors*each, dropped)
	}
	if end := lines[len(lines)-1]; !bytes.HasSuffix(end, []byte(`"msg":"ended with an error","err":"no way"}`)) {
		t.Errorf("the last line is %s", end)
	}
}

// TestPipe_WithReader: a reader of the pipe gets every line, whole and in order.
func TestPipe_WithReader(t *testing.T) {
	to, pipe := newPipe(t)
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(pipe)
		read <- string(all)
	}()
	var want strings.Builder
	for i := range 20_000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		_, err := to.Write([]byte(line))
		check(t, err)
	}
	check(t, to.Sync())
	check(t, to.file.Close())
	if got := <-read; got != want.String() || to.dropped.Load() != 0 {
		t.Errorf("%d bytes of %d came out, %d lines were dropped", len(got), want.Len(), to.dropped.Load())
	}
}
