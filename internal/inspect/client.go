// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Client queries one proxy: the one that listens at a socket, or the one that an HTTP transport reaches.
type Client struct {
	// Patience is how long a proxy on this host may be silent, before and during an answer; 0 means no bound. Queries to
	// other hosts are bounded by their context only. Set Patience before the first query.
	Patience time.Duration

	socket string
	// peer is the ID of the process that listened at the socket when the last connection was made; 0 if it is unknown.
	peer atomic.Int32
	http http.Client
	// base is the URL to which the paths of the API are appended.
	base url.URL
	// most bounds an answer, in bytes; 0 means no bound.
	most int64
}

const (
	// retryPause is the pause before a query is repeated because the proxy could not answer it yet.
	retryPause = time.Second
	// failureMax bounds the text of a failure, in bytes.
	failureMax = 64 << 10
	// localHost is the name of the host in requests to a socket.
	localHost = "sluice"
	// remoteMax bounds the answer of a proxy on another host, in bytes.
	remoteMax = 64 << 20
)

// NewClient makes a client with a patience of RequestTimeout; it does not connect.
func NewClient(socket string) *Client {
	c := &Client{Patience: RequestTimeout, socket: socket, base: url.URL{Scheme: "http", Host: localHost}}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			c.peer.Store(peerOf(conn))
		}
		return conn, err
	}
	c.http.Transport = &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return c
}

// NewRemoteClient makes a client of a proxy on another host. The paths follow base, and errors contain the name.
func NewRemoteClient(name string, base *url.URL, transport http.RoundTripper) *Client {
	return &Client{socket: name, http: http.Client{Transport: transport}, base: *base, most: remoteMax}
}

// Status asks for the state of the proxy.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[Status](ctx, c, PathStatus, nil)
}

// Services asks for the Services of a namespace; empty means all.
func (c *Client) Services(ctx context.Context, namespace string) (*ServiceList, error) {
	return get[ServiceList](ctx, c, PathServices, url.Values{"namespace": {namespace}})
}

// Service asks for everything about a Service.
func (c *Client) Service(ctx context.Context, namespace, name string) (*ServiceDetail, error) {
	return get[ServiceDetail](ctx, c, place(PathService, namespace, name), nil)
}

// Brief asks for everything about a Service except its objects. It returns nil if the proxy does not have the Service.
func (c *Client) Brief(ctx context.Context, namespace, name string) (*ServiceDetail, error) {
	found, err := get[ServiceDetail](ctx, c, place(PathService, namespace, name), url.Values{parameterBrief: {"true"}})
	if failed, ok := errors.AsType[failure](err); ok && failed.code == http.StatusNotFound {
		return nil, nil
	}
	return found, err
}

// Endpoints asks for the endpoints of a Service.
func (c *Client) Endpoints(ctx context.Context, namespace, name string) (*EndpointList, error) {
	return get[EndpointList](ctx, c, place(PathEndpoints, namespace, name), nil)
}

// AllDetails asks for everything about the Services of a namespace; empty means all.
func (c *Client) AllDetails(ctx context.Context, namespace string) ([]*ServiceDetail, error) {
	return items[ServiceDetail](ctx, c, PathAllDetails, namespace)
}

// AllEndpoints asks for the endpoints of the Services of a namespace; empty means all.
func (c *Client) AllEndpoints(ctx context.Context, namespace string) ([]*EndpointList, error) {
	return items[EndpointList](ctx, c, PathAllEndpoints, namespace)
}

func items[T any](ctx context.Context, c *Client, path, namespace string) ([]*T, error) {
	list, err := get[struct{ Items []*T }](ctx, c, path, url.Values{"namespace": {namespace}})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Connections asks for all open connections that a query selects, page by page.
func (c *Client) Connections(ctx context.Context, q *ConnectionQuery) (*ConnectionList, error) {
	values := q.Values()
	all, err := get[ConnectionList](ctx, c, PathConnections, values)
	for err == nil && all.Continue > 0 {
		values.Set("continue", strconv.FormatUint(all.Continue, 10))
		var page *ConnectionList
		if page, err = get[ConnectionList](ctx, c, PathConnections, values); err == nil {
			all.Items, all.Continue, all.Now = append(all.Items, page.Items...), page.Continue, page.Now
		}
	}
	return all, err
}

// Names asks for names, for completion.
func (c *Client) Names(ctx context.Context, namespace string) (*Names, error) {
	return get[Names](ctx, c, PathNames, url.Values{"namespace": {namespace}})
}

// Explain asks how a connection is handled.
func (c *Client) Explain(ctx context.Context, q explain.Flow) (*explain.Answer, error) {
	return get[explain.Answer](ctx, c, PathExplain, q.Query())
}

// Dump writes the archive for a bug report.
func (c *Client) Dump(ctx context.Context, to io.Writer) error {
	answer, err := c.ask(ctx, PathDump, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // it is read to the end
	if _, err := io.Copy(to, answer.Body); err != nil {
		return fmt.Errorf("the archive is incomplete: %w", err)
	}
	return nil
}

// Refused reports whether a proxy rejected a query as invalid or forbidden, so that repeating it is useless.
func Refused(err error) bool {
	failed, ok := errors.AsType[failure](err)
	return ok && (failed.code == http.StatusForbidden || failed.code == http.StatusBadRequest)
}

func place(path, namespace, name string) string {
	return strings.NewReplacer("{namespace}", url.PathEscape(namespace), "{name}", url.PathEscape(name)).Replace(path)
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	answer, err := c.ask(ctx, path, query)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() // it is read to the end
	made, body := new(T), io.Reader(answer.Body)
	if c.most > 0 {
		body = io.LimitReader(body, c.most)
	}
	if err := json.NewDecoder(body).Decode(made); errors.As(err, new(*Silent)) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("incomplete response from the proxy at %s: %w", c.socket, err)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 2) // the newline and the end, so that the connection can be used again
	return made, nil
}

// ask sends a query, and repeats it once if the proxy cannot answer it yet: right after a start, or while a changed
// configuration takes over. Both attempts share one time limit. The caller closes the body.
func (c *Client) ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	first, _ := c.pauses(path, query)
	end := time.Now().Add(cmp.Or(first, math.MaxInt64))
	answer, again, err := c.try(ctx, path, query, end)
	if !again || time.Until(end) <= retryPause {
		return answer, err
	}
	if !sleep.For(ctx, retryPause) {
		return nil, err
	}
	answer, _, err = c.try(ctx, path, query, end)
	return answer, err
}

// try sends a query once; the answer must begin before last. Again is set if the proxy may answer the same query soon.
func (c *Client) try(ctx context.Context, path string, query url.Values, last time.Time) (_ *http.Response, again bool, err error) {
	address := c.base
	address.RawPath, address.RawQuery = c.base.EscapedPath()+path, query.Encode()
	if address.Path, err = url.PathUnescape(address.RawPath); err != nil {
		return nil, false, err
	}
	first, further := c.pauses(path, query)
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(last), func() { end(errSilence) })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, false, err
	}
	answer, err := c.http.Do(request)
	timer.Stop()
	if err != nil {
		defer end(nil)
		if silent := c.silent(ctx, err, first); silent != nil {
			return nil, false, silent
		}
		return nil, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), c.explain(err)
	}
	answer.Body = &patientBody{answer.Body, c, ctx, end, timer, further}
	if answer.StatusCode == http.StatusOK && answer.Header.Get(headerAPI) == Version {
		return answer, false, nil
	}
	defer answer.Body.Close() // it is read to the end
	text, _ := io.ReadAll(io.LimitReader(answer.Body, failureMax))
	switch api := answer.Header.Get(headerAPI); {
	case api == "":
		return nil, false, c.foreign(terminal.Text(answer.Status), text)
	case api != Version:
		return nil, false, fmt.Errorf("version mismatch: the proxy at %s is Sluice %s (API %s), but this client uses API %s; use a client of the same release",
			c.socket, terminal.Text(answer.Header.Get(headerVersion)), terminal.Text(api), Version)
	}
	var failed Failure
	if json.Unmarshal(text, &failed) != nil || failed.Error == "" {
		failed.Error = answer.Status
	}
	soon := answer.StatusCode == http.StatusServiceUnavailable || answer.StatusCode == http.StatusTooManyRequests
	return nil, soon, failure{answer.StatusCode, terminal.Text(failed.Error)}
}

// foreign describes an answer that is not one of Sluice. An answer of the API server contains a message.
func (c *Client) foreign(status string, text []byte) error {
	var from struct {
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(text, &from) == nil && from.Message != "":
		return errors.New(terminal.Text(from.Message))
	case c.base.Host == localHost:
		return fmt.Errorf("%s: not a Sluice socket (unexpected response: %s)", c.socket, status)
	default:
		return fmt.Errorf("unexpected response: %s: %.300q", status, bytes.TrimSpace(text)) // by security.Guard, for example
	}
}

// explain describes in one line why no proxy responds, and what to do.
func (c *Client) explain(err error) error {
	start := "start one (sluice run DIR --sandbox, sluice proxy --config FILE), or name its socket with --socket"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no proxy is listening on %s: it is not running, or it uses a different --sluice-state-dir; %s", c.socket, start)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("stale socket %s: the proxy that created it is no longer running; %s", c.socket, start)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied: only root can access the proxy socket; try sudo", c.socket)
	case errors.Is(err, context.Canceled):
		return err
	case c.base.Host != localHost:
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which a table has no room for
		}
		return err
	default:
		return fmt.Errorf("cannot query the proxy at %s: %w", c.socket, err)
	}
}
