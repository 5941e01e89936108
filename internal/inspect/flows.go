// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// FlowQuery selects records of connections. An empty field selects all.
type FlowQuery struct {
	Namespace, Name string
	Client          netip.Prefix
	Verdicts        []traffic.Verdict
}

// FlowEvent is one line of a stream: a record, or how many records are missing.
type FlowEvent struct {
	traffic.Flow
	Omitted uint64 `json:"omitted,omitempty"`
}

// writeTime bounds one write of a stream: a client that does not read is disconnected.
const writeTime = 10 * time.Second

// ParseFlowQuery reads filters as people write them. An error begins with the name of the filter.
func ParseFlowQuery(client string, verdicts []string) (q FlowQuery, err error) {
	if client != "" {
		if q.Client, err = netip.ParsePrefix(client); err != nil {
			addr, err := netip.ParseAddr(client)
			if err != nil {
				return q, fmt.Errorf("client %q: must be an address or a network, such as 10.0.0.1 or 10.0.0.0/8", client)
			}
			q.Client = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		}
	}
	for _, text := range verdicts {
		v := traffic.Verdict(strings.TrimSpace(text))
		if !slices.Contains(traffic.Verdicts, v) {
			return q, fmt.Errorf("verdict %q: must be closed, refused or dropped", text)
		}
		q.Verdicts = append(q.Verdicts, v)
	}
	return q, nil
}

func (q *FlowQuery) values() url.Values {
	v := url.Values{"namespace": {q.Namespace}, "name": {q.Name}}
	if q.Client.IsValid() {
		v.Set("client", q.Client.String())
	}
	for _, verdict := range q.Verdicts {
		v.Add("verdict", string(verdict))
	}
	return v
}

// flows streams records as lines of JSON until the client disconnects. The first line is empty: it means that from now
// on, no record is missed.
func (h *handler) flows(w http.ResponseWriter, r *http.Request) (any, error) {
	values := r.URL.Query()
	q, err := ParseFlowQuery(values.Get("client"), values["verdict"])
	if err != nil {
		return nil, failure{http.StatusBadRequest, err.Error()}
	}
	q.Namespace, q.Name = values.Get("namespace"), values.Get("name")
	begun, control := false, http.NewResponseController(w)
	err = h.source.Observe(r.Context(), q, func(e *FlowEvent) error {
		line := []byte("\n")
		if e != nil {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = append(text, '\n')
		}
		begun = true
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // httptest.ResponseRecorder has none
		if _, err := w.Write(line); err != nil {
			return err
		}
		return control.Flush()
	})
	if err != nil && !begun {
		return nil, failure{http.StatusServiceUnavailable, err.Error()}
	}
	return nil, nil
}

// Observe calls ready once no record is missed, and then each for every record. When the context ends, it returns nil.
func (c *Client) Observe(ctx context.Context, q FlowQuery, ready func(), each func(*FlowEvent) error) error {
	answer, err := c.ask(ctx, PathFlows, q.values())
	if err != nil {
		return err
	}
	defer answer.Body.Close() // it ends with the context
	ready()
	for lines := json.NewDecoder(answer.Body); ; {
		var e FlowEvent
		switch err := lines.Decode(&e); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the proxy ended the stream")
		case err != nil:
			return fmt.Errorf("the proxy ended the stream: %w", err)
		}
		if err := each(&e); err != nil {
			return err
		}
	}
}

// flowColumns are the widths of the columns of a stream, whose rows are printed one by one.
const flowColumns = "%-12s  %-8s  %-24s  %-21s  %-21s  %-21s  %9s  %9s  %8s  %s\n"

// PrintFlowHeads prints the headers of the columns.
func PrintFlowHeads(to *terminal.Page) {
	to.Say(flowColumns, "TIME", "VERDICT", "SERVICE", "CLIENT", "FRONTEND", "ENDPOINT", "BYTES IN", "BYTES OUT", "LASTED", "REASON")
}

// Print prints a row. A wide page has exact numbers of bytes.
func (e *FlowEvent) Print(to *terminal.Page) {
	if e.Omitted > 0 {
		to.Say("%d or more records are missing\n", e.Omitted)
		return
	}
	bytes := func(n uint64) string {
		switch {
		case !e.Counted:
			return "-"
		case to.Wide:
			return fmt.Sprint(n)
		default:
			return size(n)
		}
	}
	endpoint, lasted := "-", "-"
	if e.Endpoint.IsValid() {
		endpoint = e.Endpoint.String()
	}
	if !e.Start.IsZero() && !e.End.IsZero() {
		lasted = span(e.End.Sub(e.Start))
	}
	reason := e.Reason
	if e.Attempts > 1 {
		reason += fmt.Sprintf(" (%d packets)", e.Attempts)
	}
	to.Say(flowColumns, e.Time.Local().Format("15:04:05.000"), e.Verdict, e.Namespace+"/"+e.Name,
		e.Client, fmt.Sprintf("%s/%s", e.Frontend, e.Protocol), endpoint, bytes(e.BytesIn), bytes(e.BytesOut), lasted, cmp.Or(reason, "-"))
}
