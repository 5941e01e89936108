// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// A page of another site can make a browser send requests to an address of this host under the site's name, if that
// name resolves to the address (DNS rebinding). The browser then takes the answer for the site's own. The name in the
// request reveals this.

// forHosts passes on requests that name this node: by an address, "localhost" or one of its names.
// Others are answered with status 421.
func forHosts(names []string, next http.Handler) http.Handler {
	known := map[string]bool{"localhost": true}
	for _, name := range names {
		known[canonical(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		// HTTP/1.0 need not name a host. Browsers do not speak it.
		if r.Host == "" || known[name] || isAddress(name) {
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, fmt.Sprintf("Host %.100q is not a name of this node: use an address, localhost or the node's name, "+
			"or add the name to metrics.hosts", r.Host),
			http.StatusMisdirectedRequest)
	})
}

// OnHost reports whether a request comes from this host: from a loopback address, and to an address
// or "localhost", so that no browser asks it for another site's page.
func OnHost(r *http.Request) bool {
	name := hostName(r.Host)
	return OnLoopback(r.RemoteAddr) && (r.Host == "" || name == "localhost" || isAddress(name))
}

// hostName returns the name or address in a Host header, without port and brackets.
func hostName(host string) string {
	if address, _, found := strings.Cut(strings.TrimPrefix(host, "["), "]"); found && strings.HasPrefix(host, "[") {
		return address
	}
	name, _, _ := strings.Cut(host, ":")
	return canonical(name)
}

// canonical returns a name in the form in which names are compared.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
