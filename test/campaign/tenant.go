// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/process"
)

// What a tenant may cost the others, see docs/threat-model.md.
const (
	// changeMax bounds the time from a change of another Service in the API to its new endpoint: some
	// milliseconds on an idle machine. Attacks that starve others cost minutes.
	changeMax = 10 * time.Second
	// residentMax bounds the resident memory of the process, in MiB.
	residentMax = 250
	// answerMax bounds a health probe. (The kubelet's default timeout is 1 s; an idle machine takes
	// milliseconds.)
	answerMax = 5 * time.Second
	// logMax bounds what one attack adds to the log, in bytes.
	logMax = 1 << 20
)

// tenantSpace is the namespace of the tenant, who may create Services and EndpointSlices there.
const tenantSpace = "tenant"

// attack is something that a tenant, or a client of the node, asks for.
type attack struct {
	name string
	// begin starts it and returns what ends it.
	begin func(*trial) (end func(), err error)
	// restart says that the process is restarted during the attack.
	restart bool
	// check, if any, looks at the node during the attack.
	check func(*trial) error
}

// attacks are, in this order, docs/threat-model.md T1, T8, T9, T10, P1, T2, T2 with a ClusterIP, T14, T5 and T12.
var attacks = []attack{
	{name: "a Service with 200,000 frontends", begin: (*trial).oversize, restart: true},
	{name: "300 Services with long invalid annotations", begin: (*trial).annotations},
	{name: "older Services with ClusterIPs of others as external IPs", begin: (*trial).squat},
	{name: "external IPs and endpoints with special addresses", begin: (*trial).special, check: (*trial).noSpecial},
	{name: "2,000 idle clients of the health port", begin: (*trial).idle},
	{name: "500 changes a second of one Service", begin: (*trial).flap},
	{name: "490 and 20 ports with 1,000 endpoints each, all of which change", begin: (*trial).slices, restart: true},
	{name: "100 MB of zones and hints", begin: (*trial).texts},
	{name: "500 changes a second of annotations", begin: (*trial).flip},
	{name: "the node's address with the ports of the proxy", begin: (*trial).redirect},
}

// tenant plays one attack, and measures what the others pay for it: changes of the marker, health
// probes, memory, log and the time to stop. A failed attack is noted; the next one meets a new process.
func tenant(ctx context.Context, r *trial, number int) error {
	a := attacks[number%len(attacks)]
	r.row.count(a.name)
	end, err := a.begin(r)
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	failed := r.suffer(ctx, a)
	end()
	if failed != nil {
		r.failed = append(r.failed, fmt.Errorf("%s: %w", a.name, failed))
		if err := r.p.Process().Kill(); err != nil {
			return err
		}
		if err := r.p.start(); err != nil {
			return err
		}
	}
	return r.recovered(ctx, time.Now(), r.c.mark(), failed != nil)
}

// suffer returns an error for the first limit that an attack under way exceeds.
func (r *trial) suffer(ctx context.Context, a attack) error {
	const lasts = 3 * time.Second
	if err := r.others(ctx, lasts); err != nil {
		return err
	}
	if a.restart {
		if err := r.stopped(); err != nil {
			return err
		}
		if err := r.p.start(); err != nil {
			return err
		}
		if err := r.recovered(ctx, time.Now(), r.c.mark(), true); err != nil {
			return err
		}
		if err := r.others(ctx, lasts); err != nil {
			return err
		}
	}
	if a.check != nil {
		if err := a.check(r); err != nil {
			return err
		}
	}
	log, err := os.ReadFile(r.p.Process().LogFile())
	if err != nil {
		return err
	}
	if about := aboutTenant(log); about > logMax {
		return fmt.Errorf("the log has %d bytes about the tenant, want %d at most", about, logMax)
	}
	return nil
}

// aboutTenant returns how many bytes of a log are in lines about Services of the tenant.
func aboutTenant(log []byte) (size int) {
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(tenantSpace+"/")) {
			size += len(line)
		}
	}
	return size
}

// others changes the marker again and again, asks for the health from the client and from the node, and
// reads the memory. It returns an error for whatever exceeds its limit.
func (r *trial) others(ctx context.Context, lasts time.Duration) error {
	const pause = 100 * time.Millisecond
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(pause) {
		began, want := time.Now(), r.c.mark()
		limited, cancel := context.WithTimeout(ctx, r.recovery)
		err := r.shown(limited, want)
		cancel()
		if err != nil {
			return err
		}
		took := time.Since(began)
		r.notice(0, took)
		if took > changeMax {
			return fmt.Errorf("a change of another Service took %v, want %v at most", took, changeMax)
		}
		for name, from := range map[string]*netns.Namespace{"the client": r.t.client, "the node": r.p.Namespace} {
			if err := probe(ctx, from); err != nil {
				return fmt.Errorf("health probe from %s: %w", name, err)
			}
		}
		resident, err := r.resident()
		if err != nil {
			return err
		}
		if resident > residentMax {
			return fmt.Errorf("the process uses %d MiB, want %d at most", resident, residentMax)
		}
	}
	return nil
}

// stopped ends the process by SIGTERM, in the time that a Daemon has for that.
func (r *trial) stopped() error {
	began := time.Now()
	if err := r.p.end((*process.Daemon).Stop); err != nil {
		return err
	}
	r.row.note("stopped in %v", time.Since(began).Round(time.Millisecond))
	return nil
}

// probe asks for the health as the kubelet does.
func probe(ctx context.Context, from *netns.Namespace) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	host := nodeAddress[service.IPv4].String()
	client := http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":10256/livez", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", answer.Status)
	}
	return nil
}

// resident returns the resident memory of the process in MiB.
func (r *trial) resident() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.p.Process().PID()))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))))
			return kib >> 10, err
		}
	}
	return 0, errors.New("no VmRSS in the status of the process")
}
