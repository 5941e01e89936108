// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// listWriter writes a list item by item, so that a long one is never in memory as a whole.
type listWriter struct {
	to    http.ResponseWriter
	out   *bufio.Writer
	items int
}

// begin writes everything up to the first item.
func (l *listWriter) begin() {
	text := bytes.TrimSuffix(marshal(ServiceList{APIVersion: Version, Now: time.Now().UTC(), Items: []Service{}}), []byte("]}"))
	l.to.Header().Set("Content-Type", "application/json")
	l.out = bufio.NewWriterSize(l.to, 64<<10)
	_, _ = l.out.Write(text) // the buffer remembers its first error
}

// item writes one item. It reports false once the client disconnected.
func (l *listWriter) item(s any) bool {
	if l.items++; l.items > 1 {
		_ = l.out.WriteByte(',')
	}
	_, err := l.out.Write(marshal(s))
	return err == nil
}

func (l *listWriter) end() {
	_, _ = l.out.WriteString("]}\n")
	_ = l.out.Flush() // an error means that the client has gone
}

// ofAll answers a query about each Service of a namespace, or of all. It omits a Service that was deleted meanwhile.
func ofAll[T any](h *handler, ask func(context.Context, service.Key) *T) answerFunc {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		namespace, list := r.URL.Query().Get("namespace"), listWriter{to: w}
		list.begin()
		for _, key := range h.source.Keys() {
			if namespace != "" && key.Namespace != namespace {
				continue
			}
			if one := ask(r.Context(), key); one != nil && !list.item(h.shown(one)) {
				return nil, nil
			}
		}
		list.end()
		return nil, nil
	}
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("inspect: plain values that JSON cannot express: %v", err))
	}
	return text
}
