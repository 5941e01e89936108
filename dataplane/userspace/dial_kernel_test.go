// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var errForbidden = errors.New("forbidden")

// TestKernelDial_ForbiddenEndpoint: a forbidden endpoint is not dialed, counts as failed, and another endpoint is
// tried.
func TestKernelDial_ForbiddenEndpoint(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			denied := make(chan *relay.DeniedError, 100)
			forbidden := addresses[family].endpoints[0]
			config := userspace.Config{Registry: userspace.NewRegistry(userspace.Bounds{Denied: func(p userspace.PortID, err *relay.DeniedError) {
				if p.Service != webKey {
					t.Errorf("denied for %v", p)
				}
				denied <- err
			}})}
			config.Relay.MayDial = func(target netip.Addr) error {
				if target == forbidden {
					return errForbidden
				}
				return nil
			}
			w := newWorld(t, family, config)
			w.backend(0) // it would answer
			w.backend(1)
			w.write(w.want(addressOf(addresses[family].cluster)))
			for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
				w.write(w.want(listenerOf(protocol, w.cluster(80), append([]string{ofWeb}, w.to(0, 1)...)...)))
				if names := w.names(w.client, protocol.String(), w.cluster(80), 6); names["b"] != 6 {
					w.Errorf("%v is answered by %v, want b", protocol, names)
				}
			}
			if e := w.traffic().Endpoints[w.endpoint(0)]; e.Failures == 0 || e.Retries != e.Failures || e.Connections != 0 {
				w.Errorf("counted %+v", e)
			}
			for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
				w.write(w.want(listenerOf(protocol, w.cluster(80), append([]string{ofWeb}, w.to(0)...)...)))
			}
			w.expectReset(w.cluster(80))
			w.expectSilence("udp", w.cluster(80))
			if err := <-denied; len(denied) != 0 || err.Target != w.endpoint(0) || !errors.Is(err, errForbidden) {
				w.Errorf("said %v and %d more, want it once a minute", err, len(denied))
			}
		})
	}
}

// TestKernelDial_ForbiddenIPv4MappedAddress: an IPv4-mapped IPv6 target is checked as the IPv4 address that it stands
// for.
func TestKernelDial_ForbiddenIPv4MappedAddress(t *testing.T) {
	asked := make(chan netip.Addr, 10)
	config := userspace.Config{}
	config.Relay.MayDial = func(target netip.Addr) error {
		asked <- target
		return errForbidden
	}
	w := newWorld(t, service.IPv6, config)
	w.write(w.want(addressOf(addresses[w.family].cluster)),
		w.want(listenerOf(service.TCP, w.cluster(80), ofWeb, "to [::ffff:169.254.169.254]:80")))
	w.expectReset(w.cluster(80))
	if target := <-asked; target != netip.MustParseAddr("169.254.169.254") || len(asked) != 0 {
		w.Errorf("asked about %v, and %d more", target, len(asked))
	}
}
