// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

func TestTop(t *testing.T) {
	ctx, c := t.Context(), served(t, &stand{services: 50})
	for _, tt := range []struct {
		q           TopQuery
		first       string
		items, more int
	}{
		{TopQuery{Kind: "services"}, "s00049", 20, 30},
		{TopQuery{Kind: "endpoints", By: "refused", Limit: 60}, "s00000", 50, 0},
		{TopQuery{Kind: "clients", By: "open", Limit: 1}, "s00000", 1, 49}, // equal values: by name
		{TopQuery{Kind: "services", Namespace: "ns0"}, "s00024", 20, 5},
		{TopQuery{Kind: "services", Namespace: "ns0", Name: "s00003"}, "s00003", 1, 0},
	} {
		l, err := c.Top(ctx, &tt.q)
		if err != nil {
			t.Fatalf("%+v: %v", tt.q, err)
		}
		if len(l.Items) != tt.items || l.Omitted != tt.more || l.Items[0].Name != tt.first || l.Kind != tt.q.Kind || l.APIVersion != Version {
			t.Errorf("%+v: %d items and %d more, the first is %s; want %d, %d, %s", tt.q, len(l.Items), l.Omitted, l.Items[0].Name, tt.items, tt.more, tt.first)
		}
	}
	for want, q := range map[string]TopQuery{
		`kind "pods": must be services`:      {Kind: "pods"},
		`by "age": must be connections`:      {Kind: "services", By: "age"},
		`by "refused": must be open, bytes`:  {Kind: "clients", By: "refused"},
		"since 16m0s: must be at most 15m0s": {Kind: "services", Since: 16 * time.Minute},
		"limit 1001: must be from 1 to 1000": {Kind: "services", Limit: 1001},
	} {
		if _, err := c.Top(ctx, &q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
	failing := served(t, &stand{fail: errors.New("not counted in this mode")})
	if _, err := failing.Top(ctx, &TopQuery{Kind: "services"}); err == nil || err.Error() != "not counted in this mode" {
		t.Error(err)
	}
}

func TestHistory(t *testing.T) {
	ctx, c := t.Context(), served(t, &stand{services: 50})
	for name, want := range map[string]int{"": 50, "s00003": 1, "other": 0} {
		h, err := get[History](ctx, c, PathHistory, map[string][]string{"namespace": {"ns0"}, "name": {name}})
		if err != nil || len(h.Steps) != want || h.Steps == nil || h.APIVersion != Version {
			t.Errorf("%q: %+v, %v; want %d steps", name, h, err, want)
		}
	}
}

func TestTopList_Print(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	l := TopList{Kind: "endpoints", Now: now, From: now.Add(-time.Minute), To: now.Add(-10 * time.Second), Omitted: 3, Counted: TopCounted{Connections: true, Bytes: true}, Items: []TopItem{
		{Namespace: "shop", Name: "web", Endpoint: "10.244.1.21:8080", Connections: 1200, BytesIn: 12_000_000, BytesOut: 7, Refused: 5, Open: 5},
	}}
	var text terminal.Page
	l.Print(&text)
	const want = "NAMESPACE   NAME   ENDPOINT           CONNECTIONS   REFUSED   BYTES IN   BYTES OUT   OPEN\n" +
		"shop        web    10.244.1.21:8080   1200          -         12.0M      7           -\n" +
		"\nin the last 60s until 10s ago; 3 more omitted\n"
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	text = terminal.Page{Wide: true}
	if l.Print(&text); !strings.Contains(text.String(), " 12000000 ") {
		t.Errorf("the wide table is\n%s", text.String())
	}
	l.Items[0].BytesIn, l.Items[0].BytesOut = 0, 0
	text = terminal.Page{Wide: true}
	if l.Print(&text); !strings.Contains(text.String(), "1200          -         -          -           -\n") {
		t.Errorf("connections whose bytes were not counted:\n%s", text.String())
	}
}

// TestTopList_UnknownBytesNotInJSON: JSON omits unknown bytes, because 0 means that no bytes were sent.
func TestTopList_UnknownBytesNotInJSON(t *testing.T) {
	for item, known := range map[TopItem]bool{{Name: "a"}: true, {Name: "b", Connections: 3}: false, {Name: "c", Connections: 3, BytesIn: 7}: true} {
		text, err := json.Marshal(TopList{Items: []TopItem{item}})
		if err != nil || strings.Contains(string(text), `"bytesIn"`) != known || strings.Contains(string(text), `"bytesOut"`) != known || !strings.Contains(string(text), `"open":0`) {
			t.Errorf("%v: %s", err, text)
		}
		var back TopList
		if err := json.Unmarshal(text, &back); err != nil || back.Items[0] != item {
			t.Errorf("%v: %+v", err, back)
		}
	}
}
