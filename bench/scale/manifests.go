package main

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// perFile is the number of Services in one manifest.
const perFile = 100

// clusterIP is the address of Service i.
func clusterIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, byte(16 + i/65000), byte(i / 250 % 256), byte(i%250 + 1)})
}

// endpointIP is the address of endpoint e of Service i; another variant gives
// another address.
func endpointIP(i, e, endpoints, variant int) netip.Addr {
	n := i*endpoints + e
	return netip.AddrFrom4([4]byte{byte(10 + variant), byte(n / 62500), byte(n / 250 % 250), byte(n%250 + 1)})
}

// writeManifests fills a directory. Service 0 has a file of its own, hot.yaml,
// so that changing it does not read its neighbours again.
func writeManifests(dir string, o options) error {
	if err := writeFile(filepath.Join(dir, "hot.yaml"), o, 0, 1, 0); err != nil {
		return err
	}
	for first := 1; first < o.services; first += perFile {
		name := filepath.Join(dir, fmt.Sprintf("services-%06d.yaml", first))
		if err := writeFile(name, o, first, min(first+perFile, o.services), 0); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes the Services from first up to before end. The last endpoint
// of each has the given variant.
func writeFile(name string, o options, first, end, variant int) (err error) {
	f, err := os.Create(name + ".tmp~")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := first; i < end; i++ {
		writeService(w, o, i, variant)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(name+".tmp~", name)
}

func writeService(w *bufio.Writer, o options, i, variant int) {
	fmt.Fprintf(w, `---
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: bench}
spec:
  clusterIP: %[2]s
  clusterIPs: [%[2]s]
  ports: [{name: http, port: 80, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%[1]d, namespace: bench, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [
`, i, clusterIP(i))
	for e := range o.endpoints {
		v := 0
		if e == o.endpoints-1 {
			v = variant
		}
		fmt.Fprintf(w, "  {addresses: [%s], nodeName: other},\n", endpointIP(i, e, o.endpoints, v))
	}
	w.WriteString("]\n")
}
