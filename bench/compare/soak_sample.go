package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// metrics asks the proxy's server for metrics.
type metrics struct{ node *netns.Namespace }

func (m *metrics) get(ctx context.Context, path string) ([]byte, error) {
	return rig.Get(ctx, m.node, "http://127.0.0.1:10249"+path)
}

// burst returns the number of concurrent requests that the effective configuration allows.
func (m *metrics) burst(ctx context.Context) (int, error) {
	text, err := m.get(ctx, "/configz")
	if err != nil {
		return 0, err
	}
	var configz map[string]struct{ ClientConnection struct{ Burst int } }
	err = json.Unmarshal(text, &configz)
	for _, document := range configz {
		if b := document.ClientConnection.Burst; b != 0 {
			return b, nil
		}
	}
	return 0, err
}

// collect makes the process collect garbage, and returns the bytes of its heap right after. The
// metric go_memstats_heap_alloc_bytes also counts the garbage of the metrics server's answer.
func (m *metrics) collect(ctx context.Context) (heap float64, err error) {
	text, err := m.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAlloc.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("a profile of the heap does not say HeapAlloc")
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// read returns metrics without labels. While a hand-over goes on, the server may be between two
// proxies; then it is asked again.
func (m *metrics) read(ctx context.Context) (map[string]float64, error) {
	const tries, pause = 50, 200 * time.Millisecond
	text, err := m.get(ctx, "/metrics")
	for range tries {
		if err == nil || !rig.Sleep(ctx, pause) {
			break
		}
		text, err = m.get(ctx, "/metrics")
	}
	if err != nil {
		return nil, err
	}
	families, err := families(text)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for name, family := range families {
		for _, one := range family.GetMetric() {
			if len(one.GetLabel()) == 0 {
				values[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
			}
		}
	}
	return values, nil
}

// soakStep is what the clients' exchanges count for.
const soakStep = "soak"

// profiled is a group of goroutines in a profile: how many, and the first frame of their stack.
var profiled = regexp.MustCompile(`(?m)^(\d+) @.*\n#\t`)

// goroutines counts those of the program. The runtime's own have no frames in a profile: it starts one
// for clean-ups when it first has enough of them, which may be late.
func (m *metrics) goroutines(ctx context.Context) (count int, err error) {
	text, err := m.get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	for _, group := range profiled.FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(group[1])) // digits
		count += n
	}
	if count == 0 {
		return 0, errors.New("the profile of goroutines is empty")
	}
	return count, nil
}

// sample describes the process now, and the kernel objects as well if asked.
func (s *soak) sample(ctx context.Context, objects bool) (v result.Sample, err error) {
	pid := s.proxy.process.PID()
	v.Seconds = time.Since(s.began).Seconds()
	values, err := s.metrics.read(ctx)
	if err != nil {
		return v, err
	}
	const mib = 1 << 20
	v.HeapMiB, v.HeapSysMiB = values["go_memstats_heap_alloc_bytes"]/mib, values["go_memstats_heap_sys_bytes"]/mib
	if v.Goroutines, err = s.metrics.goroutines(ctx); err != nil {
		return v, err
	}
	rollup := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	v.ResidentMiB, v.ProportionMiB = float64(rig.KiB(rollup, "Rss"))/1024, float64(rig.KiB(rollup, "Pss"))/1024
	if v.ResidentMiB == 0 || v.ProportionMiB == 0 {
		return v, fmt.Errorf("%s: no sizes", rollup)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return v, err
	}
	v.Descriptors = len(open)
	used, err := rig.Used(pid)
	if err != nil {
		return v, err
	}
	v.Processor = used.Sum().Seconds()
	err = s.network.node.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err != nil {
			return err
		}
		if v.Conntrack, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || !objects {
			return err
		}
		return countObjects(&v)
	})
	return v, err
}

// countObjects counts everything in nf_tables of this thread's network namespace, with nft rather than
// with the client that is under test.
func countObjects(v *result.Sample) error {
	printed, err := exec.Command("nft", "-j", "list", "ruleset").Output()
	if err != nil {
		return fmt.Errorf("nft -j list ruleset: %w", err)
	}
	type set struct {
		Elements []json.RawMessage `json:"elem"`
	}
	var listing struct {
		Objects []struct {
			Chain, Rule json.RawMessage
			Set, Map    *set
		} `json:"nftables"`
	}
	if err := json.Unmarshal(printed, &listing); err != nil {
		return fmt.Errorf("nft -j list ruleset: %w", err)
	}
	for _, o := range listing.Objects {
		switch {
		case o.Chain != nil:
			v.Chains++
		case o.Rule != nil:
			v.Rules++
		}
		for _, s := range []*set{o.Set, o.Map} {
			if s != nil {
				v.Sets++
				v.Elements += len(s.Elements)
			}
		}
	}
	if v.Chains == 0 {
		return errors.New("nft -j list ruleset: there are no chains")
	}
	return nil
}
