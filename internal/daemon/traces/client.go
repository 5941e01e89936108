// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client sends spans as OTLP over HTTP. The clients of the SDK link gRPC, which no other code of the product needs.
type client struct {
	url  string
	http http.Client
}

func newClient(endpoint string) *client {
	return &client{strings.TrimSuffix(endpoint, "/") + "/v1/traces", http.Client{
		Timeout: requestMax, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 1, IdleConnTimeout: requestMax},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) Start(context.Context) error { return nil }
func (c *client) Stop(context.Context) error  { return nil }

// UploadTraces implements otlptrace.Client. On the wire, TracesData equals the request of the OTLP service.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 200))
		return fmt.Errorf("HTTP status %d: %q", response.StatusCode, text)
	}
	_, err = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection is used again
	if err == io.EOF {
		err = nil
	}
	return err
}
