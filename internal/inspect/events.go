// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// EventList contains the events about Services and the node since the process began, the oldest first. The proxy keeps
// a bounded number of them in memory, so that it needs no API server to list them.
type EventList struct {
	APIVersion string    `json:"apiVersion"`
	Now        time.Time `json:"now"`
	Items      []Event   `json:"items"`
	// Omitted is the number of older events that are forgotten.
	Omitted uint64 `json:"omitted,omitempty"`
}

func (h *handler) events(_ http.ResponseWriter, r *http.Request) (any, error) {
	list := h.source.Events()
	list.APIVersion, list.Now = Version, time.Now().UTC()
	wanted, kept := r.URL.Query().Get("namespace"), []Event{}
	for _, e := range list.Items {
		if wanted == "" || e.Namespace == wanted {
			kept = append(kept, e)
		}
	}
	list.Items = kept
	return list, nil
}

// Events asks for the events of a namespace; empty means all namespaces and the node.
func (c *Client) Events(ctx context.Context, namespace string) (*EventList, error) {
	return get[EventList](ctx, c, PathEvents, map[string][]string{"namespace": {namespace}})
}

// None implements List.
func (l *EventList) None() string { return "No events" }

// Print prints a table.
func (l *EventList) Print(to *terminal.Page) {
	t := terminal.NewTable(to, "NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	for _, e := range l.Items {
		t.Row(cmp.Or(e.Namespace, "-"), Age(l.Now, e.Time), e.Type, e.Reason, e.About+"/"+e.Object, OneLine(e.Note))
	}
	t.End()
	if l.Omitted > 0 {
		to.Say("Forgotten: %s\n", plural.Of(l.Omitted, "older event"))
	}
}
