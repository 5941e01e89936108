// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// HTTP requests. The text after = is a regular expression for the whole value. The keys on the path
// to a field of a JSON body name it, with dots in between; "body" is the whole body.
var _ = define("get", verb{
	usage:  `get [ipv4] x node:32000/any/path 200 service.name=svc1 localEndpoints=1 header:Content-Type=application/json body=(?s).*svc1.*, or get x node:32000 refused, or silence`,
	kernel: true, parse: parseGet,
})

// get is one request in each family, repeated until the wanted answer comes.
type get struct {
	family *service.Family
	client string
	target target
	path   string
	want   response
}

// response is what a request wants. If it must fail, status is 0 and fate says how.
type response struct {
	fate   fixture.Fate
	status int
	values []valueWanted
}

// valueWanted is a part of a response and the text that it must have.
type valueWanted struct {
	name    string
	pattern *regexp.Regexp
}

// received is a response.
type received struct {
	status int
	header http.Header
	body   []byte
}

func parseGet(words []string) (statement, error) {
	g := get{}
	if len(words) > 0 {
		if at := slices.Index([]string{"ipv4", "ipv6"}, words[0]); at >= 0 {
			g.family, words = &service.Families[at], words[1:]
		}
	}
	if len(words) < 3 {
		return nil, errors.New("want [ipv4|ipv6] CLIENT TARGET[/PATH] and refused, silence, or a status")
	}
	g.client = words[0]
	place, path, _ := strings.Cut(words[1], "/")
	g.path = "/" + path
	var err error
	if g.target, err = parseTarget(place); err != nil {
		return nil, err
	}
	if g.want, err = parseResponse(words[2:]); err != nil {
		return nil, err
	}
	return settled(g.run), nil
}

func parseResponse(words []string) (response, error) {
	switch words[0] {
	case "refused":
		return response{fate: fixture.Refused}, noMore(words[1:])
	case "silence":
		return response{fate: fixture.Silent}, noMore(words[1:])
	}
	var r response
	var err error
	if r.status, err = strconv.Atoi(words[0]); err != nil || r.status == 0 {
		return r, fmt.Errorf("%q: want refused, silence, or a status", words[0])
	}
	for _, word := range words[1:] {
		name, text, ok := strings.Cut(word, "=")
		if !ok {
			return r, fmt.Errorf("%q: want FIELD=VALUE, header:NAME=VALUE or body=VALUE", word)
		}
		pattern, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return r, err
		}
		r.values = append(r.values, valueWanted{name, pattern})
	}
	return r, nil
}

func noMore(words []string) error {
	if len(words) > 0 {
		return fmt.Errorf("%q: nothing more to see without an answer", strings.Join(words, " "))
	}
	return nil
}

func (g get) run(ctx context.Context, s *Stage, w *network.World) error {
	host, err := w.Host(g.client)
	if err != nil {
		return err
	}
	families := s.families
	if g.family != nil {
		families = []service.Family{*g.family}
	}
	var all errgroup.Group
	for _, family := range families {
		all.Go(func() error {
			at, err := g.target.resolve(s, family)
			if err != nil {
				return err
			}
			return hold(ctx, func() error { return g.once(ctx, host, at) })
		})
	}
	return all.Wait()
}

// once sends one request and compares the response.
func (g get) once(ctx context.Context, host *netns.Namespace, at netip.AddrPort) error {
	patience := askPatience
	if g.want.status == 0 && g.want.fate == fixture.Silent {
		patience = silencePatience
	}
	url := "http://" + at.String() + g.path
	got, fate, err := fetch(ctx, host, url, patience)
	switch {
	case err != nil:
		return err
	case fate != g.want.fate:
		return fmt.Errorf("GET %s from %s: got %v, want %v", url, g.client, describe(got, fate), g.want)
	case fate != fixture.Answered:
		return nil
	}
	if err := g.want.compare(got); err != nil {
		return fmt.Errorf("GET %s from %s: %w; got %v", url, g.client, err, describe(got, fate))
	}
	return nil
}

// fetch sends one request over a new connection and follows no redirection. Refusal and silence are
// fates, any other failure is an error.
func fetch(ctx context.Context, host *netns.Namespace, url string, patience time.Duration) (received, fixture.Fate, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return received{}, 0, err
	}
	transport := &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return received{}, fixture.Refused, nil
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return received{}, fixture.Silent, nil
	case err != nil:
		return received{}, 0, err
	}
	body, err := io.ReadAll(response.Body)
	return received{response.StatusCode, response.Header, body}, fixture.Answered, errors.Join(err, response.Body.Close())
}

// compare returns an error for the first part of a response that is not as wanted.
func (r response) compare(got received) error {
	if got.status != r.status {
		return fmt.Errorf("status %d, want %d", got.status, r.status)
	}
	for _, want := range r.values {
		text, err := got.value(want.name)
		if err != nil {
			return err
		}
		if !want.pattern.MatchString(text) {
			return fmt.Errorf("%s is %q, want %v", want.name, text, want.pattern)
		}
	}
	return nil
}

// value returns a part of a response by its name.
func (g received) value(name string) (string, error) {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		return g.header.Get(header), nil
	}
	if name == "body" {
		return string(g.body), nil
	}
	var value any
	if err := json.Unmarshal(g.body, &value); err != nil {
		return "", fmt.Errorf("no JSON: %w", err)
	}
	for key := range strings.SplitSeq(name, ".") {
		object, _ := value.(map[string]any)
		inner, ok := object[key]
		if !ok {
			return "", fmt.Errorf("there is no field %s", name)
		}
		value = inner
	}
	return fmt.Sprint(value), nil
}

// describe returns a response for a message.
func describe(got received, fate fixture.Fate) string {
	if fate != fixture.Answered {
		return fixture.Answer{Fate: fate}.String()
	}
	const shown = 300
	body := got.body[:min(len(got.body), shown)]
	return fmt.Sprintf("status %d, header %v, body %s", got.status, got.header, body)
}

// String returns what is wanted, for messages.
func (r response) String() string {
	if r.status == 0 {
		return fixture.Answer{Fate: r.fate}.String()
	}
	return fmt.Sprintf("status %d", r.status)
}
