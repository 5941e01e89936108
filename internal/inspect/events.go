package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sluice-proxy/sluice/internal/plural"
)

// EventList is what the proxy reported about Services and the node since the process began, the oldest first. The
// proxy remembers a bounded number, and needs no API server for it.
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

// Events asks for the events of a namespace; empty means all, and those of the node.
func (c *Client) Events(ctx context.Context, namespace string) (*EventList, error) {
	return get[EventList](ctx, c, PathEvents, map[string][]string{"namespace": {namespace}})
}

// None implements List.
func (l *EventList) None() string { return "No events" }

// Print prints a table.
func (l *EventList) Print(to io.Writer) error {
	t := newTable(to, "NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	for _, e := range l.Items {
		t.row(cmp.Or(e.Namespace, "-"), age(l.Now, e.Time), e.Type, e.Reason, e.About+"/"+e.Object, oneLine(e.Note))
	}
	if err := t.end(); err != nil || l.Omitted == 0 {
		return err
	}
	_, err := fmt.Fprintf(to, "Forgotten: %s\n", plural.Of(l.Omitted, "older event"))
	return err
}
