package iptables

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestKernelPresentAndRandomFully(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		if err := k.tool.Present(k.Context()); err != nil {
			k.Error(err)
		}
		before := k.state()
		if ok, err := k.tool.RandomFully(k.Context()); err != nil || !ok {
			k.Errorf("RandomFully = %v, %v", ok, err)
		}
		if after := k.state(); after != before {
			k.Errorf("probing left behind:\n%s", after)
		}
	})
}

func TestKernelDetect(t *testing.T) {
	for _, variant := range [...]Variant{Legacy, NFT} {
		for _, family := range service.Families {
			t.Run(string(variant)+" "+family.String(), func(t *testing.T) {
				inNamespace(t, func() { detectMark(newKernelTest(t, variant, family)) })
			})
		}
	}
}

// detectMark marks one variant in one family, and leaves a Service in the other.
func detectMark(k *kernelTest) {
	other := NFT
	if k.variant == NFT {
		other = Legacy
	}
	k.restore("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n")
	rival := newKernelTest(k.T, other, k.family)
	rival.restore("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n")
	d, err := Detect(k.Context(), Auto, service.Families[:])
	if err != nil || d.Variant != k.variant || len(d.Leftovers) != 1 || !strings.Contains(d.Leftovers[0], string(other)) {
		k.Errorf("Detect = %+v, %v; want %s with leftovers of %s", d, err, k.variant, other)
	}
	d, err = Detect(k.Context(), string(other), service.Families[:])
	if err != nil || d.Variant != other || len(d.Leftovers) != 0 {
		k.Errorf("Detect(%s) = %+v, %v", other, d, err)
	}
}
