// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// ConnectionList is a page of the connections that the proxy forwards itself (mode userspace), the
// oldest first, or of those that the kernel translates (other modes), in any order.
type ConnectionList struct {
	APIVersion string       `json:"apiVersion"`
	Now        time.Time    `json:"now"`
	Items      []Connection `json:"items"`
	// Continue is the parameter for the next page; 0 after the last one.
	Continue uint64 `json:"continue,omitempty"`
}

// Connection is an open TCP connection or UDP session.
type Connection struct {
	// Number increases with each connection that the process forwards. The kernel numbers its connections arbitrarily.
	Number    uint64 `json:"number"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	PortName  string `json:"portName,omitempty"`
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	// Client connected to Frontend, and Endpoint gets the connection.
	Client   netip.AddrPort `json:"client"`
	Frontend netip.AddrPort `json:"frontend"`
	Endpoint netip.AddrPort `json:"endpoint"`
	// ToEndpoint and ToClient are bytes: of payload, or, for a tracked connection that is accounted, of packets with
	// headers. Began is zero for a tracked connection without a timestamp (net.netfilter.nf_conntrack_timestamp).
	ToEndpoint uint64    `json:"toEndpoint"`
	ToClient   uint64    `json:"toClient"`
	Began      time.Time `json:"began,omitzero"`
	// Tracked describes a connection that the kernel translates; nil for others.
	Tracked *Tracked `json:"tracked,omitempty"`
}

// Tracked is an entry of conntrack.
type Tracked struct {
	// State is the state of a TCP connection; empty for other protocols and while the connection is offloaded.
	State string `json:"state,omitempty"`
	// Offloaded is set while packets of the connection bypass netfilter.
	Offloaded bool `json:"offloaded"`
	// Accounted is set if the kernel counts the bytes of the connection.
	Accounted bool `json:"accounted"`
}

// ConnectionsMax bounds a page.
const ConnectionsMax = 1000

// ConnectionQuery selects connections. An empty field selects all.
type ConnectionQuery struct {
	Namespace, Name string
	Protocol        string
	// Client and Endpoint are texts of addresses, each with or without a port.
	Client, Endpoint string
}

// Values returns the query as parameters of a URL.
func (q *ConnectionQuery) Values() url.Values {
	values := url.Values{}
	for name, field := range q.fields() {
		if *field != "" {
			values.Set(name, *field)
		}
	}
	return values
}

func (q *ConnectionQuery) fields() map[string]*string {
	return map[string]*string{"namespace": &q.Namespace, "name": &q.Name, "protocol": &q.Protocol, "client": &q.Client, "endpoint": &q.Endpoint}
}

// Check returns an error if a field is invalid.
func (q *ConnectionQuery) Check() error {
	if q.Protocol != "" && q.Protocol != "tcp" && q.Protocol != "udp" {
		return fmt.Errorf("protocol %q: must be tcp or udp", q.Protocol)
	}
	for _, one := range []struct{ name, text string }{{"client", q.Client}, {"endpoint", q.Endpoint}} {
		if _, err := addressIn(one.text); err != nil {
			return fmt.Errorf("%s %q: must be an address like 10.0.0.1, 10.0.0.1:80 or [fd00::1]:80", one.name, one.text)
		}
	}
	return nil
}

// addressIn parses an address with or without a port; without one, the port is 0.
func addressIn(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, 0), nil
	}
	return netip.ParseAddrPort(text)
}

// Wants returns a function that reports whether a connection is selected. The caller has called Check.
func (q *ConnectionQuery) Wants() func(*Connection) bool {
	client, _ := addressIn(q.Client) // Check returned the error
	endpoint, _ := addressIn(q.Endpoint)
	is := func(at, wanted netip.AddrPort) bool {
		return !wanted.IsValid() || at.Addr() == wanted.Addr() && (wanted.Port() == 0 || at.Port() == wanted.Port())
	}
	return func(c *Connection) bool {
		return (q.Namespace == "" || c.Namespace == q.Namespace) && (q.Name == "" || c.Name == q.Name) &&
			(q.Protocol == "" || c.Protocol == q.Protocol) && is(c.Client, client) && is(c.Endpoint, endpoint)
	}
}

// connections answers with one page.
func (h *handler) connections(_ http.ResponseWriter, r *http.Request) (any, error) {
	var q ConnectionQuery
	values := r.URL.Query()
	for name, field := range q.fields() {
		*field = values.Get(name)
	}
	if err := q.Check(); err != nil {
		return nil, failure{http.StatusBadRequest, err.Error()}
	}
	above, most := uint64(0), uint64(ConnectionsMax)
	for name, field := range map[string]*uint64{"continue": &above, "limit": &most} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *field, err = strconv.ParseUint(text, 10, 63); err != nil {
			return nil, failure{http.StatusBadRequest, fmt.Sprintf("%s %q: must be a number", name, text)}
		}
	}
	found, more, err := h.source.Connections(above, int(max(1, min(most, ConnectionsMax))), q.Wants())
	if err != nil {
		return nil, failure{http.StatusNotFound, err.Error()}
	}
	list := &ConnectionList{APIVersion: Version, Now: time.Now().UTC(), Items: found}
	if list.Items == nil {
		list.Items = []Connection{}
	}
	if more {
		list.Continue = found[len(found)-1].Number
	}
	return list, nil
}

// None implements List.
func (l *ConnectionList) None() string { return "No connections" }

// Print prints a table. Its last columns depend on whether the kernel translates the connections and counts their
// bytes.
func (l *ConnectionList) Print(to *terminal.Page) {
	tracked := len(l.Items) > 0 && l.Items[0].Tracked != nil
	counted := func(c Connection) bool { return c.Tracked == nil || c.Tracked.Accounted }
	t, bytes := terminal.NewTable(to, "PROTOCOL", "CLIENT", "SERVICE", "FRONTEND", "ENDPOINT"), !tracked || slices.ContainsFunc(l.Items, counted)
	if tracked {
		t.Heads = append(t.Heads, "STATE")
	}
	if bytes {
		t.Heads = append(t.Heads, "TO ENDPOINT", "TO CLIENT")
	}
	if !tracked {
		t.Heads = append(t.Heads, "AGE")
	}
	for _, c := range l.Items {
		cells := []string{c.Protocol, c.Client.String(), c.of(), c.Frontend.String(), c.Endpoint.String()}
		if c.Tracked != nil && c.Tracked.Offloaded {
			cells = append(cells, "offloaded")
		} else if c.Tracked != nil {
			cells = append(cells, cmp.Or(c.Tracked.State, "-"))
		}
		if bytes && counted(c) {
			cells = append(cells, size(c.ToEndpoint), size(c.ToClient))
		} else if bytes {
			cells = append(cells, "-", "-")
		}
		if c.Tracked == nil {
			cells = append(cells, Age(l.Now, c.Began))
		}
		t.Row(cells...)
	}
	t.End()
}

// of names the Service port.
func (c *Connection) of() string {
	return strings.TrimSuffix(c.Namespace+"/"+c.Name+":"+c.PortName, ":")
}

// size returns a number of bytes with a unit that suits it.
func size(n uint64) string {
	if n < 10_000 {
		return strconv.FormatUint(n, 10)
	}
	value, unit := float64(n), 0
	for value >= 1000 && unit < 4 {
		value, unit = value/1000, unit+1
	}
	return fmt.Sprintf("%.1f%s", value, [...]string{"", "k", "M", "G", "T"}[unit])
}
