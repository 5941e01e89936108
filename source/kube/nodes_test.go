// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/apitest"
)

func TestNodeAddresses(t *testing.T) {
	server := newServer(t, net.Listen)
	for name, addresses := range map[string][]corev1.NodeAddress{
		"a": {{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}},
		"b": {{Type: corev1.NodeInternalIP, Address: "fd00::2"}},
		"c": nil,
	} {
		server.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}})
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: {server: "http://` + server.Address() + `"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := NodeAddresses(t.Context(), Config{Kubeconfig: path})
	var got []string
	for _, n := range nodes {
		got = append(got, n.Name+" "+n.Addr.String())
	}
	if err != nil || strings.Join(got, ", ") != "a 10.0.0.1, b fd00::2, c invalid IP" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := NodeAddresses(t.Context(), Config{Kubeconfig: path + "x"}); err == nil {
		t.Error("a missing kubeconfig is no error")
	}
}
