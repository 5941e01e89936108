package inspect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// listWriter writes a ServiceList item by item.
type listWriter struct {
	to    http.ResponseWriter
	out   *bufio.Writer
	items int
}

// begin writes everything up to the first item.
func (l *listWriter) begin(empty ServiceList) {
	empty.Items = []Service{}
	text := bytes.TrimSuffix(marshal(empty), []byte("]}"))
	l.to.Header().Set("Content-Type", "application/json")
	l.out = bufio.NewWriterSize(l.to, 64<<10)
	_, _ = l.out.Write(text) // the buffer remembers its first error
}

// item writes one item. It reports false once the client has gone.
func (l *listWriter) item(s *Service) bool {
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

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("inspect: plain values that JSON cannot express: %v", err))
	}
	return text
}
