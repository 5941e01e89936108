package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
)

// Where a proxy answers HTTP when nothing else is configured.
const (
	// HealthPort is open on every address of the node.
	HealthPort = 10256
	// MetricsAddress can be reached from the node itself only.
	MetricsAddress = "127.0.0.1:10249"
)

// Page is what an HTTP server answered.
type Page struct {
	Status int
	Header http.Header
	Body   string
}

// Get asks an HTTP server once from a host, on a connection of its own. An answer with any status is no
// error. The address in the URL must be a literal one.
func (h *Host) Get(ctx context.Context, url string) (Page, error) {
	client := http.Client{Transport: &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", h.Name(), err)
	}
	response, err := client.Do(request)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", h.Name(), err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end, or the error is told below
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %s: %w", h.Name(), url, err)
	}
	return Page{response.StatusCode, response.Header, string(body)}, nil
}

// URLs returns a path at a port of a host, once per family.
func (h *Host) URLs(port uint16, path string) []string {
	var urls []string
	for _, addr := range []netip.Addr{h.V4, h.V6} {
		urls = append(urls, "http://"+netip.AddrPortFrom(addr, port).String()+path)
	}
	return urls
}
