// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/service"
)

// TopKinds are the kinds of items that a TopList contains.
var TopKinds = []string{"services", "endpoints", "clients"}

// TopSortKeys returns the columns that a list of a kind can be sorted by; the first one is the default.
func TopSortKeys(kind string) []string {
	if kind == "clients" {
		return []string{"open", "bytes"} // nothing else is counted for clients
	}
	return []string{"connections", "bytes", "refused", "open"}
}

const (
	// TopDefault and TopMax are the number of items of a list by default and at most.
	TopDefault, TopMax = 20, 1000
	// staleMin is the age of the counters above which a table shows their age.
	staleMin = 2 * time.Second
	// TopSinceDefault is the default period, and TopSinceMax the longest.
	TopSinceDefault, TopSinceMax = time.Minute, 15 * time.Minute
)

// TopList lists the Services, endpoints or clients with the most traffic in a period.
type TopList struct {
	APIVersion string `json:"apiVersion"`
	// Kind is one of TopKinds.
	Kind string    `json:"of"`
	Now  time.Time `json:"now"`
	// From is the beginning of the period. It is later than requested if the proxy has no older counters.
	From time.Time `json:"from"`
	// To is when the proxy last read its counters: it spends 2% of its time on that, so To can be old on a busy node.
	To time.Time `json:"to"`
	// Counted tells which columns this proxy counts; the others are 0.
	Counted TopCounted `json:"counted"`
	Items   []TopItem  `json:"items"`
	// Omitted is the number of further items.
	Omitted int `json:"omitted"`
}

// TopCounted contains the columns of a TopList that are counted in this mode, with this configuration.
type TopCounted struct {
	Connections bool `json:"connections"`
	Refused     bool `json:"refused"`
	Bytes       bool `json:"bytes"`
	Open        bool `json:"open"`
}

// TopItem is the traffic of a Service, of one of its endpoints, or of one of its clients.
type TopItem struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Endpoint  string `json:"endpoint,omitempty"`
	Client    string `json:"client,omitempty"`
	// Connections are new connections in the period.
	Connections uint64 `json:"connections"`
	// Refused are rejected and dropped packets in the period.
	Refused uint64 `json:"refused"`
	// BytesIn go from clients to endpoints, BytesOut to clients, both in the period. JSON leaves them out if they are not
	// known.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Open are the open connections now.
	Open uint64 `json:"open"`
}

// TopQuery selects the items of a TopList.
type TopQuery struct {
	Kind            string
	Namespace, Name string // empty selects all
	By              string // one of TopSortKeys
	// Since is the length of the period. It does not apply to clients.
	Since time.Duration
	Limit int
}

// Check returns an error that names the wrong field. It sets defaults.
func (q *TopQuery) Check() error {
	keys := TopSortKeys(q.Kind)
	q.By, q.Since, q.Limit = cmp.Or(q.By, keys[0]), cmp.Or(q.Since, TopSinceDefault), cmp.Or(q.Limit, TopDefault)
	switch {
	case !slices.Contains(TopKinds, q.Kind):
		return fmt.Errorf("kind %q: must be %s", q.Kind, strings.Join(TopKinds, ", "))
	case !slices.Contains(keys, q.By):
		return fmt.Errorf("by %q: must be %s", q.By, strings.Join(keys, ", "))
	case q.Since < 0 || q.Since > TopSinceMax:
		return fmt.Errorf("since %s: must be at most %s", q.Since, TopSinceMax)
	case q.Limit < 0 || q.Limit > TopMax:
		return fmt.Errorf("limit %d: must be from 1 to %d", q.Limit, TopMax)
	}
	return nil
}

// Wants reports whether a Service is selected.
func (q *TopQuery) Wants(namespace, name string) bool {
	return (q.Namespace == "" || q.Namespace == namespace) && (q.Name == "" || q.Name == name)
}

func (q *TopQuery) values() url.Values {
	return url.Values{"namespace": {q.Namespace}, "name": {q.Name}, "by": {q.By}, "since": {q.Since.String()}, "limit": {strconv.Itoa(q.Limit)}}
}

func (h *handler) top(_ http.ResponseWriter, r *http.Request) (any, error) {
	values := r.URL.Query()
	q := TopQuery{Kind: r.PathValue("kind"), Namespace: values.Get("namespace"), Name: values.Get("name"), By: values.Get("by")}
	var err error
	if text := values.Get("since"); text != "" {
		if q.Since, err = time.ParseDuration(text); err != nil {
			return nil, failure{http.StatusBadRequest, fmt.Sprintf("since %q: must be a duration like 1m", text)}
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil {
			return nil, failure{http.StatusBadRequest, fmt.Sprintf("limit %q: must be a number", text)}
		}
	}
	if err := q.Check(); err != nil {
		return nil, failure{http.StatusBadRequest, err.Error()}
	}
	list, err := h.source.Top(r.Context(), q)
	if err != nil {
		return nil, h.failed(http.StatusNotFound, err)
	}
	list.APIVersion, list.Kind, list.Now = Version, q.Kind, time.Now().UTC()
	list.order(&q)
	return list, nil
}

// order sorts the items, the largest first, and leaves out those beyond the limit.
func (l *TopList) order(q *TopQuery) {
	if l.Items == nil {
		l.Items = []TopItem{}
	}
	value := map[string]func(*TopItem) uint64{
		"connections": func(i *TopItem) uint64 { return i.Connections },
		"bytes":       func(i *TopItem) uint64 { return i.BytesIn + i.BytesOut },
		"refused":     func(i *TopItem) uint64 { return i.Refused },
		"open":        func(i *TopItem) uint64 { return i.Open },
	}[q.By]
	slices.SortFunc(l.Items, func(a, b TopItem) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Client, b.Client))
	})
	if more := len(l.Items) - q.Limit; more > 0 {
		l.Items, l.Omitted = l.Items[:q.Limit], l.Omitted+more
	}
}

// MergeTop adds up the lists with which several proxies answered the same query. The period is from the earliest From
// to the earliest To.
func MergeTop(q *TopQuery, lists []*TopList) *TopList {
	all := &TopList{APIVersion: Version, Kind: q.Kind, Now: time.Now().UTC()}
	all.From, all.To = all.Now, all.Now
	sums := map[TopItem]*TopItem{}
	for _, l := range lists {
		for _, at := range []struct {
			all *time.Time
			of  time.Time
		}{{&all.From, l.From}, {&all.To, l.To}} {
			if mine := all.Now.Add(at.of.Sub(l.Now)); !at.of.IsZero() && mine.Before(*at.all) { // each by its own clock
				*at.all = mine
			}
		}
		c := &all.Counted
		c.Connections, c.Refused = c.Connections || l.Counted.Connections, c.Refused || l.Counted.Refused
		c.Bytes, c.Open = c.Bytes || l.Counted.Bytes, c.Open || l.Counted.Open
		for i := range l.Items {
			item := &l.Items[i]
			name := TopItem{Namespace: item.Namespace, Name: item.Name, Endpoint: item.Endpoint, Client: item.Client}
			sum := sums[name]
			if sum == nil {
				sum = &name
				sums[*sum] = sum
			}
			sum.Connections, sum.Refused, sum.Open = sum.Connections+item.Connections, sum.Refused+item.Refused, sum.Open+item.Open
			sum.BytesIn, sum.BytesOut = sum.BytesIn+item.BytesIn, sum.BytesOut+item.BytesOut
		}
	}
	for _, sum := range sums {
		all.Items = append(all.Items, *sum)
	}
	all.order(q)
	return all
}

// Top asks for the Services, endpoints or clients with the most traffic.
func (c *Client) Top(ctx context.Context, q *TopQuery) (*TopList, error) {
	return get[TopList](ctx, c, strings.Replace(PathTop, "{kind}", url.PathEscape(q.Kind), 1), q.values())
}

// None implements List.
func (l *TopList) None() string {
	if l.Kind == TopKinds[0] {
		return "No traffic of Services"
	}
	return "No traffic of " + l.Kind
}

// Print prints a table. A wide page has exact numbers of bytes.
func (l *TopList) Print(to *terminal.Page) {
	heads := []string{"NAMESPACE", "NAME"}
	if of := map[string]string{"endpoints": "ENDPOINT", "clients": "CLIENT"}[l.Kind]; of != "" {
		heads = append(heads, of)
	}
	t := terminal.NewTable(to, append(heads, "CONNECTIONS", "REFUSED", "BYTES IN", "BYTES OUT", "OPEN")...)
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	amount := size
	if to.Wide {
		amount = number
	}
	for i := range l.Items {
		item := &l.Items[i]
		cells := []string{item.Namespace, item.Name}
		if len(heads) > 2 {
			cells = append(cells, item.Endpoint+item.Client)
		}
		t.Row(append(cells, counted(number(item.Connections), l.Counted.Connections), counted(number(item.Refused), l.Counted.Refused),
			counted(amount(item.BytesIn), l.Counted.Bytes && item.bytesKnown()), counted(amount(item.BytesOut), l.Counted.Bytes && item.bytesKnown()), cmp.Or(counted(number(item.Open), l.Counted.Open), "-"))...)
	}
	t.End()
	var omitted string
	if l.Omitted > 0 {
		omitted = fmt.Sprintf("; %d more omitted", l.Omitted)
	}
	var until string
	if age := l.Now.Sub(l.To); !l.To.IsZero() && age > staleMin {
		until = fmt.Sprintf(" until %s ago", span(age))
	}
	to.Say("\nin the last %s%s%s\n", span(l.Now.Sub(l.From)), until, omitted)
}

// bytesKnown reports whether the bytes are those of the connections. Connections that begin and end between two
// readings of the connection table are counted, and their bytes are not.
func (i *TopItem) bytesKnown() bool { return i.BytesIn+i.BytesOut > 0 || i.Connections+i.Open == 0 }

// MarshalJSON leaves out bytes that are not known.
func (i TopItem) MarshalJSON() ([]byte, error) {
	type plain TopItem
	made := struct {
		plain
		BytesIn  *uint64 `json:"bytesIn,omitempty"`
		BytesOut *uint64 `json:"bytesOut,omitempty"`
	}{plain: plain(i)}
	if i.bytesKnown() {
		made.BytesIn, made.BytesOut = &i.BytesIn, &i.BytesOut
	}
	return json.Marshal(made)
}

// counted returns a cell, which is empty if its column is not counted.
func counted(text string, is bool) string {
	if !is {
		return ""
	}
	return text
}

// History has the traffic of the last 15 minutes, of all Services together or of one, the oldest step first.
type History struct {
	APIVersion string        `json:"apiVersion"`
	Now        time.Time     `json:"now"`
	Counted    TopCounted    `json:"counted"`
	Steps      []HistoryStep `json:"steps"`
}

// HistoryStep has what was counted between two times. Its fields are those of TopItem.
type HistoryStep struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Connections uint64    `json:"connections"`
	Refused     uint64    `json:"refused"`
	BytesIn     uint64    `json:"bytesIn"`
	BytesOut    uint64    `json:"bytesOut"`
}

// history answers for the Service in the parameters namespace and name, or for all Services.
func (h *handler) history(_ http.ResponseWriter, r *http.Request) (any, error) {
	var of *service.Key
	if key := (service.Key{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}); key.Name != "" {
		of = &key
	}
	made, err := h.source.History(r.Context(), of)
	if err != nil {
		return nil, failure{http.StatusNotFound, err.Error()}
	}
	if made.Steps == nil {
		made.Steps = []HistoryStep{}
	}
	made.APIVersion, made.Now = Version, time.Now().UTC()
	return made, nil
}
