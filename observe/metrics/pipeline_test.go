// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// TestMetrics_BeforeFirstWrite: before the first write, the metrics of writes are absent or 0.
func TestMetrics_BeforeFirstWrite(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.settle()
		w.scrape().expect(t, samples{
			in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count"):                                absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds"):                                absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"):                       absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"):                         absent,
			"kubeproxy_sync_proxy_rules_service_changes_total":                                             2, // per family
			of(domain4, "sluice_gate_open"):                                                                0,
			of(domain4, "sluice_writes_total", `outcome="landed"`):                                         0,
			in("IPv4", "kubeproxy_network_programming_duration_seconds_count"):                             absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_no_local_endpoints_total", `traffic_policy="internal"`): absent,
		})
	})
}

// TestMetrics_FirstWriteFullOthersPartial: the first write counts as full, and later ones as partial.
func TestMetrics_FirstWriteFullOthersPartial(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSlice(slice4(1, 1, 1, 2))
		w.prime()
		s := w.scrape()
		s.expect(t, samples{
			in("IPv4", "kubeproxy_sync_full_proxy_rules_duration_seconds_count"):    1,
			in("IPv4", "kubeproxy_sync_partial_proxy_rules_duration_seconds_count"): absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count"):         1,
			in("IPv6", "kubeproxy_sync_proxy_rules_duration_seconds_count"):         1,
			in("IPv4", "kubeproxy_network_programming_duration_seconds_count"):      absent,
			of(domain4, "sluice_audits_total", `result="adopted"`):                  1,
			of(domain4, "sluice_gate_open"):                                         1,
			of(domain4, "sluice_ledger_services"):                                   2, // and the node
			`sluice_actors{state="running"}`:                                        2,
		})
		w.cache.SetSlice(slice4(1, 1, 1, 2, 3))
		w.settle()
		w.scrape().expect(t, samples{
			in("IPv4", "kubeproxy_sync_full_proxy_rules_duration_seconds_count"):    1,
			in("IPv4", "kubeproxy_sync_partial_proxy_rules_duration_seconds_count"): 1,
			in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count"):         2,
			in("IPv6", "kubeproxy_sync_proxy_rules_duration_seconds_count"):         1,
			"kubeproxy_sync_proxy_rules_endpoint_changes_total":                     2,
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending":                   0,
			"kubeproxy_sync_proxy_rules_service_changes_pending":                    0,
			of(domain4, "sluice_programming_duration_seconds_count"):                1,
			of(domain4, "sluice_batch_services_count"):                              2,
		})
	})
}

// TestMetrics_RestartWithEverythingInPlace: a restart that finds all rules in place counts them, and no write.
func TestMetrics_RestartWithEverythingInPlace(t *testing.T) {
	inWorld(t, func(w *world) {
		feed := func() {
			w.cache.SetSpec(spec(1))
			w.cache.SetSlice(slice4(1, 1, 1, 2))
			w.prime()
		}
		feed()
		before := w.rules(service.IPv4, iptrender.NAT)
		w.stop()
		w.start()
		feed()
		s := w.scrape()
		s.expect(t, samples{
			in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count"):        absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_iptables_total", `table="nat"`): before,
		})
		done := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds")]
		queued := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds")]
		if done == 0 || queued == 0 || done < queued {
			t.Errorf("last queued at %f, in step since %f: an alert would fire", queued, done)
		}
		w.cache.SetSlice(slice4(1, 1, 1))
		w.settle()
		w.scrape().expect(t, samples{
			in("IPv4", "kubeproxy_sync_full_proxy_rules_duration_seconds_count"):    absent,
			in("IPv4", "kubeproxy_sync_partial_proxy_rules_duration_seconds_count"): 1,
		})
	})
}

// TestMetrics_NetworkProgrammingOncePerChange: network programming latency is measured once per change, and not for
// changes without an effect or a known time, or older than the process.
func TestMetrics_NetworkProgrammingOncePerChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		change := func(trigger time.Time, hosts ...byte) {
			s := slice4(1, 0, hosts...)
			s.Trigger = trigger
			w.cache.SetSlice(s)
			w.settle()
		}
		count := in("IPv4", "kubeproxy_network_programming_duration_seconds_count")

		change(time.Now().Add(-time.Hour), 1) // older than the process
		w.scrape().expect(t, samples{count: absent, of(domain4, "sluice_programming_duration_seconds_count"): 1})
		change(time.Now(), 1, 2)
		w.scrape().expect(t, samples{count: 1})
		change(time.Now(), 1, 2) // no difference
		w.scrape().expect(t, samples{count: 1})
		change(time.Time{}, 1, 2, 3) // of unknown cause
		w.scrape().expect(t, samples{count: 1, of(domain4, "sluice_programming_duration_seconds_count"): 3})
	})
}

// TestMetrics_RulesCountedAsInKernel: the numbers of rules equal those in the kernel.
func TestMetrics_RulesCountedAsInKernel(t *testing.T) {
	inWorld(t, func(w *world) {
		check := func(when string) {
			t.Helper()
			s := w.scrape()
			for _, family := range service.Families {
				for _, table := range []iptrender.Table{iptrender.NAT, iptrender.Filter} {
					name := in(family.String(), "kubeproxy_sync_proxy_rules_iptables_total", `table="`+string(table)+`"`)
					if got, want := s[name], w.rules(family, table); got != want || want == 0 {
						t.Errorf("%s: %s is %v, and the kernel has %v", when, name, got, want)
					}
				}
			}
		}
		for n := range 40 {
			w.cache.SetSpec(spec(n))
			w.cache.SetSlice(slice4(n, 1, 1, 2, 3))
		}
		w.prime()
		check("at the start")
		for n := range 20 {
			w.cache.RemoveSpec(serviceKey(n))
		}
		for n := 20; n < 30; n++ {
			w.cache.SetSlice(slice4(n, 1, 1, 2, 3, 4, 5))
		}
		w.settle()
		check("after changes")
		last := w.scrape()[in("IPv4", "kubeproxy_sync_proxy_rules_iptables_last", `table="nat"`)]
		if total := w.rules(service.IPv4, iptrender.NAT); last <= 0 || last > total+20 {
			t.Errorf("%v rules written last, of %v", last, total)
		}
		w.kernels[service.IPv4].damage(iptrender.NAT, "KUBE-POSTROUTING")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		check("after another program deleted a rule")
		if s := w.scrape(); s[of(domain4, "sluice_drift_objects_total", `kind="different"`)] != 1 {
			t.Errorf("%v objects differed", s[of(domain4, "sluice_drift_objects_total", `kind="different"`)])
		}
	})
}

// TestMetrics_RejectionsCountedAndHeldBack: a rejected Service counts as quarantined, and its rejected writes as
// failures of its family.
func TestMetrics_RejectionsCountedAndHeldBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		w.reject("172.30.0.2/32")
		w.cache.SetSpec(spec(2))
		w.settle()
		s := w.scrape()
		s.expect(t, samples{
			of(domain4, "sluice_quarantined_services"):                                       1,
			of(domain6, "sluice_quarantined_services"):                                       0,
			"kubeproxy_sync_proxy_rules_service_changes_pending":                             0,
			in("IPv6", "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"):         absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"):            absent,
			in("IPv4", "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"): s[of(domain4, "sluice_writes_total", `outcome="rejected"`)],
		})
		failures := s[in("IPv4", "kubeproxy_sync_proxy_rules_iptables_restore_failures_total")]
		if failures == 0 || failures != s[of(domain4, "sluice_writes_total", `outcome="rejected"`)] {
			t.Errorf("%v failures, of which %v were rejections", failures, s[of(domain4, "sluice_writes_total", `outcome="rejected"`)])
		}
		if done, queued := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds")],
			s[in("IPv4", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds")]; done < queued {
			t.Errorf("one bad Service: last queued at %f, in step since %f", queued, done)
		}
		w.reject("")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		w.scrape().expect(t, samples{of(domain4, "sluice_quarantined_services"): 0})
	})
}

// TestMetrics_HungWriteVisible: a hanging write shows in the time between the last request and the last success, which
// alerts watch.
func TestMetrics_HungWriteVisible(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.prime()
		hang := make(chan time.Time)
		w.kernels[service.IPv4].set("", hang)
		w.cache.SetSlice(slice4(1, 0, 1))
		time.Sleep(30 * time.Second)
		w.cache.SetSlice(slice4(1, 0, 1, 2))
		w.cache.SetSpec(spec(2))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s := w.scrape()
		behind := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds")] -
			s[in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds")]
		if behind < 30 {
			t.Errorf("the difference that alerts watch is %v seconds", behind)
		}
		s.expect(t, samples{
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending": 2,
			of(domain4, "sluice_oldest_pending_seconds"):          60,
			of(domain4, "sluice_waiting_fragments"):               2,
			of(domain6, "sluice_oldest_pending_seconds"):          0,
		})
		if got := s["kubeproxy_sync_proxy_rules_service_changes_pending"]; got < 2 {
			t.Errorf("%v Services have pending changes", got)
		}
		w.kernels[service.IPv4].set("", nil)
		close(hang)
		w.settle()
		s = w.scrape()
		s.expect(t, samples{
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending": 0,
			"kubeproxy_sync_proxy_rules_service_changes_pending":  0,
			of(domain4, "sluice_oldest_pending_seconds"):          0,
		})
		if done := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds")]; done < now()-6 {
			t.Errorf("in step since %f, and it is %f", done, now())
		}
	})
}

// TestMetrics_IneffectiveChangeNotPending: a change without effect is not pending.
func TestMetrics_IneffectiveChangeNotPending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cache.SetSpec(spec(1))
		w.cache.SetSlice(slice4(1, 0, 1))
		w.prime()
		unready := slice4(1, 0, 1, 2)
		unready.Endpoints[1].Ready, unready.Endpoints[1].Serving = false, false
		w.cache.SetSlice(unready)
		w.settle()
		s := w.scrape()
		s.expect(t, samples{
			"kubeproxy_sync_proxy_rules_endpoint_changes_total":             2,
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending":           0,
			in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count"): 1,
		})
		if done, queued := s[in("IPv4", "kubeproxy_sync_proxy_rules_last_timestamp_seconds")],
			s[in("IPv4", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds")]; done < queued {
			t.Errorf("last queued at %f, in step since %f", queued, done)
		}
	})
}

// TestMetrics_ServicesWithoutLocalEndpoints: Services with a Local policy and endpoints, but no local endpoint, are
// counted by policy.
func TestMetrics_ServicesWithoutLocalEndpoints(t *testing.T) {
	internal := in("IPv4", "kubeproxy_sync_proxy_rules_no_local_endpoints_total", `traffic_policy="internal"`)
	external := in("IPv4", "kubeproxy_sync_proxy_rules_no_local_endpoints_total", `traffic_policy="external"`)
	inWorld(t, func(w *world) {
		a, b, c := spec(1), spec(2), spec(3)
		a.InternalLocal = true
		b.InternalLocal, b.ExternalLocal = true, true
		b.Ports[0].NodePort = 30001
		c.InternalLocal = true // without any endpoint: no policy is to blame
		for _, s := range []*service.Spec{a, b, c} {
			w.cache.SetSpec(s)
		}
		w.cache.SetSlice(slice4(1, 0, 1))
		w.cache.SetSlice(slice4(2, 0, 1, 2))
		w.prime()
		w.scrape().expect(t, samples{internal: 2, external: 1})
		w.cache.SetSlice(slice4(2, 1, 1, 2)) // one is local now
		w.settle()
		w.scrape().expect(t, samples{internal: 1, external: 0})
		w.cache.RemoveSpec(serviceKey(1))
		w.settle()
		w.scrape().expect(t, samples{internal: 0, external: 0})
	})
}

// TestMetrics_FailingAndHangingActors: failing and hanging actors are counted.
func TestMetrics_FailingAndHangingActors(t *testing.T) {
	inWorld(t, func(w *world) {
		w.broken["s1"] = true
		hang := make(chan struct{})
		w.hanging["s2"] = hang
		for n := range 4 {
			w.cache.SetSpec(spec(n))
		}
		w.prime()
		w.cache.SetSlice(slice4(1, 0, 1))
		w.cache.SetSlice(slice4(2, 0, 1))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		s := w.scrape()
		s.expect(t, samples{
			"sluice_actors_abandoned":                   1,
			`sluice_actor_failures_total{kind="stuck"}`: 1,
			`sluice_actor_failures_total{kind="error"}`: 0,
			of(domain4, "sluice_quarantined_services"):  0,
		})
		panics, restarts := s[`sluice_actor_failures_total{kind="panic"}`], s["sluice_actor_restarts_total"]
		if panics == 0 || restarts == 0 || restarts > panics+1 {
			t.Errorf("%v panics and a stuck actor, and %v restarts", panics, restarts)
		}
		all := s[`sluice_actors{state="running"}`] + s[`sluice_actors{state="restarting"}`] + s[`sluice_actors{state="parked"}`]
		if all != 5 { // and the node's own
			t.Errorf("%v actors", all)
		}
		close(hang)
		w.settle()
		w.scrape().expect(t, samples{"sluice_actors_abandoned": 0})
	})
}

// TestMetrics_ParkedActorCountedUntilRetried: a parked actor is counted as parked until it is tried again.
func TestMetrics_ParkedActorCountedUntilRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.broken["s1"] = true
		w.cache.SetSpec(spec(1))
		w.prime()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.scrape().expect(t, samples{`sluice_actors{state="parked"}`: 1, `sluice_actors{state="running"}`: 1})
		if a := w.book().Totals().Actors; a != (state.Actors{Running: 1, Parked: 1}) {
			t.Errorf("%+v", a)
		}
		w.mu.Lock()
		w.broken["s1"] = false
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := w.scrape()
		s.expect(t, samples{`sluice_actors{state="parked"}`: 0, `sluice_actors{state="running"}`: 2, `sluice_actors{state="restarting"}`: 0})
		if s["sluice_actor_parks_total"] == 0 {
			t.Error("no actor was parked")
		}
	})
}

// TestMetrics_ShadowedFrontends: shadowed frontends are counted as long as another Service owns them.
func TestMetrics_ShadowedFrontends(t *testing.T) {
	inWorld(t, func(w *world) {
		expect := func(shadowed float64) {
			t.Helper()
			w.settle()
			w.scrape().expect(t, samples{"sluice_shadowed_frontends": shadowed})
		}
		wants := func(n int, external ...string) *service.Spec {
			s := spec(n)
			s.Ports[0].NodePort = 30080
			for _, text := range external {
				s.ExternalIPs[service.IPv4] = append(s.ExternalIPs[service.IPv4], netip.MustParseAddr(text))
			}
			return s
		}
		w.cache.SetSpec(spec(1))
		w.prime()
		expect(0)
		w.cache.SetSpec(wants(1, "192.0.2.1", "192.0.2.2"))
		expect(0)
		w.cache.SetSpec(wants(2, "192.0.2.1", "192.0.2.2", "192.0.2.3"))
		expect(3) // a node port of both families is one
		w.cache.SetSpec(wants(1, "192.0.2.2"))
		expect(2)
		w.cache.SetSpec(wants(3, "192.0.2.3"))
		expect(4)
		w.cache.RemoveSpec(serviceKey(1))
		expect(2)
		w.cache.RemoveSpec(serviceKey(2))
		expect(0)
	})
}

// TestMetrics_CardinalityBounded: the number of series does not depend on the number of Services.
func TestMetrics_CardinalityBounded(t *testing.T) {
	series := func(services int) (n int) {
		inWorld(t, func(w *world) {
			for i := range services {
				w.cache.SetSpec(spec(i))
				w.cache.SetSlice(slice4(i, 1, 1, 2))
			}
			w.prime()
			w.cache.SetSlice(slice4(0, 1, 1, 2, 3))
			w.settle()
			for _, f := range gathered(t, w.Metrics) {
				n += len(f.GetMetric())
				for _, metric := range f.GetMetric() {
					for _, l := range metric.GetLabel() {
						if l.GetName() == "namespace" || l.GetName() == "name" || l.GetName() == "service" {
							t.Errorf("%s has the label %s", f.GetName(), l.GetName())
						}
					}
				}
			}
		})
		return n
	}
	few, many := series(2), series(300)
	if few != many || few < 50 {
		t.Errorf("%d series with 2 Services, %d with 300", few, many)
	}
}

// TestMetrics_AuxDomainNotInKubeProxyMetrics: kube-proxy's metrics do not count an auxiliary domain.
func TestMetrics_AuxDomainNotInKubeProxyMetrics(t *testing.T) {
	m := everything(t, modeNFTables)
	for name, value := range scraped(t, m) {
		if name == in("IPv4", "kubeproxy_sync_proxy_rules_duration_seconds_count") && value != 3 {
			t.Errorf("%s is %v, want the 3 of the other domain", name, value)
		}
	}
	scraped(t, m).expect(t, samples{
		of("aux", "sluice_writes_total", `outcome="rejected"`):                           2,
		in("IPv4", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"):            1,
		in("IPv4", "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total"):         1,
		in("IPv4", "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"): absent,
		in("IPv4", "kubeproxy_network_programming_duration_seconds_count"):               1,
		in("IPv4", "kubeproxy_conntrack_reconciler_deleted_entries_total"):               1,
		`kubeproxy_proxy_healthz_total{code="200"}`:                                      1,
		`kubeproxy_proxy_livez_total{code="503"}`:                                        1,
	})
}
