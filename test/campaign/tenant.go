package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
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

// attacks are, in this order, docs/threat-model.md T1, T10, T11, T12, P1 and T2.
var attacks = []attack{
	{name: "a Service with 200,000 frontends", begin: (*trial).oversize, restart: true},
	{name: "300 Services with long invalid annotations", begin: (*trial).annotations},
	{name: "older Services with ClusterIPs of others as external IPs", begin: (*trial).squat},
	{name: "external IPs and endpoints with special addresses", begin: (*trial).special, check: (*trial).noSpecial},
	{name: "2,000 idle clients of the health port", begin: (*trial).idle},
	{name: "500 changes a second of one Service", begin: (*trial).flap},
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

// tenantService returns a Service of the tenant, older than those of the others.
func tenantService(name string, clusterIP string, ports int) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenantSpace, Name: name, UID: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack), IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
	for port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", port), Protocol: corev1.ProtocolTCP, Port: int32(webPort + port)})
	}
	return s
}

// setTenant writes a Service and one slice of it with an endpoint for each address, and returns what
// removes both.
func (r *trial) setTenant(s *corev1.Service, endpoints ...string) (remove func()) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: tenantSpace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, port := range s.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Protocol: &port.Protocol, Port: ptr.To(int32(podPort(0)))})
	}
	for _, address := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		})
	}
	r.c.api.Set(apitest.Services, s)
	r.c.api.Set(apitest.EndpointSlices, slice)
	return func() {
		r.c.api.Remove(apitest.EndpointSlices, tenantSpace, s.Name)
		r.c.api.Remove(apitest.Services, tenantSpace, s.Name)
	}
}

// tenantIP is the ClusterIP of the tenant's Service of a number.
func tenantIP(n int) string { return clusterIP(service.IPv4, 128<<8+n).String() }

func (r *trial) oversize() (func(), error) {
	const addresses, ports = 800, 250
	s := tenantService("huge", tenantIP(0), ports)
	for n := range addresses {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("198.18.%d.%d", n>>8, n&255))
	}
	return r.setTenant(s, podAddress(service.IPv4, 0).String()), nil
}

func (r *trial) annotations() (func(), error) {
	const services, length = 300, 20_000
	var ends []func()
	for n := range services {
		s := tenantService(fmt.Sprintf("annotated%d", n), tenantIP(n), 1)
		s.Annotations = map[string]string{"sluice.dev/ipvs-scheduler": strings.Repeat("\x01", length)}
		ends = append(ends, r.setTenant(s))
	}
	return all(ends), nil
}

func (r *trial) squat() (func(), error) {
	var ends []func()
	for n := range r.c.live {
		s := tenantService(fmt.Sprintf("squat%d", n), tenantIP(n), 1)
		s.Spec.ExternalIPs = []string{clusterAddr(service.IPv4, n, webPort).Addr().String()}
		ends = append(ends, r.setTenant(s, podAddress(service.IPv4, 0).String()))
	}
	return all(ends), nil
}

// metadata are addresses of metadata and platform services, which have no place in any rule.
var metadata = []string{"169.254.169.254", "168.63.129.16"}

func (r *trial) special() (func(), error) {
	special := append([]string{"127.0.0.1", "224.0.0.1", "0.0.0.0"}, metadata...)
	s := tenantService("special", tenantIP(0), 1)
	s.Spec.ExternalIPs = append(special, nodeAddress[service.IPv4].String())
	return r.setTenant(s, append(special, podAddress(service.IPv4, 0).String())...), nil
}

// noSpecial returns an error if a rule of the node contains such an address.
func (r *trial) noSpecial() error {
	rules, err := netnstest.Output(r.p.Namespace, exec.Command("sh", "-c", "nft list ruleset; iptables-nft-save; iptables-legacy-save"))
	if err != nil {
		return err
	}
	for _, address := range metadata {
		if bytes.Contains(rules, []byte(address)) {
			return fmt.Errorf("%s is in the rules of the node", address)
		}
	}
	return nil
}

func (r *trial) idle() (func(), error) {
	const clients = 2000
	var conns []net.Conn
	end := func() {
		for _, c := range conns {
			c.Close() //nolint:errcheck // the process may have closed it
		}
	}
	for range clients {
		ctx, cancel := context.WithTimeout(context.Background(), r.patience)
		c, err := r.t.client.DialContext(ctx, "tcp", net.JoinHostPort(nodeAddress[service.IPv4].String(), "10256"))
		cancel()
		if err != nil {
			end()
			return nil, err
		}
		conns = append(conns, c)
		if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")); err != nil {
			continue // closed in favor of newer ones
		}
	}
	return end, nil
}

func (r *trial) flap() (func(), error) {
	const endpoints, ports = 250, 10
	s := tenantService("flapping", tenantIP(0), ports)
	var addresses []string
	for n := range endpoints {
		addresses = append(addresses, fmt.Sprintf("10.244.9.%d", n+1))
	}
	remove := r.setTenant(s, addresses...)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				r.setTenant(s, addresses[n%endpoints:]...)
			}
		}
	}()
	return func() { close(stop); <-stopped; remove() }, nil
}

func all(ends []func()) func() {
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
