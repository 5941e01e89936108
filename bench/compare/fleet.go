package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

const (
	// fleetChanges are written one after the other, fleetRate a second, to count their bytes.
	fleetChanges, fleetRate = 1000, 100
	// fleetIdle is how long nothing changes.
	fleetIdle = 20 * time.Second
)

// plainLists turns streamed lists off (k8s.io/client-go/features, WatchListClient). kube-proxy
// overrides it with another feature gate.
const plainLists = "KUBE_FEATURE_WatchListClient=false"

// fleet measures what one node asks of the API server: at a start, for a change, and for nothing.
func (r *run) fleet(ctx context.Context) error {
	if r.program == result.Sluice {
		r.proxy.env = []string{plainLists}
		err := r.fleetStart(ctx, result.FleetPlain)
		if r.proxy.env = nil; err != nil {
			return err
		}
	}
	if err := r.fleetStart(ctx, result.FleetStreamed); err != nil {
		return err
	}
	if err := r.fleetChanges(ctx); err != nil {
		return err
	}
	before, err := wire(r.network.node)
	if err != nil {
		return err
	}
	if !rig.Sleep(ctx, fleetIdle) {
		return ctx.Err()
	}
	after, err := wire(r.network.node)
	if err != nil {
		return err
	}
	idle := after.minus(before)
	r.figure(result.FleetIdle, result.ReceivedPerMinute, "KiB", (idle.received+idle.sent)/1024/fleetIdle.Minutes())
	return nil
}

// counted is what has been counted on both sides so far.
type counted struct {
	wire   wireBytes
	server rig.CPU
	asked  askedOf
}

func (r *run) count(ctx context.Context) (counted, error) {
	return count(ctx, r.network.node, r.api, "endpointslices")
}

// count counts at a host whose interface apiPort leads to the API server and nowhere else, and at the
// API server what it was asked about the resources.
func count(ctx context.Context, host *netns.Namespace, api *apiServer, resources ...string) (c counted, err error) {
	if c.wire, err = wire(host); err != nil {
		return c, err
	}
	if c.server, err = rig.Used(api.process.PID()); err != nil {
		return c, err
	}
	c.asked, err = api.asked(ctx, resources...)
	return c, err
}

// fleetStart starts the program again and counts until it has nothing more to do.
func (r *run) fleetStart(ctx context.Context, step string) error {
	r.traffic.during(step)
	if err := r.proxy.stop(); err != nil {
		return err
	}
	r.memory.Close()
	before, err := r.count(ctx)
	if err != nil {
		return err
	}
	if _, err := r.proxy.start(); err != nil {
		return err
	}
	r.memory = rig.WatchMemory(r.proxy.process.PID())
	if err := r.idle(ctx); err != nil {
		return err
	}
	after, err := r.count(ctx)
	if err != nil {
		return err
	}
	r.figure(step, result.Received, "MiB", after.wire.minus(before.wire).received/(1<<20))
	r.figure(step, result.ServerTime, "s", after.server.Minus(before.server).Sum().Seconds())
	r.figure(step, "lists of EndpointSlices, by the server's metrics", "", after.asked.lists-before.asked.lists)
	r.figure(step, "streamed lists of EndpointSlices, by the server's metrics", "", after.asked.streams-before.asked.streams)
	return nil
}

// fleetChanges replaces endpoints and counts what the node is told.
func (r *run) fleetChanges(ctx context.Context) error {
	const step = result.FleetChange
	r.traffic.during(step)
	before, err := r.count(ctx)
	if err != nil {
		return err
	}
	objects := 0
	ticker := time.NewTicker(time.Second / fleetRate)
	defer ticker.Stop()
	for i := range fleetChanges {
		it := r.changing[i%len(r.changing)]
		r.replace(it)
		slice := it.slice(0)
		if err := r.api.update(ctx, slice); err != nil {
			return err
		}
		objects += slice.Size()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	after, err := r.count(ctx)
	if err != nil {
		return err
	}
	wire := after.wire.minus(before.wire)
	r.figure(step, result.ReceivedEach, "bytes", wire.received/fleetChanges)
	r.figure(step, "sent for each", "bytes", wire.sent/fleetChanges)
	events := after.asked.events - before.asked.events
	if events == 0 {
		return fmt.Errorf("%d changes, and the API server has counted no event", fleetChanges)
	}
	r.figure(step, "encoded event, by the server's metrics", "bytes", (after.asked.eventBytes-before.asked.eventBytes)/events)
	r.figure(step, "the written object as protobuf, without what the server adds", "bytes", float64(objects)/fleetChanges)
	return nil
}

// wireBytes are what has passed between nodes and their API server, with all headers.
type wireBytes struct{ received, sent float64 }

func (w wireBytes) minus(other wireBytes) wireBytes {
	return wireBytes{w.received - other.received, w.sent - other.sent}
}

// wire reads the counters of a host's interface to the API server, which has no other traffic.
func wire(host *netns.Namespace) (bytes wireBytes, err error) {
	err = host.Do(func() error {
		link, err := netlink.LinkByName(apiPort)
		if err != nil {
			return err
		}
		counters := link.Attrs().Statistics
		bytes = wireBytes{float64(counters.RxBytes), float64(counters.TxBytes)}
		return nil
	})
	return bytes, err
}

// askedOf is what the API server says it was asked for.
type askedOf struct{ lists, streams, watches, rejected, events, eventBytes float64 }

// asked reads the API server's metrics about resources.
func (s *apiServer) asked(ctx context.Context, resources ...string) (askedOf, error) {
	text, err := s.client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return askedOf{}, err
	}
	return parseAsked(text, resources...)
}

// families parses metrics in the text format.
func families(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

func parseAsked(text []byte, resources ...string) (a askedOf, err error) {
	families, err := families(text)
	if err != nil {
		return a, err
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if slices.Contains(resources, labels["resource"]) {
				a.add(name, labels, m)
			}
		}
	}
	return a, nil
}

// add adds one value of a metric.
func (a *askedOf) add(name string, labels map[string]string, m *dto.Metric) {
	switch name {
	case "apiserver_request_total":
		if labels["verb"] == "LIST" {
			a.lists += m.GetCounter().GetValue()
		}
		if code := labels["code"]; code == "429" || code >= "500" {
			a.rejected += m.GetCounter().GetValue()
		}
	case "apiserver_longrunning_requests":
		if labels["verb"] == "WATCH" {
			a.watches += m.GetGauge().GetValue()
		}
	case "apiserver_watch_list_duration_seconds":
		a.streams += float64(m.GetHistogram().GetSampleCount())
	case "apiserver_watch_events_sizes":
		a.events += float64(m.GetHistogram().GetSampleCount())
		a.eventBytes += m.GetHistogram().GetSampleSum()
	}
}
