// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestFlags_EmptyAddressIsDefault: an empty address leaves the default, as in kube-proxy v1.37, and as in files.
func TestFlags_EmptyAddressIsDefault(t *testing.T) {
	c, _ := load(t, "--healthz-bind-address=", "--metrics-bind-address=", "--bind-address=")
	if k := &c.KubeProxy; k.HealthzBindAddress != "0.0.0.0:10256" || k.MetricsBindAddress != "127.0.0.1:10249" || k.BindAddress != "0.0.0.0" {
		t.Errorf("%q, %q, %q", k.HealthzBindAddress, k.MetricsBindAddress, k.BindAddress)
	}
}

// TestFile_ServersFollowFamily: with a bindAddress in a file, servers listen on addresses of its family.
func TestFile_ServersFollowFamily(t *testing.T) {
	c, _ := load(t, "--config", write(t, kubeProxyHead+"bindAddress: '::'\n"))
	if k := &c.KubeProxy; k.HealthzBindAddress != "[::]:10256" || k.MetricsBindAddress != "[::1]:10249" {
		t.Errorf("%q, %q", k.HealthzBindAddress, k.MetricsBindAddress)
	}
}

// TestFlags_ZeroIsDefault: 0 in a flag of the API client means the default, as in files.
func TestFlags_ZeroIsDefault(t *testing.T) {
	c, _ := load(t, "--kube-api-qps=0", "--kube-api-burst=0", "--kube-api-content-type=")
	if k := &c.KubeProxy.ClientConnection; k.QPS != 5 || k.Burst != 10 || k.ContentType != "application/vnd.kubernetes.protobuf" {
		t.Errorf("%+v", k)
	}
}

// TestFlags_Usage: the usage shows what applies without a flag, even if that is not a value.
func TestFlags_Usage(t *testing.T) {
	f, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	usage := f.set.FlagUsages()
	for _, want := range []string{
		"--bind-address ip ", "--healthz-bind-address ipport ", "(default 0.0.0.0:10256)", "--version version[=true]", "-v, --v Level",
		"--config FILE", "(default by mode)",
	} {
		if !strings.Contains(usage, want) {
			t.Errorf("no %q in\n%s", want, usage)
		}
	}
	for _, hidden := range []string{"--healthz-port", "--metrics-port"} {
		if strings.Contains(usage, hidden) {
			t.Errorf("deprecated %s is shown", hidden)
		}
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"true": {Show: true}, "1": {Show: true}, "false": {}, "raw": {Show: true, Raw: true},
		"v1.36.0": {Reported: "v1.36.0"}, "v1.37.2-rc.1+abc": {Reported: "v1.37.2-rc.1+abc"},
	} {
		var v Version
		if err := v.Set(text); err != nil || v != want {
			t.Errorf("%s: %+v, %v", text, v, err)
		}
		var back Version
		if err := back.Set(v.String()); err != nil || back != v {
			t.Errorf("%s: %+v comes back as %+v, %v", text, v, back, err)
		}
	}
	for _, text := range []string{"", "v1", "1.36.0", "vx.y.z", "yes"} {
		var v Version
		if err := v.Set(text); err == nil {
			t.Errorf("%q is taken: %+v", text, v)
		}
	}
}
